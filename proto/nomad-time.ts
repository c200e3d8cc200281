/** Times and durations of Nomad's messages as milliseconds, and back: a plugin's process does not load the others. */
import { Duration, Timestamp } from "./gen/nomad.ts";
import { secondsAndNanos } from "./seconds.ts";

export { durationMs } from "./seconds.ts";

/** `ms`: since the Unix epoch, rounded to the nanosecond. */
export function timestampOf(ms: number): Timestamp {
  return Timestamp.create(secondsAndNanos(ms));
}

/** Not below 0; rounded to the nanosecond. */
export function durationOf(ms: number): Duration {
  return Duration.create(secondsAndNanos(ms));
}
