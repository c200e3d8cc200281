/** Predicates on a task object. The chart of its life cycle is in task.machine.ts. */
import { TaskState, type Task, type TaskStatus, type Version } from "../proto/gen/messages.ts";
import { isSameMessage } from "./same-message.ts";

/** Names as in the protocol, such as `RUNNING`, by number. */
export const stateNames: ReadonlyMap<number, string> = new Map(
  Object.entries(TaskState).map(([name, number]) => [number, name]),
);

/** The task is in a terminal state, whatever its desired state. */
export function isEnded(state: TaskState): boolean {
  return state > TaskState.RUNNING;
}

/** The task is on a node and has not ended there. */
export function isHeld(state: TaskState): boolean {
  return state >= TaskState.ASSIGNED && state <= TaskState.RUNNING;
}

/** The task ended by itself, successfully or not: what a restart policy counts. */
export function isSpent(state: TaskState): boolean {
  return state === TaskState.COMPLETE || state === TaskState.FAILED || state === TaskState.REJECTED;
}

/** The task is to run, now or later. */
export function isWanted(task: Task): boolean {
  return task.desiredState <= TaskState.COMPLETE;
}

/** The task is to be deleted from the store once it has ended. */
export function isLeaving(task: Task): boolean {
  return task.desiredState >= TaskState.REMOVE;
}

/** Of the tasks of a slot, in the order of their creation: the one that says what happens there. */
export function newestOf(tasks: readonly Task[]): Task | undefined {
  return tasks.findLast((task) => !isLeaving(task));
}

export function observedState(task: { readonly status: TaskStatus | null }): TaskState {
  return task.status?.state ?? TaskState.NEW;
}

export function isRunning(task: Task): boolean {
  return observedState(task) === TaskState.RUNNING;
}

/** The version of the service's spec: the current one of a service, or the one that a task was created from. */
export function specVersionOf(object: { readonly specVersion: Version | null }): number {
  return object.specVersion?.index ?? 0;
}

/** Whether a status adds nothing to another. The manager that wrote it to the log, and the time of that, do not count. */
export function isSameStatus(a: TaskStatus, b: TaskStatus): boolean {
  return (
    a.state === b.state &&
    a.message === b.message &&
    a.err === b.err &&
    a.timestamp?.seconds === b.timestamp?.seconds &&
    a.timestamp?.nanos === b.timestamp?.nanos &&
    a.container?.containerId === b.container?.containerId &&
    a.container?.pid === b.container?.pid &&
    a.container?.exitCode === b.container?.exitCode &&
    isSameMessage(a.portStatus, b.portStatus)
  );
}

/** A task of a global service or job, whose place is its node. Slot 0 of a replicated job has a task name of its own. */
export function isNodeBound({ slot, annotations }: Task): boolean {
  return slot === 0 && (annotations?.name ?? "") === "";
}
