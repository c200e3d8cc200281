/**
 * Invariants that hold during any fault, each a pure function that returns the violation, or null. They are checked after
 * every commit of every replica; unit tests may call them too.
 *
 * S1: no slot has two assigned tasks with desired state RUNNING, whichever leaders created them.
 * S2: the observed state of a task never decreases, and changes only as its life cycle allows.
 * S3: acknowledged writes survive.
 * S4: all replicas of one version are identical.
 * S5: the desired state of a task never decreases.
 * S6: versions increase.
 */
import { movedFrom } from "../../machines/orchestration/rebalancing/moves.ts";
import { mayDesire, maySet } from "../../machines/task.machine.ts";
import { isEnded, observedState } from "../../machines/task.ts";
import { TaskState, type Task } from "../../proto/gen/messages.ts";
import { isHopeless, startsFirst } from "./rollout.ts";
import type { Commit, Store } from "../../runtime/store/store.ts";
import { isJob } from "../../machines/orchestration/service-mode.ts";
import { findMisplaced } from "./global.ts";
import type { Acknowledged } from "../workloads/basic.ts";
import { isChoosy } from "../workloads/placement.ts";
import { findLeftovers, findUnfinished } from "./jobs.ts";

/** S1, for the slots that the commit changed. */
export function checkSlots(commit: Commit, store: Store): string | null {
  for (const change of commit.changes) {
    if (change.table !== "task" || change.action === "remove" || change.object.slot === 0) continue;
    const { serviceId, slot } = change.object;
    // During a move, a slot has its old and its new task for a while.
    const isStartFirst = startsFirst(store.get("service", serviceId));
    let other: Task | null = null;
    for (const task of store.tasksBySlot(serviceId, slot)) {
      if (!isMeantToRun(task) || task.nodeId === "") continue;
      if (other !== null) {
        const isMoved = movedFrom(task) === other.id || movedFrom(other) === task.id;
        const isPair = isStartFirst && (isMoved || other.specVersion?.index !== task.specVersion?.index);
        if (!isPair) return `S1: slot ${slot} of ${serviceId} has ${other.id} and ${task.id}, both assigned`;
      }
      other = task;
    }
  }
  return null;
}

function isMeantToRun(task: Task): boolean {
  return task.desiredState === TaskState.RUNNING && !isEnded(observedState(task));
}

/** S2 and S5. */
export function checkStatesGrow(commit: Commit): string | null {
  for (const change of commit.changes) {
    if (change.table !== "task" || change.action !== "update" || change.old === null) continue;
    const { object, old } = change;
    const [state, before] = [observedState(object), observedState(old)];
    if (state !== before && !maySet(before, state, "node") && !maySet(before, state, "anyManager"))
      return `S2: task ${object.id} moves from ${before} to ${state}`;
    if (object.desiredState !== old.desiredState && !mayDesire(old.desiredState, object.desiredState))
      return `S5: task ${object.id} is desired ${object.desiredState} after ${old.desiredState}`;
  }
  return null;
}

/** S6. */
export function checkVersionGrows(commit: Commit, before: number): string | null {
  if (commit.version <= before) return `S6: version ${commit.version} follows ${before}`;
  for (const change of commit.changes) {
    const version = change.object.meta?.version?.index ?? 0;
    if (change.action !== "remove" && version > commit.version)
      return `S6: ${change.table} ${change.object.id} has version ${version} at ${commit.version}`;
  }
  return null;
}

/** S4: `hashes` holds the first hash seen of each version. */
export function checkSameState(version: number, hash: string, hashes: Map<number, string>): string | null {
  const first = hashes.get(version);
  if (first === undefined) hashes.set(version, hash);
  return first === undefined || first === hash ? null : `S4: version ${version} has the states ${first} and ${hash}`;
}

/** S3, for a replica of `store.version`. */
export function checkAcknowledged(store: Store, writes: Iterable<Acknowledged>): string | null {
  for (const write of writes) {
    if (write.mayBeGone || store.version < write.version) continue;
    if (store.get(write.table, write.id) === undefined)
      return `S3: the acknowledged ${write.table} ${write.id} is not in version ${store.version}`;
    if (!write.holds(store))
      return `S3: the acknowledged change of ${write.table} ${write.id} is not in version ${store.version}`;
  }
  return null;
}

/** Why the cluster is not in the state that its services want, or null. Checked when nothing has failed for a while. */
export function findUnconverged(store: Store, isReady: (nodeId: string) => boolean): string | null {
  for (const service of store.all("service")) {
    if (service.pendingDelete) return `service ${service.id} is still being removed`;
    const unfinished = isJob(service.spec) ? findUnfinished(service, store) : null;
    if (unfinished !== null) return unfinished;
    if (isHopeless(service) || isChoosy(service)) continue;
    const misplaced = service.spec?.global == null ? null : findMisplaced(service, store);
    if (misplaced !== null) return misplaced;
    const wanted = service.spec?.replicated?.replicas ?? 0;
    let running = 0;
    for (const task of store.tasksByService(service.id)) {
      const state = observedState(task);
      if (task.desiredState === TaskState.RUNNING && state === TaskState.RUNNING) {
        if (!isReady(task.nodeId)) return `task ${task.id} runs on ${task.nodeId}, which is not READY`;
        running += 1;
      } else if (task.desiredState <= TaskState.RUNNING && state <= TaskState.RUNNING) {
        return `task ${task.id} of service ${service.id} is in state ${state}, desired ${task.desiredState}`;
      } else if (!isEnded(state) && isReady(task.nodeId)) {
        // A task on a node that broke for good keeps its state for a day.
        return `task ${task.id} should have stopped but is in state ${state}`;
      }
    }
    if (running !== wanted && service.spec?.replicated != null)
      return `service ${service.id} has ${running} of ${wanted} tasks`;
  }
  const leftovers = findLeftovers(store);
  if (leftovers !== null) return leftovers;
  for (const task of store.all("task")) {
    // A node that broke for good never reports that the task stopped.
    if (store.get("service", task.serviceId) === undefined && (task.nodeId === "" || isReady(task.nodeId)))
      return `task ${task.id} is left over from service ${task.serviceId}`;
  }
  return null;
}
