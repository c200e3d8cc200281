/**
 * Invariants of global services and of the enforcers, in addition to `invariants.ts`.
 *
 * S7: no node has two tasks of one global service with desired state RUNNING, whichever leaders created them.
 * S8: no enforcer evicts a task whose node meets its placement constraints.
 * S9: at rest, each node that is eligible for a global service has exactly one wanted task of it, a paused node at most one,
 *     and any other node none.
 */
import { wasEvicted } from "../../machines/orchestration/enforcer.machine.ts";
import { admissionOf, placesOf } from "../../machines/orchestration/global-nodes.ts";
import { shouldRestart } from "../../machines/orchestration/restart.machine.ts";
import { meetsPlacement } from "../../machines/scheduling/constraints.ts";
import { isEnded, isWanted, observedState } from "../../machines/task.ts";
import { TaskState, type Service, type Task } from "../../proto/gen/messages.ts";
import type { Commit, Store } from "../../runtime/store/store.ts";

/** S7, for the nodes that the commit changed. */
export function checkNodes(commit: Commit, store: Store): string | null {
  for (const change of commit.changes) {
    if (change.table !== "task" || change.action === "remove" || change.object.nodeId === "") continue;
    const { serviceId, nodeId, slot } = change.object;
    if (slot !== 0 || store.get("service", serviceId)?.spec?.global == null) continue;
    let other: Task | null = null;
    for (const task of store.tasksAt(serviceId, slot, nodeId)) {
      if (task.desiredState !== TaskState.RUNNING || isEnded(observedState(task))) continue;
      if (other !== null) return `S7: node ${nodeId} has ${other.id} and ${task.id} of ${serviceId}, both wanted`;
      other = task;
    }
  }
  return null;
}

/** S8. Simulated tasks have no reservations, so only placement and cluster volumes cause evictions. */
export function checkEvictions(commit: Commit, store: Store): string | null {
  const changed = new Set(commit.changes.map(({ object }) => object.id));
  for (const change of commit.changes) {
    if (change.table !== "task" || change.action !== "update" || change.old === null) continue;
    const { object: task, old } = change;
    if (!wasEvicted(task) || wasEvicted(old)) continue;
    // The task was evicted because its volume was being drained at the time of the decision.
    if (task.volumes.length > 0) continue;
    // The same transaction may have changed the basis of the decision after it.
    if (changed.has(task.nodeId) || changed.has(task.serviceId)) continue;
    const node = store.get("node", task.nodeId);
    const service = store.get("service", task.serviceId);
    const placement = (service === undefined ? task.spec : service.spec?.task)?.placement ?? null;
    if (node === undefined || meetsPlacement(placement, node))
      return `S8: task ${task.id} was evicted from ${task.nodeId}, which meets its placement constraints`;
  }
  return null;
}

/** S9: why one global service is not at rest, or null. */
export function findMisplaced(service: Service, store: Store): string | null {
  for (const [nodeId, tasks] of placesOf(store.all("node"), store.tasksByService(service.id))) {
    const { kind } = admissionOf(service, store.get("node", nodeId));
    const wanted = tasks.filter(isWanted).length;
    const newest = tasks.at(-1);
    const isFinished = newest !== undefined && isEnded(observedState(newest)) && !shouldRestart(newest, tasks);
    const most = kind === "open" || kind === "paused" ? 1 : 0;
    const least = kind === "open" && !isFinished ? 1 : 0;
    if (wanted < least || wanted > most)
      return `S9: global service ${service.id} has ${wanted} tasks on node ${nodeId}, which is ${kind}`;
  }
  return null;
}
