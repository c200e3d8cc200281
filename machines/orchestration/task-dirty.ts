/** Decides whether a task is dirty (SwarmKit's `IsTaskDirty`): it differs from its service's spec, so a rollout replaces it. */
import {
  ContainerSpec,
  Task,
  TaskSpec,
  TaskState,
  type Node,
  type Service,
  type ServiceSpec,
} from "../../proto/gen/messages.ts";
import { isSameMessage } from "../same-message.ts";
import { meetsPlacement } from "../scheduling/constraints.ts";
import { isEnded, observedState, specVersionOf } from "../task.ts";

function withoutCredentials(spec: TaskSpec | null): TaskSpec | null {
  const container = spec?.container ?? null;
  if (spec === null || container === null) return spec;
  return TaskSpec.patch(spec, { container: ContainerSpec.patch(container, { pullOptions: null }) });
}

/** Registry credentials do not matter once the image is pulled. */
function hasPulled(task: Task): boolean {
  const state = observedState(task);
  return task.desiredState <= TaskState.RUNNING && state >= TaskState.READY && !isEnded(state);
}

/** False for a task whose service was removed. */
export function isUpToDate(task: Task, service: Service | undefined): boolean {
  if (service === undefined) return false;
  if ((task.specVersion?.index ?? -1) === (service.specVersion?.index ?? -1)) return true;
  const wanted = service.spec?.task ?? null;
  const isSameTask = hasPulled(task)
    ? isSameMessage(withoutCredentials(task.spec), withoutCredentials(wanted))
    : isSameMessage(task.spec, wanted);
  return isSameTask && isSameMessage(task.endpoint?.spec ?? null, service.spec?.endpoint ?? null);
}

/**
 * Tells which tasks of one service are dirty. Comparing two specs costs about 100 µs, and the tasks of a service share few
 * specs, so each pair is compared once.
 */
export class TaskDirty {
  #service: ServiceSpec | null = null;
  #compared = new Map<TaskSpec, Map<string, boolean>>();
  #movedOnly = new Map<TaskSpec, boolean>();

  isDirty(task: Task, service: Service, nodeOf: (id: string) => Node | undefined): boolean {
    if (specVersionOf(task) === specVersionOf(service)) return false;
    const { spec } = task;
    if (spec === null || service.spec === null) return true;
    if (this.#service !== service.spec) {
      this.#service = service.spec;
      this.#compared = new Map();
      this.#movedOnly = new Map();
    }
    if (this.#isCurrent(task, spec, service)) return false;
    // After a change of placement alone, tasks stay on nodes that still satisfy it.
    const node = task.nodeId === "" ? undefined : nodeOf(task.nodeId);
    if (node === undefined || !this.#differsInPlacementOnly(task, spec, service)) return true;
    return !meetsPlacement(service.spec.task?.placement ?? null, node);
  }

  #isCurrent(task: Task, spec: TaskSpec, service: Service): boolean {
    let verdicts = this.#compared.get(spec);
    if (verdicts === undefined) this.#compared.set(spec, (verdicts = new Map()));
    const key = `${hasPulled(task)}/${endpointKey(task)}`;
    let isCurrent = verdicts.get(key);
    if (isCurrent === undefined) verdicts.set(key, (isCurrent = isUpToDate(task, service)));
    return isCurrent;
  }

  #differsInPlacementOnly(task: Task, spec: TaskSpec, service: Service): boolean {
    let answer = this.#movedOnly.get(spec);
    if (answer === undefined) {
      const moved = TaskSpec.patch(spec, { placement: service.spec?.task?.placement ?? null });
      this.#movedOnly.set(spec, (answer = isUpToDate(Task.patch(task, { spec: moved }), service)));
    }
    return answer;
  }
}

/** The part of a task's endpoint that the comparison uses. */
function endpointKey(task: Task): string {
  const spec = task.endpoint?.spec ?? null;
  if (spec === null) return "";
  return `${spec.mode};${spec.ports.map((port) => `${port.name},${port.protocol},${port.targetPort},${port.publishedPort},${port.publishMode}`).join(";")}`;
}
