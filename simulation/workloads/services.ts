/** Specs of services whose tasks simulated machines run. */
import {
  Annotations,
  Any,
  GenericRuntimeSpec,
  ReplicatedService,
  ServiceSpec,
  TaskSpec,
} from "../../proto/gen/messages.ts";

/** The GenericRuntimeSpec kind of simulated tasks. */
export const taskKind = "sim";

interface SimService extends Partial<Omit<ServiceSpec, "annotations" | "replicated" | "task">> {
  readonly name: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly task?: Partial<TaskSpec>;
  /** Absent: the service is not replicated. */
  readonly replicas?: number;
}

/** `payload` tells the machine how the task ends (machine.ts, drivers.ts); 1 is an ordinary task. */
export function simTask(payload: number | Uint8Array = 1): GenericRuntimeSpec {
  const value = typeof payload === "number" ? new Uint8Array([payload]) : payload;
  return GenericRuntimeSpec.create({ kind: taskKind, payload: Any.create({ type_url: "sim", value }) });
}

/** A service of ordinary tasks, unless `task` says otherwise. */
export function simService({ labels = {}, name, replicas, task = {}, ...fields }: SimService): ServiceSpec {
  return ServiceSpec.create({
    ...fields,
    annotations: Annotations.create({ name, labels }),
    task: TaskSpec.create({ generic: simTask(), ...task }),
    replicated: replicas === undefined ? null : ReplicatedService.create({ replicas }),
  });
}

export function scaledTo(spec: ServiceSpec, replicas: number): ServiceSpec {
  return ServiceSpec.patch(spec, { replicated: ReplicatedService.create({ replicas }) });
}

/** The same spec with its tasks replaced. */
export function updatedAgain(spec: ServiceSpec): ServiceSpec {
  const task = spec.task ?? TaskSpec.create();
  return ServiceSpec.patch(spec, { task: TaskSpec.patch(task, { forceUpdate: task.forceUpdate + 1 }) });
}
