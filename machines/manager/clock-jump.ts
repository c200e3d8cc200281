/**
 * Whether somebody has set this machine's wall clock: it then differs from the monotonic one by another amount than before.
 *
 * H5: a jump changes no duration: these are measured by the monotonic clock (`sightings.ts`). A leader ends its term, since what
 *     it holds in memory is reckoned by the clock as it was: the next term, often its own, begins with the clock as it is.
 */
import { isoOf } from "../orchestration/jobs/runs.ts";

/** A time daemon that slews moves the clock by 0.5 ms a second at most; a step of less than this disturbs nobody, in milliseconds. */
export const jumpMsMin = 5_000;
/** How long the warning stays, in milliseconds. */
export const jumpShownMs = 3_600_000;

export interface ClockReading {
  /** Milliseconds since the epoch. */
  readonly wall: number;
  readonly monotonic: number;
}

/** By how many milliseconds the wall clock was set between two readings; 0 when it was not. */
export function jumpBetween(before: ClockReading, after: ClockReading): number {
  const jumpMs = after.wall - before.wall - (after.monotonic - before.monotonic);
  return Math.abs(jumpMs) >= jumpMsMin ? Math.round(jumpMs) : 0;
}

export function jumpSentence(jumpMs: number, wall: number): string {
  const direction = jumpMs > 0 ? "forward" : "back";
  const seconds = Math.round(Math.abs(jumpMs) / 1_000);
  return `this machine's clock was set ${direction} by ${seconds} s, to ${isoOf(wall)}`;
}
