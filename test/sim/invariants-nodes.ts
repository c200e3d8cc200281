/**
 * What must hold of nodes that are silent, beside `invariants.ts`.
 *
 * S123: nobody gives a task to a node that is not READY.
 * S124: once nothing else fails any more, a node that is silent is DOWN within the time that its managers have for it, and
 *      stays so; its tasks then run elsewhere (L3).
 * S130: who is declared DOWN has no session any more: whoever registered meanwhile is not.
 */
import { isEnded, observedState } from "../../machines/task.ts";
import { NodeStatus_State, type Node } from "../../proto/gen/messages.ts";
import type { Commit, Store } from "../../runtime/store/store.ts";

/**
 * Milliseconds from the last sign of life, or from when all else was well, to DOWN: six periods for a node whose manager went
 * away as well, the grace in which a manager that was not well itself gives no verdict, the hold while many are missing, a
 * change of leader, and the periods' jitter.
 */
export const silentMsMax = 30_000 + 16_500 + 30_000 + 15_000;

/** S123 */
export function checkAssigned(commit: Commit, store: Store): string | null {
  for (const [at, change] of commit.changes.entries()) {
    if (change.table !== "task" || change.action !== "update" || change.old?.nodeId !== "") continue;
    const { id, nodeId } = change.object;
    if (nodeId === "" || isEnded(observedState(change.object))) continue;
    // As it was when this was decided: later changes of the same transaction did not count yet.
    const later = commit.changes
      .slice(at + 1)
      .find((other) => other.table === "node" && other.object.id === nodeId && other.old !== null);
    const node = later?.table === "node" ? later.old : store.get("node", nodeId);
    if (node?.status?.state !== NodeStatus_State.READY)
      return `S123: task ${id} is given to node ${nodeId}, which is ${stateName(node)}`;
  }
  return null;
}

/** S130 */
export function checkDeclared(commit: Commit, store: Store): string | null {
  for (const change of commit.changes) {
    if (change.table !== "node" || change.action !== "update") continue;
    const isNews = stateOf(change.object) === NodeStatus_State.DOWN && stateOf(change.old) !== NodeStatus_State.DOWN;
    const session = isNews ? store.get("session", change.object.id) : undefined;
    // It may have come back within the same transaction.
    if (session !== undefined && stateOf(store.get("node", change.object.id)) === NodeStatus_State.DOWN)
      return `S130: node ${change.object.id} is declared DOWN, and has session ${session.sessionId} with ${session.managerId}`;
  }
  return null;
}

function stateOf(node: Node | null | undefined): NodeStatus_State {
  return node?.status?.state ?? NodeStatus_State.UNKNOWN;
}

/** S124. `silentMs`: for how long each silent node has been so, by its hostname. Null when nothing is wrong, or not yet. */
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
