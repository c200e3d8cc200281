/** Predicates on a task object. The chart of its life cycle is in task.machine.ts. */
import { TaskState, type Task } from "../proto/gen/messages.ts";

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

export function observedState(task: Task): TaskState {
  return task.status?.state ?? TaskState.NEW;
}

/** A task of a global service or job, whose place is its node. Slot 0 of a replicated job has a task name of its own. */
export function isNodeBound({ slot, annotations }: Task): boolean {
  return slot === 0 && (annotations?.name ?? "") === "";
}
