/** Times and durations of messages as milliseconds. */
import type { Duration, Timestamp } from "../proto/gen/messages.ts";

/** Milliseconds since the Unix epoch; 0 when absent. */
export function timeMs(time: Timestamp | null): number {
  return time === null ? 0 : time.seconds * 1_000 + time.nanos / 1e6;
}

/** Milliseconds; `absent` when there is none. */
export function durationMs(duration: Duration | null, absent: number): number {
  return duration === null ? absent : duration.seconds * 1_000 + duration.nanos / 1e6;
}
