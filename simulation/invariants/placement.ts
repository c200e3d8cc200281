/**
 * Invariants of placement, in addition to `invariants.ts`.
 *
 * N1: the tasks of a node never reserve more than it has.
 * N2: no two tasks of a node share a host port.
 * N3: a node never has more wanted tasks of a service than the service's limit per node.
 * N4: after the last fault, no task waits for a node while some node could run it.
 * N5: each waiting task states the reason for every node.
 */
import { placementView } from "../../actors/orchestration/placement-view.ts";
import { demandOf, judge, Verdict } from "../../machines/scheduling/filters.ts";
import { hostPortsOf } from "../../machines/scheduling/node-set.ts";
import { isWanting } from "../../machines/scheduling/place.ts";
import { isEnded, isHeld, isWanted, observedState } from "../../machines/task.ts";
import { NodeStatus_State, TaskState, type Task } from "../../proto/gen/messages.ts";
import type { Commit, Store } from "../../runtime/store/store.ts";
import { isChoosy } from "../workloads/placement.ts";

function isHolding(task: Task): boolean {
  return isHeld(observedState(task));
}

/** N1 to N3, for the nodes that received a task in the commit. */
export function checkPlacements(commit: Commit, store: Store): string | null {
  const nodes = new Set<string>();
  for (const change of commit.changes) {
    if (change.table !== "task" || change.action === "remove") continue;
    const { object, old } = change;
    if (isHolding(object) && (old === null || !isHolding(old))) nodes.add(object.nodeId);
  }
  for (const nodeId of nodes) {
    const claim = checkNode(nodeId, store);
    if (claim !== null) return claim;
  }
  return null;
}

function checkNode(nodeId: string, store: Store): string | null {
  const resources = store.get("node", nodeId)?.description?.resources ?? null;
  const replicas = new Map<string, number>();
  const ports = new Set<number>();
  let [cpus, memory] = [0, 0];
  for (const task of store.tasksByNode(nodeId)) {
    if (!isHolding(task)) continue;
    const reserved = task.spec?.resources?.reservations ?? null;
    cpus += reserved?.nanoCpus ?? 0;
    memory += reserved?.memoryBytes ?? 0;
    for (const port of hostPortsOf(task)) {
      if (ports.has(port)) return `N2: two tasks of node ${nodeId} have host port ${port % 65_536}`;
      ports.add(port);
    }
    if (!isWanted(task)) continue;
    const count = (replicas.get(task.serviceId) ?? 0) + 1;
    replicas.set(task.serviceId, count);
    const max = task.spec?.placement?.maxReplicas ?? 0;
    if (max > 0 && count > max)
      return `N3: node ${nodeId} has ${count} tasks of service ${task.serviceId}, more than ${max}`;
  }
  if (resources !== null && (cpus > resources.nanoCpus || memory > resources.memoryBytes))
    return `N1: the tasks of node ${nodeId} reserve ${cpus / 1e9} CPUs of ${resources.nanoCpus / 1e9}`;
  return null;
}

/** N4, N5: which task waits although it should not, or gives no reason; null if all is well. */
function findUnexplained(store: Store): string | null {
  const waiting = [...store.all("task")].filter((task) => isWanting(task) && task.nodeId === "");
  if (waiting.length === 0) return null;
  const nodes = placementView(store);
  for (const task of waiting) {
    const demand = demandOf(task);
    const taker = nodes.nodes.find((info) => judge(demand, info) === Verdict.fits);
    if (taker !== undefined) return `N4: task ${task.id} waits, although node ${taker.id} could run it`;
    const err = task.status?.err ?? "";
    if (!err.startsWith("no suitable node")) return `N5: task ${task.id} waits with the message "${err}"`;
    if (err.includes("max replicas per node limit exceed")) continue;
    const told = [...err.matchAll(/(\d+) nodes?/g)].reduce((sum, [, count]) => sum + Number(count), 0);
    if (told !== nodes.nodes.length)
      return `N5: task ${task.id} has the message "${err}", but there are ${nodes.nodes.length} nodes`;
  }
  return null;
}

/** Why a task with high requirements is not at rest; only waiting for a node counts as rest. */
export function findUnsettled(store: Store): string | null {
  for (const service of store.all("service")) {
    if (!isChoosy(service)) continue;
    for (const task of store.tasksByService(service.id)) {
      const state = observedState(task);
      // A node that broke for good never reports that the task stopped.
      const isLost = task.nodeId !== "" && store.get("node", task.nodeId)?.status?.state !== NodeStatus_State.READY;
      if (isLost && !isWanted(task)) continue;
      const isSettled = isWanted(task) ? state === TaskState.RUNNING || isWanting(task) : isEnded(state);
      if (!isSettled) return `task ${task.id} is in state ${state}, desired ${task.desiredState}`;
    }
  }
  return findUnexplained(store);
}
