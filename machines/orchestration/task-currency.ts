/** Whether a task is what its service now asks for; if not, the rollout would replace it. */
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
import { observedState } from "../task.ts";

function withoutCredentials(spec: TaskSpec | null): TaskSpec | null {
  const container = spec?.container ?? null;
  if (spec === null || container === null) return spec;
  return TaskSpec.patch(spec, { container: ContainerSpec.patch(container, { pullOptions: null }) });
}

/** A task of a service that is gone is never up to date. */
export function isUpToDate(task: Task, service: Service | undefined): boolean {
  if (service === undefined) return false;
  if ((task.specVersion?.index ?? -1) === (service.specVersion?.index ?? -1)) return true;
  const state = task.status?.state ?? TaskState.NEW;
  // Registry credentials no longer matter once the image was pulled.
  const isPulled = task.desiredState <= TaskState.RUNNING && state >= TaskState.READY && state <= TaskState.RUNNING;
  const wanted = service.spec?.task ?? null;
  const isSameTask = isPulled
    ? isSameMessage(withoutCredentials(task.spec), withoutCredentials(wanted))
    : isSameMessage(task.spec, wanted);
  return isSameTask && isSameMessage(task.endpoint?.spec ?? null, service.spec?.endpoint ?? null);
}

/**
 * Whether the tasks of one service are what it asks for now. Comparing two specs costs some 100 µs, and the tasks of a
 * service share few, so each pair is compared once.
 */
export class Currency {
  #service: ServiceSpec | null = null;
  #known = new Map<TaskSpec, Map<string, boolean>>();
  #movedOnly = new Map<TaskSpec, boolean>();

  isOutdated(task: Task, service: Service, nodeOf: (id: string) => Node | undefined): boolean {
    if ((task.specVersion?.index ?? 0) === (service.specVersion?.index ?? 0)) return false;
    const { spec } = task;
    if (spec === null || service.spec === null) return true;
    if (this.#service !== service.spec) {
      this.#service = service.spec;
      this.#known = new Map();
      this.#movedOnly = new Map();
    }
    if (this.#isCurrent(task, spec, service)) return false;
    // A change of placement alone leaves the tasks where they satisfy it.
    const node = task.nodeId === "" ? undefined : nodeOf(task.nodeId);
    if (node === undefined || !this.#differsInPlacementOnly(task, spec, service)) return true;
    return !meetsPlacement(service.spec.task?.placement ?? null, node);
  }

  #isCurrent(task: Task, spec: TaskSpec, service: Service): boolean {
    let verdicts = this.#known.get(spec);
    if (verdicts === undefined) this.#known.set(spec, (verdicts = new Map()));
    const state = observedState(task);
    const isPulled = task.desiredState <= TaskState.RUNNING && state >= TaskState.READY && state <= TaskState.RUNNING;
    const key = `${isPulled}/${endpointKey(task)}`;
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

/** What of a task's endpoint the comparison looks at. */
function endpointKey(task: Task): string {
  const spec = task.endpoint?.spec ?? null;
  if (spec === null) return "";
  return `${spec.mode};${spec.ports.map((port) => `${port.name},${port.protocol},${port.targetPort},${port.publishedPort},${port.publishMode}`).join(";")}`;
}
