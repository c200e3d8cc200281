/** Small plans for rehearsals in tests. */
import {
  Annotations,
  GlobalJob,
  ReplicatedJob,
  ContainerSpec,
  Duration,
  ReplicatedService,
  ServiceSpec,
  TaskSpec,
  UpdateConfig,
  UpdateConfig_FailureAction,
} from "../../proto/gen/messages.ts";
import type {
  BehaviourPlan,
  ClusterPlan,
  NodeFailures,
  ScenarioPlan,
  ServicePlan,
  StepPlan,
} from "../../simulation/rehearsal/plan.ts";

/** Healthy tasks that start within seconds. */
export const behaviour: BehaviourPlan = {
  pull: { medianMs: 3_000, p99Ms: 8_000 },
  start: { medianMs: 1_000, p99Ms: 3_000 },
  stop: { medianMs: 500, p99Ms: 1_000 },
  startFailure: 0,
  meanLifeMs: null,
  run: null,
};

export function serviceOf(
  name: string,
  replicas: number,
  options: { readonly image?: string; readonly failureAction?: UpdateConfig_FailureAction } = {},
): ServicePlan {
  const { failureAction = UpdateConfig_FailureAction.PAUSE, image = `${name}:1` } = options;
  const update = UpdateConfig.create({ parallelism: 1, monitor: Duration.create({ seconds: 5 }), failureAction });
  const spec = ServiceSpec.create({
    annotations: Annotations.create({ name }),
    task: TaskSpec.create({ container: ContainerSpec.create({ image }) }),
    replicated: ReplicatedService.create({ replicas }),
    update,
    rollback: UpdateConfig.create({ parallelism: 1 }),
  });
  return { spec, behaviour };
}

/** A job with this many tasks, some of which run at the same time; 0: one on each node. `labels`: its settings. */
export function jobOf(
  name: string,
  tasks: number,
  options: { readonly concurrent?: number; readonly failure?: number; readonly labels?: Record<string, string> } = {},
): ServicePlan {
  const { concurrent = tasks, failure = 0, labels = {} } = options;
  const work =
    tasks === 0
      ? { globalJob: GlobalJob.create({}) }
      : { replicatedJob: ReplicatedJob.create({ maxConcurrent: concurrent, totalCompletions: tasks }) };
  const { spec } = serviceOf(name, 0);
  return {
    spec: ServiceSpec.create({ annotations: Annotations.create({ name, labels }), task: spec.task, ...work }),
    behaviour: { ...behaviour, run: { length: { medianMs: 20_000, p99Ms: 30_000 }, failure } },
  };
}

/** Nodes of 4 cores and 8 GiB in three racks, `r0` to `r2`, and three managers. */
export function clusterOf(
  nodes: number,
  services: readonly ServicePlan[],
  failures: NodeFailures | null = null,
): ClusterPlan {
  return {
    managers: 3,
    networks: [],
    services,
    nodes: Array.from({ length: nodes }, (_, at) => ({
      name: `worker-${at + 1}`,
      labels: { rack: `r${at % 3}` },
      nanoCpus: 4_000_000_000n,
      memoryBytes: 8n * 2n ** 30n,
      failures,
    })),
  };
}

export function scenarioOf(durationMs: number, steps: readonly StepPlan[]): ScenarioPlan {
  return { name: "test", description: "", durationMs, steps };
}
