/**
 * What is left of a wait that began at a time in the log, which another machine's clock may have given, or this one's before
 * somebody set it.
 */

/** Managers' clocks may differ by so many milliseconds. A time further ahead is of a clock that was wrong, and says nothing. */
export const clockSkewMsMax = 120_000;

/** Milliseconds, from 0 to `spanMs`: never more than the whole span, and nothing where the time cannot be right. */
export function leftOf(sinceMs: number, spanMs: number, nowMs: number): number {
  if (sinceMs - nowMs > clockSkewMsMax) return 0;
  return Math.max(0, Math.min(sinceMs + spanMs - nowMs, spanMs));
}
