/**
 * Invariants of silent nodes, in addition to `invariants.ts`.
 *
 * S123: no task is assigned to a node that is not READY.
 * S124: after the last fault, a silent node is DOWN within the managers' timeouts, and stays DOWN; its tasks then run on other
 *      nodes (L3).
 * S130: a node that is declared DOWN has no session: one that registered in the meantime is not declared DOWN.
 */
import { isEnded, observedState } from "../../machines/task.ts";
import { NodeStatus_State, type Node } from "../../proto/gen/messages.ts";
import type { Commit, Store } from "../../runtime/store/store.ts";

/**
 * Milliseconds from the last sign of life, or from the end of all other faults, to DOWN: six periods for a node whose manager
 * failed as well, the grace period in which a manager with troubles of its own gives no verdict, the hold while many nodes are
 * missing, a change of leader, and the jitter of the periods.
 */
export const silentMsMax = 30_000 + 16_500 + 30_000 + 15_000;

/** S123 */
export function checkAssigned(commit: Commit, store: Store): string | null {
  for (const [at, change] of commit.changes.entries()) {
    if (change.table !== "task" || change.action !== "update" || change.old?.nodeId !== "") continue;
    const { id, nodeId } = change.object;
    if (nodeId === "" || isEnded(observedState(change.object))) continue;
    // The node's state at the time of the decision: later changes of the same transaction do not count.
    const later = commit.changes
      .slice(at + 1)
      .find((other) => other.table === "node" && other.object.id === nodeId && other.old !== null);
    const node = later?.table === "node" ? later.old : store.get("node", nodeId);
    if (node?.status?.state !== NodeStatus_State.READY)
      return `S123: task ${id} is assigned to node ${nodeId}, which is ${stateName(node)}`;
  }
  return null;
}

/** S130 */
export function checkDeclared(commit: Commit, store: Store): string | null {
  for (const change of commit.changes) {
    if (change.table !== "node" || change.action !== "update") continue;
    const isNews = stateOf(change.object) === NodeStatus_State.DOWN && stateOf(change.old) !== NodeStatus_State.DOWN;
    const session = isNews ? store.get("session", change.object.id) : undefined;
    // It may have registered again in the same transaction.
    if (session !== undefined && stateOf(store.get("node", change.object.id)) === NodeStatus_State.DOWN)
      return `S130: node ${change.object.id} is declared DOWN but has session ${session.sessionId} with ${session.managerId}`;
  }
  return null;
}

function stateOf(node: Node | null | undefined): NodeStatus_State {
  return node?.status?.state ?? NodeStatus_State.UNKNOWN;
}

/**
 * S124. `silentMs`: how long each silent node has been silent, by hostname. Null if all is well, or it is too early to tell.
 */
export function findUnmissed(store: Store, silentMs: ReadonlyMap<string, number>): string | null {
  for (const [name, ms] of silentMs) {
    const node = store.byName("node", name);
    if (node === undefined || node.status?.state === NodeStatus_State.DOWN) continue;
    const late = ms > silentMsMax ? "S124: " : "";
    return `${late}node ${name} has been silent for ${Math.round(ms)} ms and is ${stateName(node)}`;
  }
  return null;
}

function stateName(node: Node | null | undefined): string {
  if (node == null) return "gone";
  const state = node.status?.state ?? NodeStatus_State.UNKNOWN;
  return Object.keys(NodeStatus_State).find((name) => NodeStatus_State[name as never] === state) ?? String(state);
}
