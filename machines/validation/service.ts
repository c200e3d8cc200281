/**
 * Checks of a service spec, in SwarmKit's order (the first failure is returned), and of what an update may not change.
 * Pure: other objects are passed in.
 *
 * V1: a spec that passes here can be turned into tasks without further checks.
 */
import {
  EndpointSpec_ResolutionMode,
  PortConfig_PublishMode,
  type EndpointSpec,
  type Network,
  type PortConfig,
  type Service,
  type ServiceSpec,
  type UpdateConfig,
} from "../../proto/gen/messages.ts";
import { checkJobLabels } from "../orchestration/jobs/labels.ts";
import { checkDnsName } from "../names.ts";
import { firstRefusal, invalid, refuse, type Refusal } from "../refusal.ts";
import { checkDisconnectLabels } from "../orchestration/on-disconnect.ts";
import { checkRolloutLabels } from "../orchestration/rollout/settings.ts";
import { isSameMessage } from "../same-message.ts";
import { isJob, modeOf } from "../orchestration/service-mode.ts";
import { checkTaskSpec, isNegative, wasNegative } from "./task-spec.ts";

const portMax = 65_535;

function checkMode(spec: ServiceSpec): Refusal | null {
  if (modeOf(spec) === null) return invalid("Unrecognized service mode");
  if (wasNegative(spec.replicated?.replicas ?? 0)) return invalid("Number of replicas must be non-negative");
  if (wasNegative(spec.replicatedJob?.maxConcurrent ?? 0))
    return invalid("Maximum concurrent jobs must not be negative");
  if (wasNegative(spec.replicatedJob?.totalCompletions ?? 0))
    return invalid("Total completed jobs must not be negative");
  if (isJob(spec) && spec.update !== null) return invalid("Jobs may not have an update config");
  return null;
}

function checkUpdateConfig(config: UpdateConfig | null, prefix: "update" | "rollback"): Refusal | null {
  if (config === null) return null;
  // SwarmKit reads it as a large number; re-encoded here it would become 0, which means all tasks at once.
  if (wasNegative(config.parallelism)) return invalid(`TaskSpec: ${prefix}-parallelism cannot be negative`);
  if (isNegative(config.delay)) return invalid(`TaskSpec: ${prefix}-delay cannot be negative`);
  if (isNegative(config.monitor)) return invalid(`TaskSpec: ${prefix}-monitor cannot be negative`);
  if (!(config.maxFailureRatio >= 0 && config.maxFailureRatio <= 1)) {
    return invalid(`TaskSpec: ${prefix}-maxfailureratio cannot be less than 0 or bigger than 1`);
  }
  return null;
}

function checkEndpoint(endpoint: EndpointSpec | null): Refusal | null {
  if (endpoint === null) return null;
  if (
    endpoint.mode === EndpointSpec_ResolutionMode.DNSRR &&
    endpoint.ports.some(({ publishMode }) => publishMode === PortConfig_PublishMode.INGRESS)
  ) {
    return invalid("EndpointSpec: port published with ingress mode can't be used with dnsrr mode");
  }
  const taken = new Set<string>();
  for (const { publishedPort, targetPort, protocol } of endpoint.ports) {
    // SwarmKit accepts these, and engines then reject the task.
    const wrong = [publishedPort, targetPort].find((port) => port > portMax);
    if (wrong !== undefined) return invalid(`EndpointSpec: invalid port ${wrong}: expected 1 to ${portMax}`);
    if (publishedPort === 0) continue;
    const key = `${publishedPort}/${protocol}`;
    if (taken.has(key)) return invalid("EndpointSpec: duplicate published ports provided");
    taken.add(key);
  }
  return null;
}

/** All checks that need only the spec. */
export function checkServiceSpec(spec: ServiceSpec | null): Refusal | null {
  if (spec === null) return invalid("invalid argument");
  const { task } = spec;
  return firstRefusal(
    () => checkDnsName(spec.annotations),
    () => (task === null ? invalid("TaskSpec: missing runtime") : checkTaskSpec(task)),
    () => checkMode(spec),
    () => (isJob(spec) ? null : checkUpdateConfig(spec.update, "update")),
    () => checkUpdateConfig(spec.rollback, "rollback"),
    () => checkEndpoint(spec.endpoint),
    () => checkJobLabels(spec),
    () => checkRolloutLabels(spec),
    () => checkDisconnectLabels(spec),
  );
}

