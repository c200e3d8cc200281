/**
 * When a node sends its next heartbeat: SwarmKit's period and jitter, but aligned with other nodes.
 *
 * B1: each period is the cluster's ± the jitter, so nodes that joined together spread out, as with SwarmKit.
 * B2: heartbeats fall on common ticks. Waking a sleeping process costs several times as much as a heartbeat, so heartbeats
 *     that arrive together are cheaper: by a third with a thousand nodes. Muster's agents count the period from their heartbeat, so
 *     that distant ones fall on them too.
 */

/**
 * Each period is uniform in the cluster's period ± this (worker protocol §4.1), in milliseconds, or ± a tenth of the period
 * if that is less.
 */
const jitterMsMax = 500;
/** Time between two ticks, in milliseconds, or a fiftieth of the period if that is less: 1,000 nodes form 50 groups of 20. */
const tickMsMax = 100;
const ticksPerPeriodMin = 50;

export function jitterMs(periodMs: number): number {
  return Math.min(jitterMsMax, periodMs / 10);
}

/** Milliseconds until the next heartbeat; `chance` is in [0, 1). */
export function nextHeartbeatMs(nowMs: number, periodMs: number, chance: number): number {
  const jitter = jitterMs(periodMs);
  const tickMs = Math.min(tickMsMax, periodMs / ticksPerPeriodMin);
  const wanted = nowMs + periodMs - jitter + chance * 2 * jitter;
  const dueMs = Math.ceil(wanted / tickMs) * tickMs - nowMs;
  // The last tick of the range may be beyond it.
  return dueMs >= periodMs + jitter ? dueMs - tickMs : dueMs;
}
