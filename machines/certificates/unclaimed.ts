/**
 * Nodes that requested a certificate and never registered with it: the requester died, or lost the answer and requested again
 * as another node.
 *
 * U1: a node that has registered once is claimed forever; only an operator removes it.
 * U2: only time that the leader itself has waited counts, not the clocks' time or the times of writes.
 */
import type { Node } from "../../proto/gen/messages.ts";

/** In milliseconds of the leader's monotonic clock, since it became leader or, if later, since the node was created. U2 */
export const unclaimedTimes = {
  /** How long an unclaimed node blocks a root rotation: a joining node registers within seconds. (SwarmKit waits forever.) */
  holdsRotationMsMax: 60_000,
  /**
   * How long it is kept: time for an operator to fix what keeps a new node from its managers. (SwarmKit keeps it forever.)
   */
  keptMsMax: 3_600_000,
  /** Between two checks for nodes to remove. */
  lookMs: 60_000,
} as const;

/** Nodes removed in one transaction; the others follow at the next check. */
export const unclaimedBatchMax = 100;

/** U1 */
export function hasRegistered(node: Node): boolean {
  return node.description !== null;
}

/** `isManager`: a manager process runs, or ran, as this node. U1 */
export function isUnclaimed(node: Node, isManager: boolean): boolean {
  return !hasRegistered(node) && !isManager;
}
