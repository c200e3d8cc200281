/**
 * Exponential back-off: how long to wait after failures in a row. Pure, so charts use it; the host's `Random` draws the wait.
 * Each user has its own `Backoff`, and says where its figures come from.
 */

/** Milliseconds. */
export interface Backoff {
  /** The part that doubles: the bound after the first failure, without `offsetMs`. Above 0. */
  readonly stepMs: number;
  /** The bound never exceeds it. */
  readonly msMax: number;
  /** Added to the doubled step; only for figures taken from systems that do so. */
  readonly offsetMs?: number;
}

/**
 * Upper bound of the wait in milliseconds: `stepMs` after the first failure, twice as much after each further one, at most
 * `msMax`. `failures`: consecutive failures, including the latest; 0 counts as 1.
 */
export function backoffMs({ stepMs, msMax, offsetMs = 0 }: Backoff, failures: number): number {
  return Math.min(msMax, offsetMs + stepMs * 2 ** Math.max(0, failures - 1));
}

/** The host's `Random`, as far as it is needed here: uniform in [0, 1). */
interface Chance {
  next(): number;
}

/** A function that draws a wait from a bound, both in milliseconds. */
export type Draw = (boundMs: number) => number;

/** Uniform in [0, bound), as in SwarmKit: best where many nodes fail together, because it spreads them most. */
export function drawBelow(random: Chance): Draw {
  return (boundMs) => random.next() * boundMs;
}

/** Uniform in [bound / 2, bound): for retries that cost something, since a draw near zero would be no delay at all. */
export function drawUpperHalf(random: Chance): Draw {
  return (boundMs) => (0.5 + random.next() / 2) * boundMs;
}
