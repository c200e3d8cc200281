/**
 * Computes the due times of cron expressions. The only user of croner, which reads no clock when given a start time.
 *
 * Fields: minute, hour, day of month, month, day of week, optionally preceded by seconds; or `@hourly`, `@daily`, `@weekly`,
 * `@monthly`, `@yearly`. If day of month and day of week are both restricted, a day matches if either does (Vixie). A step
 * counts as a restriction: every second day with `MON` also matches every Monday; in Vixie's cron only Mondays of those days.
 *
 * Changes to and from summer time follow Vixie's rule:
 * D1: an expression with one time of day (single second, minute and hour) is due once a day: if that local time does not
 *     exist, at the first moment after the gap; if it occurs twice, at the first occurrence.
 * D2: any other expression is due at each matching local time: never in a gap, in both passes of an overlap.
 */
import { Cron } from "croner";

export interface DueTimes {
  /** The first due time after `ms`, both in milliseconds since the epoch; null: none. */
  after(ms: number): number | null;
}

type CronReading =
  | { readonly kind: "times"; readonly times: DueTimes }
  /** `reason`: for the user who wrote it. */
  | { readonly kind: "invalid"; readonly reason: string };

/** Digits, names of months and days, and operators. Not `?`, which croner replaces by the current time. */
const fieldPattern = /^[\dA-Za-z*,/\-#+]+$/;
const nicknames: ReadonlySet<string> = new Set([
  "@hourly",
  "@daily",
  "@midnight",
  "@weekly",
  "@monthly",
  "@yearly",
  "@annually",
]);
/** An expression must be due at least once after this time: the year 2000, before any cluster's clock. */
const someTimeMs = 946_684_800_000;

export function readCron(expression: string, timeZone: string): CronReading {
  const fields = expression.trim().split(/\s+/);
  const isNickname = fields.length === 1 && nicknames.has((fields[0] as string).toLowerCase());
  if (!isNickname && (fields.length < 5 || fields.length > 6)) {
    return invalid(
      `invalid cron expression '${expression}': expected five fields, six with seconds first, or @daily and the like`,
    );
  }
  const wrong = isNickname ? undefined : fields.find((field) => !fieldPattern.test(field));
  if (wrong !== undefined) return invalid(`invalid field '${wrong}' in cron expression '${expression}'`);
  // croner accepts offsets such as +02:00, which have no summer time: require a name.
  if (!/^[A-Za-z][\w+\-/]*$/.test(timeZone))
    return invalid(`invalid time zone '${timeZone}': expected an IANA name such as Europe/Stockholm`);
  let cron: Cron;
  try {
    cron = new Cron(fields.join(" "), { timezone: timeZone, paused: true });
  } catch (error) {
    return invalid(`invalid cron expression '${expression}': ${sentenceOf(error)}`);
  }
  const after = (ms: number): number | null => cron.nextRun(dateOf(ms))?.getTime() ?? null;
  try {
    if (after(someTimeMs) === null) return invalid(`cron expression '${expression}' is never due`);
  } catch {
    return invalid(`invalid time zone '${timeZone}': expected an IANA name such as Europe/Stockholm`);
  }
  return { kind: "times", times: { after } };
}

/** Only converts the number; does not read the clock. */
function dateOf(ms: number): Date {
  // oxlint-disable-next-line no-restricted-globals
  return new Date(ms);
}

function invalid(reason: string): CronReading {
  return { kind: "invalid", reason };
}

/** Removes the class name that croner puts before its messages. */
function sentenceOf(error: unknown): string {
  return error instanceof Error ? error.message.replace(/^Cron\w*: /, "") : String(error);
}
