/**
 * Detects that this machine's wall clock was set: its difference from the monotonic clock then changes.
 *
 * H5: a jump changes no duration: durations are measured by the monotonic clock (`sightings.ts`). A leader ends its term,
 *     because its in-memory state was computed by the clock before the jump: the next term, often its own, starts with the
 *     new time.
 */
import { isoOf } from "../orchestration/jobs/runs.ts";

/** In milliseconds. A time daemon that slews moves the clock by at most 0.5 ms per second; a smaller step does no harm. */
const jumpMsMin = 5_000;
/** How long the warning is shown, in milliseconds. */
export const jumpShownMs = 3_600_000;

export interface ClockReading {
  /** Milliseconds since the epoch. */
  readonly wall: number;
  readonly monotonic: number;
}

/** By how many milliseconds the wall clock was set between two readings; 0 if it was not. */
export function jumpBetween(before: ClockReading, after: ClockReading): number {
  const jumpMs = after.wall - before.wall - (after.monotonic - before.monotonic);
  return Math.abs(jumpMs) >= jumpMsMin ? Math.round(jumpMs) : 0;
}

export function jumpSentence(jumpMs: number, wall: number): string {
  const direction = jumpMs > 0 ? "forward" : "back";
  const seconds = Math.round(Math.abs(jumpMs) / 1_000);
  return `this machine's clock was set ${direction} by ${seconds} s, to ${isoOf(wall)}`;
}
