/** Jobs for unit tests: created and changed as Control does it, so that iterations are counted. */
import { newService, updatedService } from "../../machines/orchestration/service-update.ts";
import {
  Annotations,
  Operation,
  ServiceSpec,
  StoreObject,
  TaskSpec,
  TaskState,
  Version,
  type Service,
} from "../../proto/gen/messages.ts";
import { execSpec, type TestCluster } from "./cluster.ts";
import { stateNames } from "../../machines/task.ts";

export function jobSpec(name = "job"): ServiceSpec {
  return ServiceSpec.create({ annotations: Annotations.create({ name }), task: execSpec() });
}

export function withLabels(labels: Readonly<Record<string, string>>): (spec: ServiceSpec) => ServiceSpec {
  return (spec) =>
    ServiceSpec.patch(spec, {
      annotations: Annotations.patch(spec.annotations ?? Annotations.create(), { labels: { ...labels } }),
    });
}

export async function addJob(
  cluster: TestCluster,
  fields: Partial<ServiceSpec>,
  task: Partial<TaskSpec> = {},
  name = "job",
): Promise<void> {
  const spec = ServiceSpec.patch(jobSpec(name), fields);
  const whole = ServiceSpec.patch(spec, { task: TaskSpec.patch(spec.task as TaskSpec, task) });
  const service = newService(name, whole, cluster.clock.now());
  await cluster.propose(Operation.create({ create: StoreObject.create({ service }) }));
}

export async function updateJob(
  cluster: TestCluster,
  change: (spec: ServiceSpec) => ServiceSpec,
  name = "job",
): Promise<void> {
  const stored = cluster.store.get("service", name) as Service;
  const version = stored.meta?.version ?? Version.create();
  const service = updatedService(stored, change(stored.spec as ServiceSpec), version, cluster.clock.now());
  await cluster.propose(Operation.create({ update: StoreObject.create({ service }) }));
}

/** Tasks that are completed or whose desired state was COMPLETED: `0:RUNNING@n1`. */
export function jobPicture(cluster: TestCluster, name = "job"): readonly string[] {
  return cluster
    .tasks(name)
    .filter((task) => task.desiredState <= TaskState.COMPLETE)
    .map((task) => `${task.slot}:${stateNames.get(task.status?.state ?? 0)}@${task.nodeId}`)
    .sort();
}
