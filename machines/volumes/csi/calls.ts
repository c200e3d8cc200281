/** Timeouts and retry delays of calls to storage plugins. */
import { backoffMs } from "../../../lib/backoff.ts";

export const csiTimes = {
  /** Timeout of a call in milliseconds (SwarmKit's). Calls are idempotent: the next attempt finds what was finished late. */
  callMs: 15_000,
  /** Retry delay; it doubles with each attempt, like that of SwarmKit's agent. */
  retry: { stepMs: 100, msMax: 60_000 },
  /** The same after a refusal that persists until somebody acts, such as no space. */
  refused: { stepMs: 5_000, msMax: 600_000 },
  /** How long a link to a plugin must hold to reset the retry delay, in milliseconds. */
  linkHeldMs: 10_000,
} as const;

/** How a call failed. `refused`: the plugin understood it, did nothing, and would refuse it again. `unclear`: anything else. */
export type Failing = "unclear" | "refused";

/** `attempts`: consecutive failures, including this one. */
export function retryMs(attempts: number, failing: Failing): number {
  return backoffMs(failing === "refused" ? csiTimes.refused : csiTimes.retry, attempts);
}
