/** A cluster for rollouts: services whose tasks fail on demand, and a rollout's progress as text. */
import { controlRollout } from "../../actors/orchestration/rollout-control.ts";
import { rolledBackService } from "../../machines/orchestration/service-update.ts";
import {
  Annotations,
  ControlRolloutRequest,
  ControlRolloutRequest_Action,
  ContainerStatus,
  Operation,
  ServiceSpec,
  StoreObject,
  TaskPatch,
  TaskSpec,
  TaskState,
  TaskStatus,
  UpdateConfig,
  UpdateConfig_FailureAction,
  UpdateConfig_UpdateOrder,
  UpdateStatus_UpdateState,
  type ControlRolloutResponse,
  type Task,
} from "../../proto/gen/messages.ts";
import { timestampOf } from "../../proto/time.ts";
import { testCluster, type TestCluster } from "../support/cluster.ts";
import { call } from "../support/manager.ts";

export const { PAUSE, RESUME, STEP, ABORT, LOOK } = ControlRolloutRequest_Action;
export const { ROLLBACK, CONTINUE } = UpdateConfig_FailureAction;
export const { START_FIRST } = UpdateConfig_UpdateOrder;

const stateNames = new Map<number, string>(
  Object.entries(UpdateStatus_UpdateState).map(([name, number]) => [number, name]),
);

interface Options {
  readonly replicas?: number;
  readonly update?: Partial<UpdateConfig>;
  readonly rollback?: Partial<UpdateConfig>;
  readonly labels?: Readonly<Record<string, string>>;
  readonly task?: Partial<TaskSpec>;
  readonly nodes?: readonly string[];
}

/** A running service `web`; its tasks fail if `bad` returns true. */
export async function started(options: Options = {}): Promise<TestCluster & { bad: Set<number> }> {
  const cluster = await testCluster(options.nodes ?? ["n1"]);
  const bad = new Set<number>();
  cluster.outcome = (task) => (bad.has(task.spec?.forceUpdate ?? 0) ? TaskState.FAILED : undefined);
  await cluster.addService("web", options.replicas ?? 4, options.task ?? {}, {
    annotations: Annotations.create({ name: "web", labels: options.labels ?? {} }),
    ...(options.update === undefined ? {} : { update: UpdateConfig.create(options.update) }),
    ...(options.rollback === undefined ? {} : { rollback: UpdateConfig.create(options.rollback) }),
  });
  return Object.assign(cluster, { bad });
}

export function forced(count: number): (spec: ServiceSpec) => ServiceSpec {
  return (spec) => ServiceSpec.patch(spec, { task: TaskSpec.patch(spec.task as TaskSpec, { forceUpdate: count }) });
}

export function status(cluster: TestCluster): string {
  const { state, message } = cluster.store.get("service", "web")?.updateStatus ?? { state: -1, message: "" };
  return `${stateNames.get(state) ?? "none"}: ${message.replaceAll(/task [0-9a-z]{25}/g, "task T")}`;
}

/** ForceUpdate of each slot's wanted running task, in slot order: `1 1 0 0`; a slot without one is omitted. */
export function versions(cluster: TestCluster): string {
  return wanted(cluster)
    .filter((task) => task.status?.state === TaskState.RUNNING)
    .map((task) => task.spec?.forceUpdate)
    .join(" ");
}

export function wanted(cluster: TestCluster): readonly Task[] {
  return cluster
    .tasks()
    .filter((task) => task.desiredState <= TaskState.RUNNING)
    .sort((a, b) => a.slot - b.slot);
}

export async function act(cluster: TestCluster, action: ControlRolloutRequest_Action): Promise<ControlRolloutResponse> {
  const answer = await controlRollout(cluster.env, ControlRolloutRequest.create({ service: "web", action }), call());
  await cluster.run();
  return answer;
}

/** As an agent would: with the error that a user should see. */
export async function fail(cluster: TestCluster, task: Task, err: string): Promise<void> {
  const time = timestampOf(cluster.clock.now());
  const container = ContainerStatus.create({ exitCode: 1 });
  const failed = TaskStatus.create({ state: TaskState.FAILED, err, timestamp: time, appliedAt: time, container });
  await cluster.propose(
    Operation.create({ task: TaskPatch.create({ id: task.id, status: failed }), reporter: task.nodeId }),
  );
}

export async function rollBackByHand(cluster: TestCluster): Promise<void> {
  const back = rolledBackService(cluster.store.get("service", "web")!, cluster.clock.now());
  if (back.kind === "refused") throw new Error(back.refusal.message);
  await cluster.propose(Operation.create({ update: StoreObject.create({ service: back.service }) }));
}
