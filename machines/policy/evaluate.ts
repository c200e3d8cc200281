/**
 * The reference implementation: what a dataplane with a given state does with a packet at one endpoint. Small and slow;
 * drivers are tested against it, and `muster policy explain` uses it. The order is that of
 * docs/reference/felix-dataplane-protocol.md §11: tiers, in each the policies in order, then the profiles; without a
 * decision, the packet is denied.
 */
import type {
  DataplaneEndpoint,
  DataplaneHostEndpoint,
  DataplaneIcmp,
  DataplanePeer,
  DataplanePorts,
  DataplaneRule,
  DataplaneTier,
} from "../../proto/gen/messages.ts";
import { containsAddress, parseAddress, parseCidr, type Address } from "../../lib/ip-address.ts";
import { policyKey, type NodeState } from "./node-state.ts";

/** The first packet of a connection. */
export interface Packet {
  readonly source: string;
  readonly destination: string;
  /** A number, or tcp, udp, icmp, icmpv6, sctp, udplite. */
  readonly protocol: string;
  /** For protocols with ports. */
  readonly sourcePort?: number;
  readonly destinationPort?: number;
  readonly icmpType?: number;
  readonly icmpCode?: number;
}

export type Direction = "ingress" | "egress";

export type VerdictReason =
  | { readonly kind: "policy"; readonly tier: string; readonly name: string; readonly rule: number }
  | { readonly kind: "profile"; readonly name: string; readonly rule: number }
  /** No policy of the tier decided. */
  | { readonly kind: "tier"; readonly tier: string }
  /** An endpoint names a policy or profile that the node's state lacks. */
  | { readonly kind: "missing"; readonly what: "policy" | "profile"; readonly name: string }
  | { readonly kind: "inactive" }
  | { readonly kind: "failsafe"; readonly port: string }
  /** The stage makes no decision and leaves it to the next one. */
  | { readonly kind: "nothing" };

export interface Verdict {
  readonly allowed: boolean;
  readonly by: VerdictReason;
}

const protocolNumbers: Readonly<Record<string, number>> = {
  icmp: 1,
  tcp: 6,
  udp: 17,
  icmpv6: 58,
  sctp: 132,
  udplite: 136,
};
const portedProtocols = new Set([6, 17, 132, 136]);

function protocolNumber(text: string): number {
  return protocolNumbers[text] ?? Number(text);
}

/** A packet to or from a task. */
export function evaluateEndpoint(
  state: NodeState,
  endpoint: DataplaneEndpoint,
  direction: Direction,
  packet: Packet,
): Verdict {
  if (!endpoint.active) return { allowed: false, by: { kind: "inactive" } };
  return (
    evaluateTiers(state, endpoint.tiers, direction, packet) ??
    evaluateProfiles(state, endpoint.profiles, direction, packet)
  );
}

/** Stages of a host endpoint, in the order of packets; each sees only what the previous one accepted. */
export type HostStage = "untracked" | "pre-dnat" | "forward" | "normal";

/** A packet received or sent by a node's own interface. Only the normal stage always decides. */
export function evaluateHostEndpoint(
  state: NodeState,
  endpoint: DataplaneHostEndpoint,
  direction: Direction,
  stage: HostStage,
  packet: Packet,
): Verdict {
  if (stage !== "forward") {
    const port = failsafe(state, direction, packet);
    if (port !== null) return { allowed: true, by: { kind: "failsafe", port } };
  }
  switch (stage) {
    case "untracked":
      return evaluateTiers(state, endpoint.untrackedTiers, direction, packet, false) ?? undecided;
    case "pre-dnat":
      return direction === "egress"
        ? undecided
        : (evaluateTiers(state, endpoint.preDnatTiers, direction, packet, false) ?? undecided);
    case "forward":
      return evaluateTiers(state, endpoint.forwardTiers, direction, packet) ?? undecided;
    case "normal":
      return (
        evaluateTiers(state, endpoint.tiers, direction, packet) ??
        evaluateProfiles(state, endpoint.profiles, direction, packet)
      );
  }
}

const undecided: Verdict = { allowed: true, by: { kind: "nothing" } };

/** `tcp:22`, or a bare port for TCP and UDP. */
function failsafe(state: NodeState, direction: Direction, packet: Packet): string | null {
  const name = direction === "ingress" ? "FailsafeInboundHostPorts" : "FailsafeOutboundHostPorts";
  const number = protocolNumber(packet.protocol);
  for (const entry of (state.config.values[name] ?? "").split(",")) {
    const [first = "", second] = entry.trim().split(":");
    const [protocol, port] = second === undefined ? ["", first] : [first, second];
    const isProtocol = protocol === "" ? number === 6 || number === 17 : protocolNumber(protocol) === number;
    if (port !== "" && isProtocol && packet.destinationPort === Number(port)) return entry.trim();
  }
  return null;
}

