/** Writes a plan as `cluster.yaml`: `readCluster` of the text gives the same plan again. */
import {
  EndpointSpec_ResolutionMode,
  PortConfig_Protocol,
  PortConfig_PublishMode,
  RestartPolicy_RestartCondition,
  UpdateConfig_FailureAction,
  UpdateConfig_UpdateOrder,
  type Duration,
  type HealthConfig,
  type NetworkSpec,
  type Placement,
  type PortConfig,
  type Resources,
  type RestartPolicy,
  type ServiceSpec,
  type UpdateConfig,
} from "../../proto/gen/messages.ts";
import type { BehaviourPlan, ClusterPlan, DurationPlan, ServicePlan } from "../../simulation/rehearsal/plan.ts";
import { yamlText } from "../stack/yaml.ts";
import { durationText } from "../values.ts";
import { bytesText, compact, msText, orNothing } from "./plain-values.ts";
import { behaviourKey } from "./read-behaviour.ts";
import { groupsOf } from "./write-nodes.ts";

/** `remarks`: comments at the top, one line each. */
export function writeCluster(plan: ClusterPlan, remarks: readonly string[] = []): string {
  const networks = plan.networks.map((network) => [network.annotations?.name ?? "", networkOf(network)] as const);
  const value = compact({
    managers: plan.managers,
    nodes: groupsOf(plan.nodes),
    networks: networks.length === 0 ? undefined : Object.fromEntries(networks),
    services: Object.fromEntries(plan.services.map((service) => [nameOf(service), serviceValue(service)] as const)),
  });
  return `${remarks.map((line) => `# ${line}\n`).join("")}${yamlText(escaped(value))}`;
}

/** The service's Compose syntax, as text with the service as its only entry. */
export function writeService(service: ServicePlan): string {
  return yamlText(escaped({ services: { [nameOf(service)]: serviceValue(service) } }));
}

function nameOf({ spec }: ServicePlan): string {
  return spec.annotations?.name ?? "";
}

/** Compose's dollar sign. */
function escaped(value: unknown): unknown {
  if (typeof value === "string") return value.replaceAll("$", "$$$$");
  if (Array.isArray(value)) return value.map(escaped);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, escaped(each)] as const));
}

function networkOf(network: NetworkSpec): Record<string, unknown> {
  const { driverConfig, ipam } = network;
  const ranges = (ipam?.configs ?? []).map(({ subnet, range, gateway }) =>
    compact({
      subnet: orNothing(subnet, subnet === ""),
      ip_range: orNothing(range, range === ""),
      gateway: orNothing(gateway, gateway === ""),
    }),
  );
  return compact({
    driver: orNothing(driverConfig?.name, (driverConfig?.name ?? "") === ""),
    internal: orNothing(true, !network.internal),
    attachable: orNothing(true, !network.attachable),
    enable_ipv6: orNothing(true, !network.ipv6Enabled),
    ipam: ipam === null ? undefined : { driver: ipam.driver?.name ?? "default", config: ranges },
  });
}

function serviceValue({ spec, behaviour }: ServicePlan): Record<string, unknown> {
  const { task } = spec;
  const container = task?.container ?? null;
  const networks = (task?.networks ?? []).map(({ target }) => target);
  const ports = spec.endpoint?.ports ?? [];
  return compact({
    image: container?.image ?? "",
    "x-muster": concurrencyOf(spec),
    networks: orNothing(networks, networks.length === 0),
    ports: orNothing(ports.map(portOf), ports.length === 0),
    healthcheck: container?.healthcheck == null ? undefined : healthOf(container.healthcheck),
    stop_grace_period: timeOf(container?.stopGracePeriod ?? null),
    deploy: deployOf(spec),
    [behaviourKey]: behaviourOf(behaviour),
  });
}

const protocols: Readonly<Record<number, string>> = {
  [PortConfig_Protocol.TCP]: "tcp",
  [PortConfig_Protocol.UDP]: "udp",
  [PortConfig_Protocol.SCTP]: "sctp",
};

function portOf({ protocol, targetPort, publishedPort, publishMode }: PortConfig): Record<string, unknown> {
  return compact({
    target: targetPort,
    published: orNothing(String(publishedPort), publishedPort === 0),
    protocol: protocols[protocol] ?? "tcp",
    mode: publishMode === PortConfig_PublishMode.HOST ? "host" : "ingress",
  });
}

function healthOf(health: HealthConfig): Record<string, unknown> {
  return compact({
    test: health.test,
    interval: timeOf(health.interval),
    timeout: timeOf(health.timeout),
    start_period: timeOf(health.startPeriod),
    start_interval: timeOf(health.startInterval),
    retries: health.retries,
  });
}

