/** The state of one slot in a rollout, derived from its tasks. */
import {
  RestartPolicy_RestartCondition,
  TaskState,
  type Node,
  type Rollout,
  type Service,
  type Task,
} from "../../../proto/gen/messages.ts";
import { stampedTimes, type LogTimes } from "../../elapsed.ts";
import { isNeverPlaced } from "../reaper.machine.ts";
import { conditionOf, isAttempt, shouldRestart, type NodeOf } from "../restart.machine.ts";
import type { TaskDirty } from "../task-dirty.ts";
import { isActive, isLive } from "../../node.ts";
import { isEnded, isHeld, isLeaving, isRunning, isWanted, newestOf, observedState, specVersionOf } from "../../task.ts";
import { timeMs } from "../../../proto/time.ts";

export type SlotState =
  /** Its task has another spec. */
  | "outdated"
  /** Its task has the current spec, but does not run yet. */
  | "changing"
  /** Its task has the current spec and runs, or has completed as intended. */
  | "done"
  /** Its task has the current spec, ended otherwise and gets no successor. */
  | "ended"
  /** Global services: its node accepts no new tasks now, or never could; the rollout skips it. */
  | "deferred"
  /** It has no wanted task. */
  | "empty";

export interface SlotFacts {
  readonly state: SlotState;
  /** The task that determines the state; null if empty. */
  readonly task: Task | null;
  /** It has, or had, a task with another spec, so it belongs to the rollout. */
  readonly isPart: boolean;
  /** An old task is still wanted in addition to the new one (start-first). */
  readonly isPair: boolean;
  /** The newest task has the current spec and has ended for good, while an old one runs. */
  readonly isGivenUp: boolean;
}

export interface SlotWorld {
  readonly service: Service;
  readonly taskDirty: TaskDirty;
  readonly nodeOf: NodeOf;
}

/** The slot's name: see Turns. */
export function slotName(task: Task): string {
  return task.slot === 0 ? task.nodeId : String(task.slot);
}

function isDirty(task: Task, { taskDirty, nodeOf, service }: SlotWorld): boolean {
  return taskDirty.isDirty(task, service, nodeOf);
}

/**
 * Whether a service may have slots of another spec; a history of earlier ones alone does not count when running tasks keep
 * slots filled.
 */
export function mayHaveOutdated(service: Service, tasks: Iterable<Task>): boolean {
  const policy = service.spec?.task?.restart ?? null;
  const mayBeFilled =
    policy !== null && (conditionOf(policy) !== RestartPolicy_RestartCondition.ANY || policy.maxAttempts > 0);
  for (const task of tasks) if ((mayBeFilled || isWanted(task)) && isOtherVersion(task, service)) return true;
  return false;
}

export function isOtherVersion(task: Task, service: Service): boolean {
  return specVersionOf(task) !== specVersionOf(service);
}

/** Whether a global service's task on the node may be replaced now. */
function takesTurns(node: Node | undefined): boolean {
  return isLive(node) && isActive(node);
}

/** A node of a global service that could never run a task: nothing is lost there (G4 of global-nodes). */
export function isVacant(tasks: readonly Task[]): boolean {
  return tasks.every((task) => task.slot === 0 && (observedState(task) < TaskState.ASSIGNED || isNeverPlaced(task)));
}

/** `tasks`: the slot's tasks, oldest first. */
export function factsOf(tasks: readonly Task[], world: SlotWorld): SlotFacts {
  let current: Task | null = null;
  let outdated: Task | null = null;
  let isPart = false;
  for (const task of tasks) {
    if (isLeaving(task)) continue;
    const isOld = isDirty(task, world);
    isPart ||= isOld;
    if (!isWanted(task)) continue;
    if (isOld) outdated = farther(outdated, task);
    else current = farther(current, task);
  }
  const isPair = current !== null && outdated !== null;
  const facts = (state: SlotState, task: Task | null, isGivenUp = false): SlotFacts => {
    const isDeferred = task?.slot === 0 && (isVacant(tasks) || !takesTurns(world.nodeOf(task.nodeId)));
    return { state: isDeferred ? "deferred" : state, task, isPart, isPair, isGivenUp };
  };
  if (current !== null) {
    const runs = isRunning(current) && current.desiredState === TaskState.RUNNING;
    return facts(runs ? "done" : "changing", current);
  }
  const newest = newestOf(tasks) ?? null;
  if (newest === null) return facts("empty", null);
  const isNewestOld = isDirty(newest, world);
  if (outdated !== null) {
    const isGivenUp = !isNewestOld && isEnded(observedState(newest)) && !shouldRestart(newest, tasks);
    return facts("outdated", outdated, isGivenUp);
  }
  if (shouldRestart(newest, tasks)) return facts("empty", newest);
  if (isNewestOld) return facts("outdated", newest);
  return facts(mayFinish(newest) ? "done" : "ended", newest);
}

function farther(known: Task | null, task: Task): Task {
  return known !== null && observedState(known) > observedState(task) && !isEnded(observedState(known)) ? known : task;
}

/** It ended successfully, and its restart policy does not restart it then. */
function mayFinish(task: Task): boolean {
  return (
    observedState(task) === TaskState.COMPLETE &&
    conditionOf(task.spec?.restart ?? null) !== RestartPolicy_RestartCondition.ANY
  );
}

/** It ended in a way that the spec may have caused. */
export function isFailure(task: Task): boolean {
  return isAttempt(task) && !mayFinish(task);
}

/** The rollout's deadline: the duration written at its start, counted from the start, independent of the writer's clock. */
export function deadlineMs(rollout: Rollout, times: LogTimes): number {
  return times.countedMs(rollout) + timeMs(rollout.deadline) - stampedTimes.countedMs(rollout);
}

/** Since when only the task itself delays its running: it is desired RUNNING, and its predecessors have ended. */
export function freeSinceMs(task: Task, tasks: readonly Task[], times: LogTimes): number {
  let freeMs = times.madeMs(task);
  for (const other of tasks) {
    if (other !== task && !isWanted(other) && !isHeld(observedState(other)))
      freeMs = Math.max(freeMs, times.reachedMs(other));
  }
  return freeMs;
}
