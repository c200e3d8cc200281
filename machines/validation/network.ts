/** Checks of networks before they are created and removed. */
import type { Cluster, Driver, IPAMOptions, Network, NetworkSpec, Service, Task } from "../../proto/gen/messages.ts";
import {
  allocationProblem,
  defaultPoolsOf,
  ipamDriver,
  isNodeLocal,
  nodeLocalDrivers,
  overlayDriver,
  vxlanIdOption,
  vxlanIdsOf,
} from "../allocation/network.ts";
import { isVxlanId, vxlanIdLast } from "../allocation/vxlan.ts";
import { containsAddress, containsRange, parseAddress, parseCidr } from "../../lib/ip-address.ts";
import { checkDnsName } from "../names.ts";
import { isPredefined, predefinedLabel } from "../allocation/new-networks.ts";
import { firstRefusal, invalid, refuse, type Refusal } from "../refusal.ts";
import { useBy, type TasksOf, type Use } from "../orchestration/rollout/rollback-references.ts";
import { isEnded, isWanted, observedState } from "../task.ts";
import { needsIngress } from "./service.ts";

function checkIpam(ipam: IPAMOptions | null): Refusal | null {
  for (const { subnet, range, gateway } of ipam?.configs ?? []) {
    if (subnet === "") return invalid("ipam configuration: cannot be empty");
    const net = parseCidr(subnet);
    if (net === null) return invalid(`ipam configuration: invalid subnet ${subnet}`);
    if (range !== "") {
      const inner = parseCidr(range);
      if (inner === null) return invalid(`ipam configuration: invalid range ${range}`);
      if (!containsRange(net, inner)) {
        return invalid(`ipam configuration: subnet ${subnet} does not contain range ${range}`);
      }
    }
    if (gateway !== "") {
      const address = parseAddress(gateway);
      if (address === null) return invalid(`ipam configuration: invalid gateway ${gateway}`);
      if (!containsAddress(net, address)) {
        return invalid(`ipam configuration: subnet ${subnet} does not contain gateway ${gateway}`);
      }
    }
  }
  return null;
}

/** Managers run no network plugins, so only Docker's own drivers are available. */
function checkDriver(driver: Driver | null, isKnown: (name: string) => boolean): Refusal | null {
  if (driver === null) return null;
  if (driver.name === "") return invalid("driver name: if driver is specified name is required");
  return isKnown(driver.name) ? null : invalid(`error during lookup of plugin ${driver.name}`);
}

function checkDrivers(spec: NetworkSpec): Refusal | null {
  const refusal =
    checkDriver(spec.driverConfig, (name) => name === overlayDriver || nodeLocalDrivers.has(name)) ??
    checkDriver(spec.ipam?.driver ?? null, (name) => name.toLowerCase() === ipamDriver);
  if (refusal !== null) return refusal;
  for (const id of vxlanIdsOf(spec.driverConfig))
    if (!isVxlanId(id)) return invalid(`invalid driver option ${vxlanIdOption}: expected ids from 1 to ${vxlanIdLast}`);
  return null;
}

export function checkNetworkSpec(spec: NetworkSpec | null): Refusal | null {
  if (spec === null) return invalid("invalid argument");
  return firstRefusal(
    () =>
      spec.ingress && spec.driverConfig !== null && spec.driverConfig.name !== overlayDriver
        ? refuse("unimplemented", "only overlay driver is currently supported for ingress network")
        : null,
    () => (spec.ingress && spec.attachable ? invalid("ingress network cannot be attachable") : null),
    () => checkDnsName(spec.annotations),
    () =>
      spec.annotations?.labels[predefinedLabel] === undefined
        ? null
        : refuse(
            "permission-denied",
            `label ${predefinedLabel} is for internally created predefined networks and cannot be applied by users`,
          ),
    () => checkDrivers(spec),
    () => checkIpam(spec.ipam),
  );
}

export function isIngress(network: Network): boolean {
  return network.spec?.ingress === true;
}

/** A target is an id or a name. */
function attachesTo(targets: readonly { readonly target: string }[], network: Network): boolean {
  const name = network.spec?.annotations?.name.toLowerCase() ?? "";
  return targets.some(({ target }) => target === network.id || (name !== "" && target.toLowerCase() === name));
}

/**
 * Refuses subnets and VXLAN ids that another network already uses. Two simultaneous requests can both pass; the allocator
 * then serves one, and `muster why` explains what the other waits for.
 */
export function checkNetworkConflicts(
  network: Network,
  networks: Iterable<Network>,
  cluster: Cluster | undefined,
): Refusal | null {
  const { spec } = network;
  const requestsIds = (spec?.driverConfig?.options[vxlanIdOption] ?? "") !== "";
  const requestsSubnets = (spec?.ipam?.configs ?? []).some(({ subnet }) => subnet !== "");
  // The allocator chooses the rest itself.
  if (isNodeLocal(network) || (!requestsIds && !requestsSubnets)) return null;
  const problem = allocationProblem(network, networks, defaultPoolsOf(cluster));
  return problem === "" ? null : refuse("failed-precondition", `network cannot be created: ${problem}`);
}

/** A cluster has at most one ingress network. */
export function checkSingleIngress(spec: NetworkSpec, networks: Iterable<Network>): Refusal | null {
  if (!spec.ingress) return null;
  for (const network of networks)
    if (isIngress(network)) return refuse("already-exists", `ingress network (${network.id}) is already present`);
  return null;
}

/** `services`: all services. A service whose update may roll back to the network uses it, too. */
export function checkNetworkRemoval(network: Network, services: Iterable<Service>, tasksOf: TasksOf): Refusal | null {
  const name = network.spec?.annotations?.name ?? "";
  if (isPredefined(network)) {
    return refuse(
      "failed-precondition",
      `network ${network.id} (${name}) is a swarm predefined network and cannot be removed`,
    );
  }
  const why = (use: Use): string => (use === "now" ? "" : ": its update may be rolled back");
  for (const service of services) {
    const { id } = service;
    const asIngress = isIngress(network) ? useBy(service, tasksOf, needsIngress) : null;
    if (asIngress !== null) {
      const reason = `ingress network cannot be removed because service ${id} depends on it${why(asIngress)}`;
      return refuse("failed-precondition", reason);
    }
    const use = useBy(service, tasksOf, (spec) =>
      attachesTo([...(spec.task?.networks ?? []), ...spec.networks], network),
    );
    if (use !== null)
      return refuse("failed-precondition", `network ${network.id} is in use by service ${id}${why(use)}`);
  }
  return null;
}

/**
 * `tasks`: all tasks; `isLost`: whether the node is DOWN. A stopping task uses its network until it has stopped, otherwise its
 * address could be in use twice. A task stopping on a lost node does not keep the network, since its end will not be
 * reported: its addresses stay reserved until it is orphaned (N3 of networks.ts).
 */
export function checkNetworkUnused(
  network: Network,
  tasks: Iterable<Task>,
  isLost: (nodeId: string) => boolean,
): Refusal | null {
  for (const task of tasks) {
    if (isEnded(observedState(task))) continue;
    if (!isWanted(task) && isLost(task.nodeId)) continue;
    const isAttached = task.networks.some((attachment) => attachment.network?.id === network.id);
    if (isAttached || (isWanted(task) && attachesTo(task.spec?.networks ?? [], network))) {
      return refuse("failed-precondition", `network ${network.id} is in use by task ${task.id}`);
    }
  }
  return null;
}