function timeOf(duration: Duration | null): string | undefined {
  return duration === null ? undefined : durationText(duration);
}

function deployOf(spec: ServiceSpec): Record<string, unknown> {
  const labels = spec.annotations?.labels ?? {};
  const resources = spec.task?.resources ?? null;
  const shares = compact({
    limits: resourcesOf(resources?.limits ?? null),
    reservations: resourcesOf(resources?.reservations ?? null),
  });
  return compact({
    ...modeOf(spec),
    labels: orNothing(labels, Object.keys(labels).length === 0),
    endpoint_mode: orNothing("dnsrr", spec.endpoint?.mode !== EndpointSpec_ResolutionMode.DNSRR),
    resources: orNothing(shares, Object.keys(shares).length === 0),
    restart_policy: restartOf(spec.task?.restart ?? null),
    placement: placementOf(spec.task?.placement ?? null),
    update_config: rolloutOf(spec.update),
    rollback_config: rolloutOf(spec.rollback),
  });
}

function modeOf(spec: ServiceSpec): Record<string, unknown> {
  if (spec.global !== null) return { mode: "global" };
  if (spec.globalJob !== null) return { mode: "global-job" };
  if (spec.replicatedJob !== null) return { mode: "replicated-job", replicas: spec.replicatedJob.totalCompletions };
  return { replicas: spec.replicated?.replicas ?? 1 };
}

/** By default, all tasks of a job run at the same time. */
function concurrencyOf({ replicatedJob: job }: ServiceSpec): Record<string, unknown> | undefined {
  if (job === null || job.maxConcurrent === job.totalCompletions) return undefined;
  return { max_concurrent: job.maxConcurrent };
}

function resourcesOf(resources: Resources | null): Record<string, unknown> | undefined {
  if (resources === null) return undefined;
  const { nanoCpus, memoryBytes } = resources;
  return compact({
    cpus: orNothing(nanoCpus / 1e9, nanoCpus === 0),
    memory: orNothing(bytesText(memoryBytes), memoryBytes === 0),
  });
}

const conditions: Readonly<Record<number, string>> = {
  [RestartPolicy_RestartCondition.NONE]: "none",
  [RestartPolicy_RestartCondition.ON_FAILURE]: "on-failure",
  [RestartPolicy_RestartCondition.ANY]: "any",
};

function restartOf(restart: RestartPolicy | null): Record<string, unknown> | undefined {
  if (restart === null) return undefined;
  const { condition, delay, maxAttempts, window } = restart;
  return compact({
    condition: conditions[condition] ?? "any",
    delay: timeOf(delay),
    max_attempts: orNothing(maxAttempts, maxAttempts === 0),
    window: timeOf(window),
  });
}

function placementOf(placement: Placement | null): Record<string, unknown> | undefined {
  if (placement === null) return undefined;
  const { constraints, preferences, maxReplicas } = placement;
  const value = compact({
    constraints: orNothing(constraints, constraints.length === 0),
    preferences: orNothing(
      preferences.map(({ spread }) => ({ spread: spread?.spreadDescriptor ?? "" })),
      preferences.length === 0,
    ),
    max_replicas_per_node: orNothing(maxReplicas, maxReplicas === 0),
  });
  return orNothing(value, Object.keys(value).length === 0);
}

const failureActions: Readonly<Record<number, string>> = {
  [UpdateConfig_FailureAction.PAUSE]: "pause",
  [UpdateConfig_FailureAction.CONTINUE]: "continue",
  [UpdateConfig_FailureAction.ROLLBACK]: "rollback",
};

function rolloutOf(config: UpdateConfig | null): Record<string, unknown> | undefined {
  if (config === null) return undefined;
  return compact({
    parallelism: config.parallelism,
    delay: timeOf(config.delay),
    failure_action: failureActions[config.failureAction] ?? "pause",
    monitor: timeOf(config.monitor),

    max_failure_ratio: config.maxFailureRatio,
    order: config.order === UpdateConfig_UpdateOrder.START_FIRST ? "start-first" : "stop-first",
  });
}

function behaviourOf({ pull, start, stop, startFailure, meanLifeMs, run }: BehaviourPlan): Record<string, unknown> {
  return compact({
    pull: drawnOf(pull),
    start: drawnOf(start),
    stop: drawnOf(stop),
    "start-failure": orNothing(startFailure, startFailure === 0),
    life: meanLifeMs === null ? undefined : msText(meanLifeMs),
    run: run === null ? undefined : drawnOf(run.length),
    "run-failure": run === null || run.failure === 0 ? undefined : run.failure,
  });
}

function drawnOf({ medianMs, p99Ms }: DurationPlan): unknown {
  return medianMs === p99Ms ? msText(medianMs) : { median: msText(medianMs), p99: msText(p99Ms) };
}
