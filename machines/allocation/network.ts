/**
 * Allocates a network's resources and writes them into the network object as SwarmKit does: the driver state with a VXLAN id
 * for each subnet, and the subnets with their gateways.
 *
 * Networks of node-local drivers get nothing: each node creates its own.
 */
import {
  Driver,
  IPAMConfig,
  IPAMConfig_AddressFamily,
  IPAMOptions,
  Network,
  type Cluster,
  type NetworkSpec,
} from "../../proto/gen/messages.ts";
import { containsAddress, parseAddress, parseCidr, type Prefix } from "../../lib/ip-address.ts";
import { AddressSpace } from "./addresses.ts";
import { networkDefaults } from "./network-defaults.ts";
import { cidrOf, SubnetSpace, type DefaultPools } from "./subnets.ts";
import { isVxlanId, vxlanIdLast, VxlanSpace } from "./vxlan.ts";

/** The driver whose networks span several nodes. */
export const overlayDriver = "overlay";
/** Network drivers that each node provides by itself: attaching to them takes no address from the cluster. */
export const nodeLocalDrivers: ReadonlySet<string> = new Set(["bridge", "host", "ipvlan", "macvlan", "null"]);
/** The only IPAM driver that the cluster implements, by Docker's name. */
export const ipamDriver = "default";
/** The driver option with the VXLAN ids of an overlay network, one for each subnet, separated by commas. */
export const vxlanIdOption = "com.docker.network.driver.overlay.vxlanid_list";

export function driverOf(network: Network): string {
  return network.driverState?.name || network.spec?.driverConfig?.name || overlayDriver;
}

export function isNodeLocal(network: Network): boolean {
  return nodeLocalDrivers.has(driverOf(network));
}

/** The driver state and, if the network needs any, its subnets are resolved. */
export function isAllocated(network: Network): boolean {
  if (network.driverState === null) return false;
  if (isNodeLocal(network)) return true;
  const { ipam } = network;
  return ipam !== null && ipam.configs.length > 0 && ipam.configs.every(({ subnet, gateway }) => subnet && gateway);
}

export function vxlanIdsOf(driver: Driver | null): readonly number[] {
  const list = driver?.options[vxlanIdOption] ?? "";
  return list === "" ? [] : list.split(",").map((id) => Number(id.trim()));
}

interface NetworkSpaces {
  readonly subnets: SubnetSpace;
  readonly vxlan: VxlanSpace;
  /** Name of a network, for messages. */
  readonly nameOf: (id: string) => string;
}

export type NetworkDecision =
  | { readonly kind: "allocated" }
  | { readonly kind: "network"; readonly network: Network }
  | { readonly kind: "blocked"; readonly reason: string };

/** The network object after allocation. Takes its resources from the spaces, or nothing if it is blocked. */
export function decideNetwork(network: Network, spaces: NetworkSpaces, defaults: DefaultPools): NetworkDecision {
  if (isAllocated(network)) return { kind: "allocated" };
  const name = driverOf(network);
  if (nodeLocalDrivers.has(name)) {
    // Engines dereference the IPAM options of every attachment.
    const ipam = IPAMOptions.create({ driver: Driver.create({}) });
    return { kind: "network", network: Network.patch(network, { driverState: Driver.create({ name }), ipam }) };
  }
  const decision = allocate(network, spaces, defaults);
  if (typeof decision !== "string") return { kind: "network", network: decision };
  spaces.subnets.release(network.id);
  spaces.vxlan.release(network.id);
  return { kind: "blocked", reason: decision };
}

function allocate(network: Network, spaces: NetworkSpaces, defaults: DefaultPools): Network | string {
  const { spec } = network;
  const name = driverOf(network);
  if (name !== overlayDriver) return `unknown network driver ${name}: managers allocate only ${overlayDriver} networks`;
  const management = spec?.ipam?.driver?.name || ipamDriver;
  if (management !== ipamDriver) return `unknown IPAM driver ${management}: managers have only "${ipamDriver}"`;
  const configs = allocateSubnets(network, spaces, defaults);
  if (typeof configs === "string") return configs;
  const ids = allocateVxlanIds(network, configs.length, spaces);
  if (typeof ids === "string") return ids;
  const options = { ...spec?.driverConfig?.options, ...network.driverState?.options };
  return Network.patch(network, {
    driverState: Driver.create({ name, options: { ...options, [vxlanIdOption]: ids.join(",") } }),
    ipam: IPAMOptions.create({
      driver: Driver.create({ name: management, options: spec?.ipam?.driver?.options ?? {} }),
      configs,
    }),
  });
}

function wantedConfigs(network: Network): readonly IPAMConfig[] {
  const resolved = network.ipam?.configs ?? [];
  const asked = resolved.length > 0 ? resolved : (network.spec?.ipam?.configs ?? []);
  return asked.length > 0 ? asked : [IPAMConfig.create({ family: IPAMConfig_AddressFamily.IPV4 })];
}

