/**
 * Conversion between milliseconds and Nomad's times and durations: separate, so that a plugin's process does not load the other
 * messages.
 */
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
