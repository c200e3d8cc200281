/** Whether a service is where its spec wants it, judged from the service, its tasks and the nodes alone. Pure. */
import { nodeNames } from "../machines/node-names.ts";
import { admissionOf } from "../machines/orchestration/global-nodes.ts";
import { taskName } from "../machines/list-filters.ts";
import { isJob, modeOf } from "../machines/orchestration/service-mode.ts";
import { isUpToDate } from "../machines/orchestration/task-dirty.ts";
import {
  NodeStatus_State,
  RestartPolicy_RestartCondition,
  TaskState,
  UpdateStatus_UpdateState,
  type Node,
  type Service,
  type Task,
} from "../proto/gen/messages.ts";
import { timeMs } from "../proto/time.ts";
import { jobConvergence } from "./job/job-convergence.ts";

export type Convergence =
  /**
   * `isProven`: nothing is left to watch, because the manager has watched it already, or because it is a job. `done` is less
   * than `wanted` where it did so and called it completed: some may fail, or end and not be followed.
   */
  | { readonly kind: "converged"; readonly done: number; readonly wanted: number; readonly isProven: boolean }
  /** `remark`: why the slowest is not there yet, empty when nothing says so. */
  | { readonly kind: "moving"; readonly done: number; readonly wanted: number; readonly remark: string }
  | { readonly kind: "failed"; readonly reason: string };

const stopped: Readonly<Partial<Record<UpdateStatus_UpdateState, string>>> = {
  [UpdateStatus_UpdateState.PAUSED]: "update paused",
  [UpdateStatus_UpdateState.ROLLBACK_PAUSED]: "rollback paused",
  [UpdateStatus_UpdateState.ROLLBACK_COMPLETED]: "rolled back",
};
/** The manager watches the new tasks of an update itself before it calls it completed. */
const watched: readonly UpdateStatus_UpdateState[] = [
  UpdateStatus_UpdateState.COMPLETED,
  UpdateStatus_UpdateState.ROLLBACK_COMPLETED,
];
const busy: readonly UpdateStatus_UpdateState[] = [
  UpdateStatus_UpdateState.UPDATING,
  UpdateStatus_UpdateState.ROLLBACK_STARTED,
];

/** The tasks that are waited for. On a node that is not open to a global service they are not: a paused one keeps what it has, the others lose it. */
function awaited(service: Service, tasks: readonly Task[], nodes: readonly Node[]): readonly Task[] {
  if (modeOf(service.spec) !== "global") return tasks;
  const open = new Set(nodes.filter((node) => admissionOf(service, node).kind === "open").map(({ id }) => id));
  return tasks.filter(({ nodeId }) => open.has(nodeId));
}

/** A global service wants a task on each node that is open to it, whether it has been made yet or not. */
function globalWanted(
  service: Service,
  current: readonly Task[],
  known: Iterable<Task>,
  nodes: Iterable<Node>,
): number {
  const wanted = new Set(current.map(({ nodeId }) => nodeId));
  const had = new Set(Array.from(known, ({ nodeId }) => nodeId));
  for (const node of nodes) {
    // One that has had a task has had its turn: nothing may be left to do there.
    const isNew = !had.has(node.id) && node.status?.state === NodeStatus_State.READY;
    if (isNew && admissionOf(service, node).kind === "open") wanted.add(node.id);
  }
  return wanted.size;
}

/** States of a task that ended by itself, of which the restart policy counts attempts. */
const ownEnds: readonly TaskState[] = [TaskState.COMPLETE, TaskState.FAILED, TaskState.REJECTED];

function createdAt(task: Task): number {
  return timeMs(task.meta?.createdAt ?? null);
}

function stateOf(task: Task): TaskState {
  return task.status?.state ?? TaskState.NEW;
}

/** A slot's number; of a service that has one on each node, the node. */
function slotOf({ nodeId, slot }: Task): number | string {
  return slot === 0 ? nodeId : slot;
}

/** Whether nothing follows these tasks of one slot, all of them over, by the restart policy. */
function isOver(service: Service, tasks: readonly Task[]): boolean {
  const policy = service.spec?.task?.restart ?? null;
  if (policy === null) return false;
  const last = tasks.toSorted((a, b) => createdAt(b) - createdAt(a))[0];
  const state = last === undefined ? TaskState.NEW : stateOf(last);
  if (policy.condition === RestartPolicy_RestartCondition.NONE) return true;
  if (policy.condition === RestartPolicy_RestartCondition.ON_FAILURE && state === TaskState.COMPLETE) return true;
  const isUnbounded = policy.maxAttempts === 0 || (policy.window?.seconds ?? 0) > 0 || (policy.window?.nanos ?? 0) > 0;
  // The first was no restart.
  return !isUnbounded && tasks.length > policy.maxAttempts;
}