function allocateSubnets(
  network: Network,
  { subnets, nameOf }: NetworkSpaces,
  defaults: DefaultPools,
): readonly IPAMConfig[] | string {
  const configs: IPAMConfig[] = [];
  // Requested subnets first, so that none of them is allocated here.
  const wanted = wantedConfigs(network);
  const given = new Map<IPAMConfig, Prefix>();
  for (const config of wanted) {
    if (config.subnet === "") continue;
    const prefix = parseCidr(config.subnet);
    if (prefix === null) return `invalid subnet ${config.subnet}`;
    const conflict = subnets.conflict(prefix);
    if (conflict !== undefined) {
      const holder =
        conflict.owner === network.id ? "another subnet of the same network" : `network ${nameOf(conflict.owner)}`;
      return `its subnet ${config.subnet} overlaps with ${cidrOf(conflict.prefix)} of ${holder}`;
    }
    subnets.claim(network.id, prefix);
    given.set(config, prefix);
  }
  for (const config of wanted) {
    const prefix = given.get(config) ?? subnets.take(network.id, defaults);
    if (prefix === null) return `no subnet of /${defaults.length} is free in ${defaults.pools.join(", ")}`;
    const subnet = config.subnet === "" ? cidrOf(prefix) : config.subnet;
    const gateway = gatewayOf(IPAMConfig.patch(config, { subnet }), prefix);
    if (gateway === null) return `its subnet ${subnet} has no address left for a gateway`;
    configs.push(IPAMConfig.patch(config, { subnet, gateway }));
  }
  return configs;
}

/** The requested gateway, else the first usable address (of the range, if there is one). */
function gatewayOf(config: IPAMConfig, prefix: Prefix): string | null {
  if (config.gateway !== "") {
    const asked = parseAddress(config.gateway);
    return asked !== null && containsAddress(prefix, asked) ? config.gateway : null;
  }
  const first = new AddressSpace([config]).take();
  return first === null ? null : first.slice(0, first.indexOf("/"));
}

function allocateVxlanIds(
  network: Network,
  count: number,
  { vxlan, nameOf }: NetworkSpaces,
): readonly number[] | string {
  const resolved = vxlanIdsOf(network.driverState);
  const pinned = resolved.length > 0 ? resolved : vxlanIdsOf(network.spec?.driverConfig ?? null);
  const ids: number[] = [];
  for (const id of pinned.slice(0, count)) {
    if (!isVxlanId(id)) return `its VXLAN id ${id} is not between 1 and ${vxlanIdLast}`;
    if (ids.includes(id)) return `its VXLAN id ${id} is listed twice`;
    const owner = vxlan.owner(id);
    if (owner !== undefined && owner !== network.id) return `its VXLAN id ${id} is in use by network ${nameOf(owner)}`;
    vxlan.claim(network.id, id);
    ids.push(id);
  }
  while (ids.length < count) {
    const id = vxlan.take(network.id);
    if (id === null) return "no VXLAN id is free";
    ids.push(id);
  }
  return ids;
}

/** Records the resources of the stored network, except those that another network already holds. */
export function claimNetwork(network: Network, { subnets, vxlan }: NetworkSpaces): void {
  if (!isAllocated(network) || isNodeLocal(network)) return;
  for (const { subnet } of network.ipam?.configs ?? []) {
    const prefix = parseCidr(subnet);
    if (prefix === null || subnets.owns(network.id, prefix)) continue;
    subnets.claim(network.id, prefix);
    if (isDefault(network.spec)) subnets.continueAfter(prefix);
  }
  for (const id of vxlanIdsOf(network.driverState)) {
    if (vxlan.owner(id) !== undefined) continue;
    vxlan.claim(network.id, id);
    if (vxlanIdsOf(network.spec?.driverConfig ?? null).length === 0) vxlan.continueAfter(id);
  }
}

function isDefault(spec: NetworkSpec | null): boolean {
  return (spec?.ipam?.configs ?? []).every(({ subnet }) => subnet === "");
}

/** The cluster's default pools, or Swarm's. */
export function defaultPoolsOf(cluster: Cluster | undefined): DefaultPools {
  const pools = cluster?.defaultAddressPool ?? [];
  const { addressPools, subnetLength } = networkDefaults;
  return { pools: pools.length > 0 ? pools : addressPools, length: cluster?.subnetSize || subnetLength };
}

/** Why the network could not be allocated besides the existing ones; empty if it could. */
export function allocationProblem(network: Network, networks: Iterable<Network>, defaults: DefaultPools): string {
  const names = new Map<string, string>();
  const spaces: NetworkSpaces = {
    subnets: new SubnetSpace(),
    vxlan: new VxlanSpace(),
    nameOf: (id) => names.get(id) || id,
  };
  for (const other of networks) {
    names.set(other.id, other.spec?.annotations?.name ?? "");
    if (other.id !== network.id) claimNetwork(other, spaces);
  }
  const decision = decideNetwork(network, spaces, defaults);
  return decision.kind === "blocked" ? decision.reason : "";
}
