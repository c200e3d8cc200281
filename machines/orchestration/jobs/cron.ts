/**
 * Cron expressions as times. The only place that knows croner, which reads no clock when it is told from where to go on.
 *
 * Fields: minute, hour, day of month, month, day of week, with an optional field of seconds in front; `@hourly`, `@daily`,
 * `@weekly`, `@monthly`, `@yearly`. A day matches when day of month or day of week does, if both are restricted (Vixie). A
 * step restricts as well: every second day beside `MON` is also every Monday, in Vixie's own only Mondays of those days.
 *
 * Where clocks are put forward or back, by Vixie's rule:
 * D1: an expression of one time of day (single second, minute and hour) is due once a day: if that wall time does not
 *     exist, at the first moment after the gap; if it occurs twice, at the first occurrence.
 * D2: any other expression is due at each matching wall time that exists: not in a gap, in both passes of an overlap.
 */
import { Cron } from "croner";

export interface DueTimes {
  /** The first due time after `ms`, both in milliseconds since the epoch; null: there is none. */
  after(ms: number): number | null;
}

export type CronReading =
  | { readonly kind: "times"; readonly times: DueTimes }
  /** `reason`: for the user who wrote it. */
  | { readonly kind: "invalid"; readonly reason: string };

/** Digits, names of months and days, and what joins them. Not `?`, which croner reads as the present time. */
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
/** From what time on an expression must be due at least once to be accepted: the year 2000, before any clock of ours. */
const someTimeMs = 946_684_800_000;

export function readCron(expression: string, timeZone: string): CronReading {
  const fields = expression.trim().split(/\s+/);
  const isNickname = fields.length === 1 && nicknames.has((fields[0] as string).toLowerCase());
  if (!isNickname && (fields.length < 5 || fields.length > 6)) {
    return invalid(
      `'${expression}' is no cron expression: five fields, six with seconds in front, or @daily and the like`,
    );
  }
  const wrong = isNickname ? undefined : fields.find((field) => !fieldPattern.test(field));
  if (wrong !== undefined) return invalid(`'${wrong}' is no field of a cron expression`);
  // An offset such as +02:00 would be accepted, and knows no summer time: say what is meant by name.
  if (!/^[A-Za-z][\w+\-/]*$/.test(timeZone))
    return invalid(`'${timeZone}' is no time zone: write an IANA name such as Europe/Stockholm`);
  let cron: Cron;
  try {
    cron = new Cron(fields.join(" "), { timezone: timeZone, paused: true });
  } catch (error) {
    return invalid(`'${expression}' is no cron expression: ${sentenceOf(error)}`);
  }
  const after = (ms: number): number | null => cron.nextRun(dateOf(ms))?.getTime() ?? null;
  try {
    if (after(someTimeMs) === null) return invalid(`'${expression}' is never due`);
  } catch {
    return invalid(`'${timeZone}' is no time zone: write an IANA name such as Europe/Stockholm`);
  }
  return { kind: "times", times: { after } };
}

/** Only a form of the number: nothing reads the clock here. */
function dateOf(ms: number): Date {
  // oxlint-disable-next-line no-restricted-globals
  return new Date(ms);
}

function invalid(reason: string): CronReading {
  return { kind: "invalid", reason };
}

/** croner names its class in front of what is wrong. */
function sentenceOf(error: unknown): string {
  return error instanceof Error ? error.message.replace(/^Cron\w*: /, "") : String(error);
}