/** Null: left to the profiles. `ends`: whether a tier without a decision denies. */
function evaluateTiers(
  state: NodeState,
  tiers: readonly DataplaneTier[],
  direction: Direction,
  packet: Packet,
  ends = true,
): Verdict | null {
  for (const tier of tiers) {
    const names = direction === "ingress" ? tier.ingress : tier.egress;
    if (names.length === 0) continue;
    const verdict = evaluateTier(state, tier, names, direction, packet);
    if (verdict === "pass") continue;
    if (verdict !== null) return verdict;
    if (ends && tier.defaultAction !== "pass") return { allowed: false, by: { kind: "tier", tier: tier.name } };
  }
  return null;
}

function evaluateTier(
  state: NodeState,
  tier: DataplaneTier,
  names: readonly string[],
  direction: Direction,
  packet: Packet,
): Verdict | "pass" | null {
  for (const name of names) {
    const policy = state.policies.get(policyKey({ tier: tier.name, name }));
    if (policy === undefined) return { allowed: false, by: { kind: "missing", what: "policy", name } };
    const rules = direction === "ingress" ? policy.ingress : policy.egress;
    const rule = decidingRule(state, rules, packet);
    if (rule < 0) continue;
    const { action } = rules[rule] as DataplaneRule;
    if (action === "pass") return "pass";
    return { allowed: action === "allow", by: { kind: "policy", tier: tier.name, name, rule } };
  }
  return null;
}

function evaluateProfiles(state: NodeState, names: readonly string[], direction: Direction, packet: Packet): Verdict {
  for (const name of names) {
    const profile = state.profiles.get(name);
    if (profile === undefined) return { allowed: false, by: { kind: "missing", what: "profile", name } };
    const rules = direction === "ingress" ? profile.ingress : profile.egress;
    const rule = decidingRule(state, rules, packet);
    if (rule >= 0) return { allowed: rules[rule]?.action === "allow", by: { kind: "profile", name, rule } };
  }
  return { allowed: false, by: { kind: "nothing" } };
}

/** Index of the first matching rule that does more than log; -1 if there is none. */
function decidingRule(state: NodeState, rules: readonly DataplaneRule[], packet: Packet): number {
  return rules.findIndex((rule) => rule.action !== "log" && matchesRule(state, rule, packet));
}

function matchesRule(state: NodeState, rule: DataplaneRule, packet: Packet): boolean {
  const [source, destination] = [parseAddress(packet.source), parseAddress(packet.destination)];
  if (source === null || destination === null || source.family !== destination.family) return false;
  if (rule.ipVersion !== 0 && rule.ipVersion !== source.family) return false;
  const number = protocolNumber(packet.protocol);
  if (rule.protocol !== "" && protocolNumber(rule.protocol) !== number) return false;
  if (rule.notProtocol !== "" && protocolNumber(rule.notProtocol) === number) return false;
  if (rule.icmp !== null && !matchesIcmp(rule.icmp, packet)) return false;
  if (rule.notIcmp !== null && matchesIcmp(rule.notIcmp, packet)) return false;
  const ports = portedProtocols.has(number);
  return (
    matchesPeer(state, rule.source, packet.source, source, number, ports ? packet.sourcePort : undefined) &&
    matchesPeer(
      state,
      rule.destination,
      packet.destination,
      destination,
      number,
      ports ? packet.destinationPort : undefined,
    )
  );
}

function matchesIcmp({ type, code }: DataplaneIcmp, { icmpType, icmpCode }: Packet): boolean {
  return icmpType === type && (code === null || icmpCode === code.code);
}

function matchesPeer(
  state: NodeState,
  peer: DataplanePeer | null,
  text: string,
  address: Address,
  protocol: number,
  port: number | undefined,
): boolean {
  if (peer === null) return true;
  const isInNet = (net: string): boolean => {
    const prefix = parseCidr(net);
    return prefix !== null && containsAddress(prefix, address);
  };
  const isInPorts = (list: readonly DataplanePorts[]): boolean =>
    port !== undefined && list.some(({ first, last }) => port >= first && port <= last);
  const name = Object.keys(protocolNumbers).find((each) => protocolNumbers[each] === protocol) ?? String(protocol);
  const has = (id: string, member: string): boolean => state.sets.get(id)?.members.has(member) ?? false;
  const isInPortSets = (ids: readonly string[]): boolean =>
    port !== undefined && ids.some((id) => has(id, `${text},${name}:${port}`));
  if (peer.nets.length > 0 && !peer.nets.some(isInNet)) return false;
  if (peer.notNets.some(isInNet)) return false;
  if (peer.sets.some((id) => !has(id, text))) return false;
  if (peer.notSets.some((id) => has(id, text))) return false;
  if (peer.ports.length + peer.portSets.length > 0 && !isInPorts(peer.ports) && !isInPortSets(peer.portSets))
    return false;
  if (isInPorts(peer.notPorts) || isInPortSets(peer.notPortSets)) return false;
  return peer.serviceSets.length === 0 || isInPortSets(peer.serviceSets);
}
