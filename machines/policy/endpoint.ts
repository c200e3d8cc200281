/** A dataplane's messages about one endpoint, given the policies that select it, and about the node as a whole. */
import {
  DataplaneConfig,
  DataplaneEndpoint,
  DataplaneHostEndpoint,
  DataplaneTier,
  type Tier,
} from "../../proto/gen/messages.ts";
import { parseAddress } from "../../lib/ip-address.ts";
import { allowProfile, type CompiledPolicy, type SetDefinition } from "./compile.ts";
import { interfacePrefix, type Chosen, type EndpointFact } from "./facts.ts";
import { compareOrder, defaultTier, defaultTierOrder, orderOf } from "./objects.ts";

/** The profile for services that name none, if the user has created one with this name. */
export const defaultProfile = "default";

export interface TierTable {
  get(name: string): Tier | undefined;
}

function tierOrder(tiers: TierTable, name: string): number {
  const tier = tiers.get(name);
  if (tier?.order !== undefined && tier.order !== null) return orderOf(tier.order);
  return name === defaultTier ? defaultTierOrder : Number.POSITIVE_INFINITY;
}

/** In evaluation order; only tiers with applicable policies. */
function tiersOf(policies: readonly CompiledPolicy[], tiers: TierTable): DataplaneTier[] {
  const byTier = Map.groupBy(policies, ({ tier }) => tier);
  return [...byTier]
    .map(([name, of]) => ({ name, order: tierOrder(tiers, name), of: of.toSorted(compareOrder) }))
    .toSorted(compareOrder)
    .map(({ name, of }) => {
      const ingress = of.filter((policy) => policy.ingress).map((policy) => policy.name);
      const egress = of.filter((policy) => policy.egress).map((policy) => policy.name);
      const defaultAction = tiers.get(name)?.defaultAction === "pass" ? "pass" : "deny";
      return DataplaneTier.create({ name, ingress, egress, defaultAction });
    });
}

/** The selecting policies that apply to the endpoint: only hosts have stages before the normal one. */
export function applicable(fact: EndpointFact, policies: readonly CompiledPolicy[]): readonly CompiledPolicy[] {
  return fact.isHost ? policies : policies.filter(({ stage }) => stage === "normal");
}

export function profilesOf(fact: EndpointFact, hasProfile: (name: string) => boolean): readonly string[] {
  if (fact.profiles !== null) return fact.profiles;
  return [hasProfile(defaultProfile) ? defaultProfile : allowProfile];
}

export function endpointMessage(
  fact: EndpointFact,
  policies: readonly CompiledPolicy[],
  profiles: readonly string[],
  tiers: TierTable,
): DataplaneEndpoint {
  const [v4, v6] = byFamily(fact.addresses);
  return DataplaneEndpoint.create({
    id: fact.id,
    taskId: fact.taskId,
    interface: fact.interface,
    ipv4Nets: v4.map((each) => `${each}/32`),
    ipv6Nets: v6.map((each) => `${each}/128`),
    profiles: [...profiles],
    tiers: tiersOf(applicable(fact, policies), tiers),
    active: true,
  });
}

export function hostEndpointMessage(
  fact: EndpointFact,
  policies: readonly CompiledPolicy[],
  tiers: TierTable,
): DataplaneHostEndpoint {
  const [v4, v6] = byFamily(fact.addresses);
  const staged = (stage: CompiledPolicy["stage"]) => policies.filter((policy) => policy.stage === stage);
  return DataplaneHostEndpoint.create({
    id: fact.id,
    interface: fact.interface,
    ipv4Addresses: v4,
    ipv6Addresses: v6,
    profiles: [...(fact.profiles ?? [])],
    tiers: tiersOf(staged("normal"), tiers),
    untrackedTiers: tiersOf(staged("untracked"), tiers),
    preDnatTiers: tiersOf(staged("pre-dnat"), tiers),
    forwardTiers: tiersOf(
      staged("normal").filter(({ isForward }) => isForward),
      tiers,
    ),
  });
}

function byFamily(addresses: readonly string[]): readonly [string[], string[]] {
  const v4 = addresses.filter((each) => parseAddress(each)?.family === 4);
  const v6 = addresses.filter((each) => parseAddress(each)?.family === 6);
  return [v4, v6];
}

/** The members that a chosen endpoint or service adds to the set. */
export function membersOf({ of, port, protocol }: SetDefinition, { addresses, ports }: Chosen): string[] {
  if (of === "addresses") return [...addresses];
  const wanted = of === "services" ? ports : ports.filter((each) => each.name === port && each.protocol === protocol);
  return addresses.flatMap((address) => wanted.map((each) => `${address},${each.protocol}:${each.port}`));
}

/**
 * Ports of a host that no policy closes: inbound SSH; outbound DNS; both ways DHCP, the managers', the bus's, and the tunnel's,
 * which has its own filter. Felix's parameters, in its form `proto:port`.
 */
const failsafeInbound = ["tcp:22", "tcp:2377", "tcp:4222", "tcp:6222", "udp:68", "udp:4789"] as const;
const failsafeOutbound = ["udp:53", "tcp:53", "udp:67", "tcp:2377", "tcp:4222", "tcp:6222", "udp:4789"] as const;

/** `managers`: addresses as `host:port`. A manager's port is a failsafe port even if it is not the default one. */
export function nodeConfig(managers: Iterable<string>): DataplaneConfig {
  const ports = [...managers].map((addr) => Number(/:(\d+)$/.exec(addr)?.[1] ?? 0)).filter((port) => port > 0);
  const own = [...new Set(ports)].toSorted((a, b) => a - b).map((port) => `tcp:${port}`);
  const list = (usual: readonly string[]): string => [...new Set([...usual, ...own])].join(",");
  return DataplaneConfig.create({
    values: {
      InterfacePrefix: interfacePrefix,
      FailsafeInboundHostPorts: list(failsafeInbound),
      FailsafeOutboundHostPorts: list(failsafeOutbound),
    },
  });
}
