/** Draws of durations from the distributions of a plan. */
import type { SimRandom } from "../../runtime/sim/random.ts";
import type { DurationPlan } from "./plan.ts";

/** The 99th percentile of the standard normal distribution. */
const normal99 = 2.326_347_874;

/** From a log-normal distribution with this median and 99th percentile, in milliseconds. */
export function drawDuration(random: SimRandom, { medianMs, p99Ms }: DurationPlan): number {
  // Box-Muller; always two draws, so that a plan's numbers do not shift later draws.
  const radius = Math.sqrt(-2 * Math.log(1 - random.next()));
  const normal = radius * Math.cos(2 * Math.PI * random.next());
  if (medianMs <= 0) return 0;
  const sigma = Math.log(Math.max(p99Ms, medianMs) / medianMs) / normal99;
  return medianMs * Math.exp(sigma * normal);
}

/** From an exponential distribution with this mean, in milliseconds. */
export function drawExponential(random: SimRandom, meanMs: number): number {
  return -meanMs * Math.log(1 - random.next());
}
