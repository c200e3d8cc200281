/**
 * Whether somebody has set this machine's wall clock: it then differs from the monotonic one by another amount than before.
 *
 * H5: a jump changes nothing that is decided about nodes, which is reckoned by the monotonic clock alone. A leader ends its
 *     term, since rollouts and jobs reckon with times of the log: the next term, often its own, begins with the clock as it is.
 * H6: a leader whose clock was set forward reckons what a rollout waits for as if the log's earlier times had been written by the
 *     clock as it is now: nothing is over because the clock was set.
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

/** The wall clock was set `byMs` forward (back when negative), and showed `atMs` then; milliseconds. */
export interface ClockSet {
  readonly atMs: number;
  readonly byMs: number;
}

/**
 * What this machine's clock would have shown, had it been as it is now, at a time that it wrote into the log: what was written
 * before it was set forward lies further back than the jump. Times before it was set back are left as they are: they lie ahead
 * of the clock, and no wait for them is longer than the whole (`leftOf`). `sets`: oldest first. H6
 */
export function presentTime(timeMs: number, sets: readonly ClockSet[]): number {
  let presentMs = timeMs;
  for (const { atMs, byMs } of sets) if (byMs > 0 && presentMs < atMs - byMs / 2) presentMs += byMs;
  return presentMs;
}

export function jumpSentence(jumpMs: number, wall: number): string {
  const direction = jumpMs > 0 ? "forward" : "back";
  const seconds = Math.round(Math.abs(jumpMs) / 1_000);
  return `this machine's clock was set ${direction} by ${seconds} s, to ${isoOf(wall)}`;
}
