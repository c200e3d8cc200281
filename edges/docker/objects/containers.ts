/** `/containers`: those of the cluster's tasks, wherever they run. */
import { TaskState, type Task } from "../../../proto/gen/messages.ts";
import type { Store } from "../../../runtime/store/store.ts";

/** One container, or process, of a task. */
interface TaskContainer {
  /** 64 hexadecimal digits, as of every container; derived from the task's id where the node has reported none. */
  readonly id: string;
  readonly name: string;
  readonly task: Task;
  readonly state: "created" | "running" | "exited" | "dead";
}

/** The states of a task in which it has, or had, a container. */
function stateOf({ status }: Task): TaskContainer["state"] | null {
  const state = status?.state ?? TaskState.NEW;
  if (state < TaskState.STARTING) return state >= TaskState.READY ? "created" : null;
  if (state === TaskState.STARTING) return "created";
  if (state === TaskState.RUNNING) return "running";
  return state >= TaskState.ORPHANED ? "dead" : "exited";
}

function nameOf(task: Task, store: Store): string {
  const service = store.get("service", task.serviceId);
  const name = service?.spec?.annotations?.name ?? task.serviceAnnotations?.name ?? "";
  return `${name}.${task.slot === 0 ? task.nodeId : task.slot}.${task.id}`;
}

/** A task of a process has no container: its id, in the form of one. */
function idOf({ id, status }: Task): string {
  return status?.container?.containerId || Buffer.from(id.padEnd(32, "-")).toString("hex").slice(0, 64);
}

export function* containersOf(store: Store, tasks: Iterable<Task> = store.all("task")): Iterable<TaskContainer> {
  for (const task of tasks) {
    const state = stateOf(task);
    if (state !== null && task.spec?.attachment == null)
      yield { id: idOf(task), name: nameOf(task, store), task, state };
  }
}
