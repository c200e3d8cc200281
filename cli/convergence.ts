/** Whether a service has converged to its spec, judged from the service, its tasks and the nodes only. Pure. */
import { isEnded, isRunning, observedState } from "../machines/task.ts";
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
import { jobConvergence, type Convergence } from "./job/convergence.ts";

const stopped: Readonly<Partial<Record<UpdateStatus_UpdateState, string>>> = {
  [UpdateStatus_UpdateState.PAUSED]: "update paused",
  [UpdateStatus_UpdateState.ROLLBACK_PAUSED]: "rollback paused",
  [UpdateStatus_UpdateState.ROLLBACK_COMPLETED]: "rolled back",
};
/** States in which the manager monitors, or has monitored, the new tasks itself. */
const watched: readonly UpdateStatus_UpdateState[] = [
  UpdateStatus_UpdateState.COMPLETED,
  UpdateStatus_UpdateState.ROLLBACK_COMPLETED,
];
const busy: readonly UpdateStatus_UpdateState[] = [
  UpdateStatus_UpdateState.UPDATING,
  UpdateStatus_UpdateState.ROLLBACK_STARTED,
];

/**
 * Tasks to wait for. Tasks of a global service on a node that no longer accepts it do not count: a paused node keeps its tasks,
 * others lose them.
 */
function awaited(service: Service, tasks: readonly Task[], nodes: readonly Node[]): readonly Task[] {
  if (modeOf(service.spec) !== "global") return tasks;
  const open = new Set(nodes.filter((node) => admissionOf(service, node).kind === "open").map(({ id }) => id));
  return tasks.filter(({ nodeId }) => open.has(nodeId));
}

/** A global service wants one task on each node that accepts it, created or not. */
function globalWanted(
  service: Service,
  current: readonly Task[],
  known: Iterable<Task>,
  nodes: Iterable<Node>,
): number {
  const wanted = new Set(current.map(({ nodeId }) => nodeId));
  const had = new Set(Array.from(known, ({ nodeId }) => nodeId));
  for (const node of nodes) {
    // A node that already had a task is not new: there may be nothing left to run there.
    const isNew = !had.has(node.id) && node.status?.state === NodeStatus_State.READY;
    if (isNew && admissionOf(service, node).kind === "open") wanted.add(node.id);
  }
  return wanted.size;
}

/** Final states for which the restart policy counts attempts. */
const ownEnds: readonly TaskState[] = [TaskState.COMPLETE, TaskState.FAILED, TaskState.REJECTED];

function createdAt(task: Task): number {
  return timeMs(task.meta?.createdAt ?? null);
}

/** The slot's number; for a global service, the node id. */
function slotOf({ nodeId, slot }: Task): number | string {
  return slot === 0 ? nodeId : slot;
}

/** Whether the restart policy allows no successor for these tasks of one slot, which have all ended. */
function isOver(service: Service, tasks: readonly Task[]): boolean {
  const policy = service.spec?.task?.restart ?? null;
  if (policy === null) return false;
  const last = tasks.toSorted((a, b) => createdAt(b) - createdAt(a))[0];
  const state = last === undefined ? TaskState.NEW : observedState(last);
  if (policy.condition === RestartPolicy_RestartCondition.NONE) return true;
  if (policy.condition === RestartPolicy_RestartCondition.ON_FAILURE && state === TaskState.COMPLETE) return true;
  const isUnbounded = policy.maxAttempts === 0 || (policy.window?.seconds ?? 0) > 0 || (policy.window?.nanos ?? 0) > 0;
  // The first task was not a restart.
  return !isUnbounded && tasks.length > policy.maxAttempts;
}

/**
 * Why a service can never converge: a slot's tasks have ended, and the policy allows no further attempt. Docker's client waits
 * for such a service forever. Null while it can still converge.
 */
function givenUp(service: Service, tasks: readonly Task[]): string | null {
  const ours = tasks.filter((task) => isUpToDate(task, service));
  for (const slot of Map.groupBy(ours, slotOf).values()) {
    const states = slot.map((task) => observedState(task));
    if (states.some((state) => !isEnded(state))) continue;
    const ended = slot.filter((_, at) => ownEnds.includes(states[at] as TaskState));
    const newest = ended.toSorted((a, b) => createdAt(b) - createdAt(a))[0];
    if (newest === undefined || !isOver(service, ended)) continue;
    const why = newest.status?.err || newest.status?.message || "it ended";
    return `task ${taskName(newest)} ended and its restart policy allows no further attempt: ${why}`;
  }
  return null;
}

/**
 * Whether a slot that the update added has not started yet. The manager monitors only slots that existed before, so it may
 * complete an update that also scales while new tasks are still starting. A task that has failed counts as started: waiting for
 * it might never end, and Docker's client does not wait either.
 */
function hasNotStarted(service: Service, tasks: readonly Task[]): boolean {
  const completedMs = timeMs(service.updateStatus?.completedAt ?? null);
  const ours = tasks.filter((task) => isUpToDate(task, service));
  const begun = new Set(ours.filter((task) => observedState(task) >= TaskState.RUNNING).map(slotOf));
  return ours.some(
    (task) =>
      task.desiredState <= TaskState.RUNNING &&
      !begun.has(slotOf(task)) &&
      timeMs(task.meta?.createdAt ?? null) <= completedMs,
  );
}

/** `isRollback`: the user requested the rollback, so it is not a failure. */
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
    isRunning(task) && task.desiredState === TaskState.RUNNING && isUpToDate(task, service);
  const done = current.filter(isDone).length;
  const wanted =
    mode === "replicated" ? (service.spec?.replicated?.replicas ?? 0) : globalWanted(service, current, all, nodes);
  const isSettled = update === undefined || !busy.includes(update);
  // While a service scales down, more tasks run than wanted.
  const isShrunk = current.length <= wanted;
  const isWatched = update !== undefined && watched.includes(update);
  if (done >= wanted && isSettled && isShrunk) return { kind: "converged", done: wanted, wanted, isProven: isWatched };
  if (isWatched && !hasNotStarted(service, ours)) {
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

/** The task's own status message, with the node's name unless the message contains it. */
function remarkOf({ nodeId, status }: Task, nodes: readonly Node[]): string {
  const err = status?.err ?? "";
  const isKnown = nodes.some(({ id }) => id === nodeId);
  const name = nodeNames(nodes)(nodeId);
  return !isKnown || err.includes(name) ? err : `node ${name}: ${err}`;
}