/**
 * Why a service will never be where its spec wants it: a slot whose tasks ended, and none follows. Docker's client waits
 * for such a service for ever. Null while there is hope.
 */
function givenUp(service: Service, tasks: readonly Task[]): string | null {
  const ours = tasks.filter((task) => isUpToDate(task, service));
  for (const slot of Map.groupBy(ours, slotOf).values()) {
    const states = slot.map(stateOf);
    if (states.some((state) => state <= TaskState.RUNNING)) continue;
    const ended = slot.filter((_, at) => ownEnds.includes(states[at] as TaskState));
    const newest = ended.toSorted((a, b) => createdAt(b) - createdAt(a))[0];
    if (newest === undefined || !isOver(service, ended)) continue;
    const why = newest.status?.err || newest.status?.message || "it ended";
    return `task ${taskName(newest)} is over and its restart policy lets none follow: ${why}`;
  }
  return null;
}

/**
 * Whether a slot that came with the update has yet to begin. The manager watches those that were there before alone, so that
 * it may call an update completed that also scales while new tasks are on their way. One that fails has begun: waiting for
 * it could have no end, and Docker's client does not.
 */
function isYetToBegin(service: Service, tasks: readonly Task[]): boolean {
  const completedMs = timeMs(service.updateStatus?.completedAt ?? null);
  const ours = tasks.filter((task) => isUpToDate(task, service));
  const begun = new Set(ours.filter((task) => stateOf(task) >= TaskState.RUNNING).map(slotOf));
  return ours.some(
    (task) =>
      task.desiredState <= TaskState.RUNNING &&
      !begun.has(slotOf(task)) &&
      timeMs(task.meta?.createdAt ?? null) <= completedMs,
  );
}

/** `isRollback`: the user asked for the rollback, so that it is no failure. */
export function convergence(
  service: Service,
  tasks: Iterable<Task>,
  knownNodes: Iterable<Node>,
  isRollback: boolean,
): Convergence {
  const nodes = [...knownNodes];
  const update = service.updateStatus?.state;
  const reason = update === undefined ? undefined : stopped[update];
  const isAsked = isRollback && update === UpdateStatus_UpdateState.ROLLBACK_COMPLETED;
  if (reason !== undefined && !isAsked) {
    return { kind: "failed", reason: `service ${reason}: ${service.updateStatus?.message ?? ""}` };
  }
  const mode = modeOf(service.spec);
  const all = [...tasks];
  if (isJob(service.spec)) return jobConvergence(service, all, nodes);
  const ours = awaited(service, all, nodes);
  const current = ours.filter((task) => task.desiredState <= TaskState.RUNNING);
  const isDone = (task: Task): boolean =>
    task.status?.state === TaskState.RUNNING && task.desiredState === TaskState.RUNNING && isUpToDate(task, service);
  const done = current.filter(isDone).length;
  const wanted =
    mode === "replicated" ? (service.spec?.replicated?.replicas ?? 0) : globalWanted(service, current, all, nodes);
  const isSettled = update === undefined || !busy.includes(update);
  // More than are wanted still run while a service shrinks.
  const isShrunk = current.length <= wanted;
  const isWatched = update !== undefined && watched.includes(update);
  if (done >= wanted && isSettled && isShrunk) return { kind: "converged", done: wanted, wanted, isProven: isWatched };
  if (isWatched && !isYetToBegin(service, ours)) {
    return { kind: "converged", done: Math.min(done, wanted), wanted, isProven: true };
  }
  if (isSettled && done < wanted) {
    const given = givenUp(service, ours);
    if (given !== null) return { kind: "failed", reason: given };
  }
  const waiting = current.find((task) => !isDone(task) && (task.status?.err ?? "") !== "");
  const remark = waiting === undefined ? "" : remarkOf(waiting, mode === "global" ? nodes : []);
  return { kind: "moving", done: Math.min(done, wanted), wanted, remark };
}

/** What the task says of itself, and on which of the nodes, unless it names that itself. */
function remarkOf({ nodeId, status }: Task, nodes: readonly Node[]): string {
  const err = status?.err ?? "";
  const isKnown = nodes.some(({ id }) => id === nodeId);
  const name = nodeNames(nodes)(nodeId);
  return !isKnown || err.includes(name) ? err : `node ${name}: ${err}`;
}
