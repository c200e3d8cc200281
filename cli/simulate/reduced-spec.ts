/**
 * The part of a spec on which a rehearsal depends: placement, networks, ports, restarts and rollouts. The inside of tasks, such
 * as their command, environment, secrets, mounts and labels, is neither rehearsed nor saved.
 */
import { healthOf } from "../../machines/driver/health-spec.ts";
import {
  Annotations,
  ContainerSpec,
  Driver,
  Duration,
  EndpointSpec,
  HealthConfig,
  IPAMConfig,
  IPAMOptions,
  NetworkAttachmentConfig,
  NetworkSpec,
  Placement,
  PlacementPreference,
  PortConfig,
  ResourceRequirements,
  Resources,
  RestartPolicy,
  ServiceSpec,
  SpreadOver,
  TaskSpec,
  UpdateConfig,
} from "../../proto/gen/messages.ts";

/** Networks that each engine has; no task competes for them. */
const engineNetworks = new Set(["bridge", "host", "none"]);
/** Image of a service without one, such as a service of processes: its own, which a node lacks before its first task. */
const imageOf = (name: string): string => `process/${name.toLowerCase()}`;

/** `networkName`: the name of the network that an attachment names or has the id of. */
export function reducedSpec(spec: ServiceSpec, networkName: (target: string) => string = (name) => name): ServiceSpec {
  const { task } = spec;
  const networks = (task?.networks ?? [])
    .map(({ target }) => networkName(target))
    .filter((name) => !engineNetworks.has(name))
    .map((target) => NetworkAttachmentConfig.create({ target }));
  return ServiceSpec.create({
    annotations: Annotations.create({ name: spec.annotations?.name ?? "", labels: settingsOf(spec) }),
    task: TaskSpec.create({
      container: ContainerSpec.create({
        image: task?.container?.image ?? imageOf(spec.annotations?.name ?? ""),
        healthcheck: checkOf(task),
        stopGracePeriod: task?.container?.stopGracePeriod ?? null,
      }),
      resources: ResourceRequirements.create({
        limits: resourcesOf(task?.resources?.limits ?? null),
        reservations: resourcesOf(task?.resources?.reservations ?? null),
      }),
      restart: restartOf(task?.restart ?? null),
      placement: placementOf(task?.placement ?? null),
      networks,
    }),
    replicated: spec.replicated,
    global: spec.global,
    replicatedJob: spec.replicatedJob,
    globalJob: spec.globalJob,
    update: rolloutOf(spec.update),
    rollback: rolloutOf(spec.rollback),
    endpoint: EndpointSpec.create({
      mode: spec.endpoint?.mode ?? 0,
      ports: (spec.endpoint?.ports ?? []).map(({ protocol, targetPort, publishedPort, publishMode }) =>
        PortConfig.create({ protocol, targetPort, publishedPort, publishMode }),
      ),
    }),
  });
}

/** The part of a network that tasks compete for: its addresses. */
export function reducedNetwork(spec: NetworkSpec): NetworkSpec {
  const { annotations, driverConfig, ipv6Enabled, internal, attachable, ipam } = spec;
  return NetworkSpec.create({
    annotations: Annotations.create({ name: annotations?.name ?? "" }),
    driverConfig: Driver.create({ name: driverConfig?.name || "overlay" }),
    ipv6Enabled,
    internal,
    attachable,
    ipam:
      ipam === null
        ? null
        : IPAMOptions.create({
            driver: Driver.create({ name: ipam.driver?.name || "default" }),
            configs: ipam.configs.map(({ subnet, range, gateway }) => IPAMConfig.create({ subnet, range, gateway })),
          }),
  });
}

/** Labels by which rollouts and scheduled jobs are set; others might contain a password. */
function settingsOf(spec: ServiceSpec): Record<string, string> {
  const labels = Object.entries(spec.annotations?.labels ?? {});
  return Object.fromEntries(labels.filter(([label]) => label.startsWith("muster.")));
}

/** The same for a length that is not set, and one of 0. */
function lengthOf(duration: Duration | null): Duration {
  return Duration.create({ seconds: duration?.seconds ?? 0, nanos: duration?.nanos ?? 0 });
}

/** Keeps whether there is a check, and its timing; the command might contain a password. */
function checkOf(task: TaskSpec | null): HealthConfig | null {
  const container = task?.container?.healthcheck ?? null;
  const isOff = container === null || container.test.length === 0 || container.test[0] === "NONE";
  // A process's check is its agent's.
  const health = isOff ? healthOf(task) : container;
  if (health === null) return null;
  return HealthConfig.create({
    test: ["CMD", "healthcheck"],
    interval: lengthOf(health.interval),
    timeout: lengthOf(health.timeout),
    startPeriod: lengthOf(health.startPeriod),
    startInterval: health.startInterval,
    retries: health.retries,
  });
}

function resourcesOf(resources: Resources | null): Resources | null {
  const [nanoCpus, memoryBytes] = [resources?.nanoCpus ?? 0, resources?.memoryBytes ?? 0];
  return nanoCpus === 0 && memoryBytes === 0 ? null : Resources.create({ nanoCpus, memoryBytes });
}

function restartOf(restart: RestartPolicy | null): RestartPolicy | null {
  if (restart === null) return null;
  const { condition, delay, maxAttempts, window } = restart;
  return RestartPolicy.create({ condition, delay, maxAttempts, window });
}

function placementOf(placement: Placement | null): Placement {
  return Placement.create({
    constraints: placement?.constraints ?? [],
    preferences: (placement?.preferences ?? []).map(({ spread }) =>
      PlacementPreference.create({
        spread: SpreadOver.create({ spreadDescriptor: spread?.spreadDescriptor ?? "" }),
      }),
    ),
    maxReplicas: placement?.maxReplicas ?? 0,
  });
}

function rolloutOf(config: UpdateConfig | null): UpdateConfig | null {
  if (config === null) return null;
  const { parallelism, delay, failureAction, monitor, maxFailureRatio, order } = config;
  return UpdateConfig.create({
    parallelism,
    delay: lengthOf(delay),
    failureAction,
    monitor,
    maxFailureRatio,
    order,
  });
}
