/** How long plugins are given, and how soon they are asked again. */

export const csiTimes = {
  /** Milliseconds for one call; SwarmKit's. What a plugin does beyond it is found out by the next call, which means the same. */
  callMs: 15_000,
  /** Bounds of the wait before another try, in milliseconds; it doubles each time. The agent of SwarmKit waits alike. */
  retryMsMin: 100,
  retryMsMax: 60_000,
  /** After an answer that says no for good, such as no space: somebody must do something first. Milliseconds. */
  refusedMsMin: 5_000,
  refusedMsMax: 600_000,
  /** A link to a plugin counts as good after so many milliseconds. */
  linkHeldMs: 10_000,
} as const;

/** What a call that failed says of trying again. `refused`: the plugin has understood, done nothing, and will say so again. */
export type Failing = "unclear" | "refused";

/** `attempts`: how many have failed in a row, this one included. */
export function retryMs(attempts: number, failing: Failing): number {
  const [min, max] =
    failing === "refused" ? [csiTimes.refusedMsMin, csiTimes.refusedMsMax] : [csiTimes.retryMsMin, csiTimes.retryMsMax];
  return Math.min(max, min * 2 ** Math.min(attempts - 1, 30));
}
