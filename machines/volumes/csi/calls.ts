/** Timeouts and retry delays of calls to storage plugins. */

export const csiTimes = {
  /** Timeout of a call in milliseconds (SwarmKit's). Calls are idempotent: the next attempt finds what was finished late. */
  callMs: 15_000,
  /** Bounds of the retry delay in milliseconds; it doubles with each attempt, like that of SwarmKit's agent. */
  retryMsMin: 100,
  retryMsMax: 60_000,
  /** The same after a refusal that persists until somebody acts, such as no space. */
  refusedMsMin: 5_000,
  refusedMsMax: 600_000,
  /** How long a link to a plugin must hold to reset the retry delay, in milliseconds. */
  linkHeldMs: 10_000,
} as const;

/** How a call failed. `refused`: the plugin understood it, did nothing, and would refuse it again. `unclear`: anything else. */
export type Failing = "unclear" | "refused";

/** `attempts`: consecutive failures, including this one. */
export function retryMs(attempts: number, failing: Failing): number {
  const [min, max] =
    failing === "refused" ? [csiTimes.refusedMsMin, csiTimes.refusedMsMax] : [csiTimes.retryMsMin, csiTimes.retryMsMax];
  return Math.min(max, min * 2 ** Math.min(attempts - 1, 30));
}
