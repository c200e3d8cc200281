/** Operations by which managers move tasks. A mover that the life cycle does not allow is a fault of this program (T2, T3). */
import { Operation, TaskPatch, type Task, type TaskState, type TaskStatus } from "../proto/gen/messages.ts";
import { assert } from "../lib/assert.ts";
import { mayDesire, maySet, type TaskMover } from "./task.machine.ts";
import { observedState } from "./task.ts";

/** Moves a task to the state of `next`, or gives its state another text. */
export function moved(task: Task, by: TaskMover, next: TaskStatus, fields: Partial<TaskPatch> = {}): Operation {
  assertMaySet(task, by, next.state);
  return Operation.create({ task: TaskPatch.create({ id: task.id, status: next, ...fields }) });
}

export function assertMaySet(task: Task, by: TaskMover, state: TaskState): void {
  const from = observedState(task);
  // The claim is built only when needed: this runs for each assignment.
  if (!maySet(from, state, by)) assert(false, `T2: the ${by} may not move task ${task.id} from ${from} to ${state}`);
}

export function desired(task: Task, state: TaskState): Operation {
  assert(
    mayDesire(task.desiredState, state),
    `T3: task ${task.id} is desired ${task.desiredState}, and cannot be desired ${state}`,
  );
  return Operation.create({ task: TaskPatch.create({ id: task.id, desiredState: state }) });
}
