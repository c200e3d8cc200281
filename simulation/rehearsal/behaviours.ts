/** How tasks behave, by what they run: each version of a service may have its own behaviour. */
import type { DriverTask } from "../../actors/agent/ports.ts";
import { containerDriver } from "../../machines/driver/container-task.ts";
import { isRunName } from "../../machines/orchestration/jobs/runs.ts";
import { ContainerSpec, GenericRuntimeSpec, type TaskSpec } from "../../proto/gen/messages.ts";
import type { BehaviourPlan, ServicePlan } from "./plan.ts";

/** Container runtimes without an image are not valid, so only other runtimes have this. */
const noImage = "";

interface Known {
  readonly runs: string;
  readonly behaviour: BehaviourPlan;
}

export class Behaviours {
  /** By service name, oldest first. */
  readonly #known = new Map<string, Known[]>();

  add({ behaviour, spec }: ServicePlan): void {
    const name = spec.annotations?.name ?? "";
    const runs = runtimeOf(spec.task);
    const others = (this.#known.get(name) ?? []).filter((known) => known.runs !== runs);
    this.#known.set(name, [...others, { runs, behaviour }]);
  }

  /**
   * The behaviour of the version that the task runs; the newest, if a manager changed the runtime. A run of a scheduled job, which
   * is a service of its own, behaves like the job. Null: nobody planned it.
   */
  of(task: DriverTask): BehaviourPlan | null {
    const known = this.#known.get(task.serviceName) ?? this.#scheduled(task.serviceName);
    if (known.length <= 1) return known[0]?.behaviour ?? null;
    const runs =
      task.container === undefined
        ? genericKey(task.payload?.value ?? new Uint8Array())
        : containerKey(task.container.spec);
    return (known.find((each) => each.runs === runs) ?? known.at(-1) ?? null)?.behaviour ?? null;
  }

  #scheduled(runName: string): readonly Known[] {
    for (const [name, known] of this.#known) if (isRunName(runName, name)) return known;
    return [];
  }
}

/** Name of the image, or of other artifacts, without which a node cannot start the task. */
export function artifactOf(task: DriverTask): string {
  const image = task.container?.spec.image ?? noImage;
  if (image !== noImage) return image;
  return `${task.serviceName} ${genericKey(task.payload?.value ?? new Uint8Array())}`;
}

/** The kinds of drivers that the tasks of these services need. */
export function driverKinds(services: readonly ServicePlan[]): ReadonlySet<string> {
  return new Set(services.map(({ spec }) => (spec.task?.generic == null ? containerDriver : spec.task.generic.kind)));
}

function runtimeOf(task: TaskSpec | null): string {
  if (task?.container != null) return containerKey(task.container);
  return genericKey((task?.generic ?? GenericRuntimeSpec.create()).payload?.value ?? new Uint8Array());
}

function containerKey(spec: ContainerSpec): string {
  return hex(ContainerSpec.encode(spec));
}

function genericKey(payload: Uint8Array): string {
  return hex(payload);
}

function hex(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString("hex");
}
