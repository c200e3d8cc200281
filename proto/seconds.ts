/** Milliseconds as the two numbers that protobuf's times and durations are made of, and back. Needs no generated messages. */

export interface SecondsAndNanos {
  readonly seconds: number;
  /** From 0 to 999,999,999 in a time; those of a negative duration are negative. */
  readonly nanos: number;
}

/** Rounded to the nanosecond, as far as a number tells them apart: a time of today is known to 0.2 µs. */
export function secondsAndNanos(ms: number): SecondsAndNanos {
  const seconds = Math.floor(ms / 1_000);
  return { seconds, nanos: Math.min(999_999_999, Math.round((ms - seconds * 1_000) * 1e6)) };
}

/** Milliseconds since the Unix epoch; 0 when absent. */
export function timeMs(time: SecondsAndNanos | null): number {
  return time === null ? 0 : time.seconds * 1_000 + time.nanos / 1e6;
}

/** Milliseconds; `absent` when there is none. */
export function durationMs(duration: SecondsAndNanos | null, absent: number): number {
  return duration === null ? absent : duration.seconds * 1_000 + duration.nanos / 1e6;
}
