/** Versions and times as typed: `1234`, `2026-11-21T15:00:00Z`, or `10m` for 10 minutes ago. */
import { Timestamp } from "../proto/gen/messages.ts";
import { timestampOf } from "../proto/time.ts";
import { goDurationMs } from "../lib/go-duration.ts";
import { UsageError } from "../lib/user-error.ts";

export type Moment = { readonly version: number } | { readonly time: Timestamp };

const timePattern = /^(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?(Z|[+-]\d\d:\d\d)?)?$/i;

/** RFC 3339. A time without a zone is local, as in Docker's `--since`; a date alone begins in UTC. */
function parseTime(text: string): Timestamp | null {
  const match = timePattern.exec(text);
  if (match === null) return null;
  const [, year = "", month = "", day = "", hour, minute = "00", second = "00", fraction = "", zone = ""] = match;
  const isTime = hour !== undefined;
  const whole = `${year}-${month}-${day}T${hour ?? "00"}:${minute}:${second}${isTime ? zone.toUpperCase() : "Z"}`;
  const ms = Date.parse(whole);
  if (Number.isNaN(ms)) return null;
  // Rejects dates such as 30 February, which Date would move to the next month.
  const exists = new Date(Date.UTC(Number(year), Number(month) - 1, Number(day))).getUTCDate() === Number(day);
  if (!exists) return null;
  return Timestamp.create({ seconds: Math.floor(ms / 1_000), nanos: Number(fraction.padEnd(9, "0")) });
}

function parseAgo(text: string, now: number): Timestamp | null {
  const agoMs = text === "0" ? null : goDurationMs(text);
  if (agoMs === null) return null;
  const ms = now - agoMs;
  return Number.isSafeInteger(Math.floor(ms / 1_000)) ? timestampOf(ms) : null;
}

/** Parses a time, for flags such as `--since`. Throws UsageError. */
export function parsePast(text: string, now: number, flag: string): Timestamp {
  const time = parseTime(text) ?? parseAgo(text, now);
  if (time === null) {
    throw new UsageError(
      `invalid argument "${text}" for "--${flag}" flag: expected a time such as 2026-01-31T08:00:00Z or a relative time such as 10m`,
    );
  }
  return time;
}

/** Throws UsageError. `now`: milliseconds since the epoch. */
export function parseMoment(text: string, now: number, flag = "from"): Moment {
  if (/^\d+$/.test(text) && Number.isSafeInteger(Number(text))) return { version: Number(text) };
  const time = parseTime(text) ?? parseAgo(text, now);
  if (time !== null) return { time };
  throw new UsageError(
    `invalid argument "${text}" for "--${flag}" flag: expected a version, a time such as 2026-01-31T08:00:00Z or a relative time such as 10m`,
  );
}
