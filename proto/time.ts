/** Conversion between milliseconds and times and durations of messages. For Nomad's messages: nomad-time.ts. */
import { Duration, Timestamp } from "./gen/messages.ts";
import { secondsAndNanos } from "./seconds.ts";

export { durationMs, timeMs } from "./seconds.ts";

/** `ms`: since the Unix epoch, rounded to the nanosecond. */
export function timestampOf(ms: number): Timestamp {
  return Timestamp.create(secondsAndNanos(ms));
}

/** Not below 0; rounded to the nanosecond. */
export function durationOf(ms: number): Duration {
  return Duration.create(secondsAndNanos(ms));
}
