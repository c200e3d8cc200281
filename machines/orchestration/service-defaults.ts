/** SwarmKit's defaults for unset fields of a service. Shown on request; the stored spec never changes. */
import {
  ContainerSpec,
  ContainerSpec_DNSConfig,
  ContainerSpec_PullOptions,
  Duration,
  Placement,
  ResourceRequirements,
  RestartPolicy,
  RestartPolicy_RestartCondition,
  Service,
  ServiceSpec,
  TaskSpec,
  UpdateConfig,
} from "../../proto/gen/messages.ts";
import { isJob } from "./service-mode.ts";

/** SwarmKit's, in seconds: from the stop signal to the kill, between restarts, and of monitoring a new task. */
const stopGraceSeconds = 10;
const restartDelaySeconds = 5;
const monitorSeconds = 5;

function withUpdateDefaults(config: UpdateConfig | null): UpdateConfig {
  const monitor = Duration.create({ seconds: monitorSeconds });
  if (config === null) return UpdateConfig.create({ parallelism: 1, delay: Duration.create({}), monitor });
  return config.monitor === null ? UpdateConfig.patch(config, { monitor }) : config;
}

function withRestartDefaults(policy: RestartPolicy | null): RestartPolicy {
  const delay = Duration.create({ seconds: restartDelaySeconds });
  if (policy === null) {
    return RestartPolicy.create({
      condition: RestartPolicy_RestartCondition.ANY,
      delay,
      maxAttempts: 0,
    });
  }
  return policy.delay === null ? RestartPolicy.patch(policy, { delay }) : policy;
}

function withContainerDefaults(container: ContainerSpec): ContainerSpec {
  return ContainerSpec.patch(container, {
    stopGracePeriod: container.stopGracePeriod ?? Duration.create({ seconds: stopGraceSeconds }),
    pullOptions: container.pullOptions ?? ContainerSpec_PullOptions.create({}),
    dnsConfig: container.dnsConfig ?? ContainerSpec_DNSConfig.create({}),
  });
}

export function withDefaults(service: Service): Service {
  const { spec } = service;
  if (spec === null) return service;
  const task = spec.task ?? TaskSpec.create({});
  const full = TaskSpec.patch(task, {
    container: task.container === null ? null : withContainerDefaults(task.container),
    resources: task.resources ?? ResourceRequirements.create({}),
    restart: withRestartDefaults(task.restart),
    placement: task.placement ?? Placement.create({}),
  });
  // A job has no rollouts, and must not have an update config.
  const rollout = isJob(spec)
    ? {}
    : { update: withUpdateDefaults(spec.update), rollback: withUpdateDefaults(spec.rollback) };
  return Service.patch(service, { spec: ServiceSpec.patch(spec, { task: full, ...rollout }) });
}
