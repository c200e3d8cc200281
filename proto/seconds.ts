/** Conversion between milliseconds and the two numbers of protobuf's times and durations. Independent of generated messages. */

interface SecondsAndNanos {
  readonly seconds: number;
  /** 0 to 999,999,999 in a time; in a negative duration, negative. */
  readonly nanos: number;
}

/** Rounded to the nanosecond, within the precision of a number: 0.2 µs for current times. */
export function secondsAndNanos(ms: number): SecondsAndNanos {
  const seconds = Math.floor(ms / 1_000);
  return { seconds, nanos: Math.min(999_999_999, Math.round((ms - seconds * 1_000) * 1e6)) };
}

/** Milliseconds since the Unix epoch; 0 when absent. */
export function timeMs(time: SecondsAndNanos | null): number {
  return time === null ? 0 : time.seconds * 1_000 + time.nanos / 1e6;
}

/** Milliseconds; `absent` if null. */
export function durationMs(duration: SecondsAndNanos | null, absent: number): number {
  return duration === null ? absent : duration.seconds * 1_000 + duration.nanos / 1e6;
}
