/** What a task's object says of it. The chart of its life is in task-life.ts. */
import { TaskState, type Task } from "../proto/gen/messages.ts";

/** The task has ended, whatever is still desired of it. */
export function isEnded(state: TaskState): boolean {
  return state > TaskState.RUNNING;
}

/** A node has it, and it has not ended there. */
export function isHeld(state: TaskState): boolean {
  return state >= TaskState.ASSIGNED && state <= TaskState.RUNNING;
}

/** It ended by itself, well or badly: what a restart policy counts. */
export function isSpent(state: TaskState): boolean {
  return state === TaskState.COMPLETE || state === TaskState.FAILED || state === TaskState.REJECTED;
}

/** It should run, now or later. */
export function isWanted(task: Task): boolean {
  return task.desiredState <= TaskState.COMPLETE;
}

export function observedState(task: Task): TaskState {
  return task.status?.state ?? TaskState.NEW;
}

/** Its place is its node: a task of a global service or job. Slot 0 of a replicated job is told apart by its own name. */
export function isNodeBound({ slot, annotations }: Task): boolean {
  return slot === 0 && (annotations?.name ?? "") === "";
}
