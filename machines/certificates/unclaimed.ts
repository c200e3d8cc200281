/**
 * Nodes that asked for a certificate and never registered with it: whoever asked died, or lost what it was given, and asked
 * again as another node.
 *
 * U1: a node that registered once is claimed for ever, and only an operator removes it.
 * U2: only time counts that the leader itself has waited: what clocks show, and when something was written by them, does not.
 */
import type { Node } from "../../proto/gen/messages.ts";

/** In milliseconds of the leader's monotonic clock, since it has led or, later, since the node came. U2 */
export const unclaimedTimes = {
  /** So long a rotation of the root waits: whoever joins registers within seconds. (SwarmKit waits for ever.) */
  holdsRotationMsMax: 60_000,
  /** Then the node is removed: time for an operator to mend what keeps a new node from its managers. (SwarmKit keeps it for ever.) */
  keptMsMax: 3_600_000,
  /** Between two looks for nodes to remove. */
  lookMs: 60_000,
} as const;

/** Nodes that are removed in one transaction; the others follow at the next look. */
export const unclaimedBatchMax = 100;

/** U1 */
export function hasRegistered(node: Node): boolean {
  return node.description !== null;
}

/** `isManager`: a manager process runs, or ran, as this node. U1 */
export function isUnclaimed(node: Node, isManager: boolean): boolean {
  return !hasRegistered(node) && !isManager;
}
