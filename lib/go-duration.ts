/** Durations as Go reads them: `1h30m`, `-1.5s`, `.5ms`, `0`. */
const unitNanos: Readonly<Record<string, number>> = {
  ns: 1,
  us: 1e3,
  µs: 1e3,
  // The Greek letter.
  μs: 1e3,
  ms: 1e6,
  s: 1e9,
  m: 60e9,
  h: 3_600e9,
};
const pattern = /^([-+]?)((?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+|0)$/;

/** In nanoseconds, also beyond Go's longest; null if Go reads no duration. */
export function goDurationNanos(text: string): number | null {
  const [, sign, amounts] = pattern.exec(text) ?? [];
  if (amounts === undefined) return null;
  let nanos = 0;
  for (const [, amount, unit] of amounts.matchAll(/(\d+\.?\d*|\.\d+)([a-zµμ]+)/g))
    nanos += Number(amount) * (unitNanos[unit as string] as number);
  return sign === "-" ? -nanos : nanos;
}

/** In milliseconds; null for a negative duration as well. */
export function goDurationMs(text: string): number | null {
  const nanos = goDurationNanos(text);
  return nanos === null || nanos < 0 ? null : nanos / 1e6;
}

/** The text of a duration in milliseconds: `1h30m`, `90s`, `1.5s`. */
export function goDurationText(ms: number): string {
  if (ms >= 60_000 && ms % 60_000 === 0) {
    const minutes = ms / 60_000;
    const hours = Math.floor(minutes / 60);
    return `${hours > 0 ? `${hours}h` : ""}${minutes % 60 > 0 ? `${minutes % 60}m` : ""}`;
  }
  return ms % 1_000 === 0 || ms >= 1_000 ? `${ms / 1_000}s` : `${ms}ms`;
}