/** `networkOf`: finds the network of a target: an id or a case-insensitive name. */
export function checkTaskNetworks(
  spec: ServiceSpec,
  networkOf: (target: string) => Network | undefined,
): Refusal | null {
  for (const { target } of [...(spec.task?.networks ?? []), ...spec.networks]) {
    const found = networkOf(target)?.spec;
    if (found?.ingress !== true) continue;
    const name = found.annotations?.name ?? "";
    return invalid(`Service cannot be explicitly attached to the ingress network "${name}"`);
  }
  return null;
}

function publishedPorts(endpoint: Pick<EndpointSpec, "ports"> | null): readonly PortConfig[] {
  return (endpoint?.ports ?? []).filter(({ publishedPort }) => publishedPort !== 0);
}

export function checkPortConflicts(spec: ServiceSpec, id: string, services: Iterable<Service>): Refusal | null {
  return portConflict(publishedPorts(spec.endpoint), id, services);
}

/** Checks the ports that the allocator has chosen since `before`: another service may have requested one of them meanwhile. */
export function checkChosenPorts(
  { endpoint, id, spec }: Service,
  before: Service | null,
  services: Iterable<Service>,
): Refusal | null {
  const known = [...publishedPorts(spec?.endpoint ?? null), ...publishedPorts(before?.endpoint ?? null)];
  const chosen = publishedPorts(endpoint).filter((port) => !known.some((other) => isSamePublished(port, other)));
  return portConflict(chosen, id, services);
}

function isSamePublished(a: PortConfig, b: PortConfig): boolean {
  return a.publishedPort === b.publishedPort && a.protocol === b.protocol;
}

/** Two services conflict if either publishes the port in ingress mode; host ports conflict only on the same node. */
function portConflict(wanted: readonly PortConfig[], id: string, services: Iterable<Service>): Refusal | null {
  if (wanted.length === 0) return null;
  for (const other of services) {
    if (other.id === id) continue;
    // Requested ports, and ports that the allocator has chosen.
    for (const theirs of [...publishedPorts(other.spec?.endpoint ?? null), ...publishedPorts(other.endpoint)]) {
      for (const ours of wanted) {
        if (!isSamePublished(ours, theirs)) continue;
        const isTheirsIngress = theirs.publishMode === PortConfig_PublishMode.INGRESS;
        if (!isTheirsIngress && ours.publishMode !== PortConfig_PublishMode.INGRESS) continue;
        const how = isTheirsIngress ? "as an ingress port" : "as a host-published port";
        const name = other.spec?.annotations?.name ?? "";
        return invalid(`port '${ours.publishedPort}' is already in use by service '${name}' (${other.id}) ${how}`);
      }
    }
  }
  return null;
}

/** Whether the service publishes ports in ingress mode. */
export function needsIngress({ endpoint }: ServiceSpec): boolean {
  return (endpoint?.ports ?? []).some(({ publishMode }) => publishMode === PortConfig_PublishMode.INGRESS);
}

export function checkIngressExists(spec: ServiceSpec, networks: () => Iterable<Network>): Refusal | null {
  if (!needsIngress(spec)) return null;
  for (const network of networks()) if (network.spec?.ingress === true) return null;
  return refuse("failed-precondition", "service needs ingress network, but no ingress network is present");
}

/** Refuses changes that no update may make. */
export function checkServiceUpdate(stored: Service, spec: ServiceSpec): Refusal | null {
  const before = stored.spec;
  const areNetworksChanged = !isSameMessage(spec.networks, before?.networks ?? []);
  if (areNetworksChanged && (spec.task?.networks.length ?? 0) === 0) {
    return refuse("unimplemented", "networks must be migrated to TaskSpec before being changed");
  }
  if (modeOf(before) !== modeOf(spec)) return refuse("unimplemented", "service mode change is not allowed");
  if (before?.annotations?.name !== spec.annotations?.name) {
    return refuse("unimplemented", "renaming services is not supported");
  }
  return null;
}
