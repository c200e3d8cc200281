/**
 * The expected verdict on a packet between two workloads, computed directly from docs/reference/felix-dataplane-protocol.md
 * §11: slow, plain, and independent of the driver's code.
 */
import { IPVersion, type PortRange, type Rule, type TierInfo } from "../../proto/gen/felix.ts";

export interface Packet {
  readonly protocol: "tcp" | "udp" | "icmp";
  readonly src: string;
  readonly dst: string;
  readonly sport: number;
  readonly port: number;
}

export interface PolicyWorld {
  readonly sets: ReadonlyMap<string, readonly string[]>;
  readonly policies: ReadonlyMap<string, { readonly inbound: readonly Rule[]; readonly outbound: readonly Rule[] }>;
  readonly profiles: ReadonlyMap<string, { readonly inbound: readonly Rule[]; readonly outbound: readonly Rule[] }>;
}

export interface Side {
  readonly tiers: readonly TierInfo[];
  readonly profiles: readonly string[];
}

export function isAllowed(world: PolicyWorld, from: Side, to: Side, packet: Packet): boolean {
  return passes(world, from, "outbound", packet) && passes(world, to, "inbound", packet);
}

function passes(world: PolicyWorld, side: Side, direction: "inbound" | "outbound", packet: Packet): boolean {
  for (const tier of side.tiers) {
    const entries = direction === "inbound" ? tier.ingressPolicies : tier.egressPolicies;
    const names = entries.map((entry) => Buffer.from(entry).toString());
    if (names.length === 0) continue;
    let verdict: Verdict = null;
    for (const name of names) {
      const policy = world.policies.get(name);
      verdict = policy === undefined ? "deny" : verdictOf(policy[direction], packet, world);
      if (verdict !== null) break;
    }
    if (verdict === "allow") return true;
    if (verdict !== "pass") return false;
  }
  for (const name of side.profiles) {
    const verdict = verdictOf(world.profiles.get(name)?.[direction] ?? [], packet, world);
    if (verdict === "allow") return true;
    if (verdict === "deny") return false;
  }
  return false;
}

type Verdict = "allow" | "deny" | "pass" | null;

function verdictOf(rules: readonly Rule[], packet: Packet, world: PolicyWorld): Verdict {
  for (const rule of rules) {
    if (rule.action === "log" || !matches(rule, packet, world)) continue;
    return rule.action === "" ? "allow" : (rule.action as "allow" | "deny" | "pass");
  }
  return null;
}

const numbers: Readonly<Record<string, number>> = { icmp: 1, tcp: 6, udp: 17, icmpv6: 58 };

function matches(rule: Rule, packet: Packet, world: PolicyWorld): boolean {
  const is6 = packet.dst.includes(":");
  const number = packet.protocol === "icmp" ? (is6 ? 58 : 1) : (numbers[packet.protocol] as number);
  const wanted = (name: string): boolean => numbers[name] === number;
  const inSet = (id: string, address: string): boolean => world.sets.get(id)?.includes(address) === true;
  const inRange = (ranges: readonly PortRange[], port: number): boolean =>
    packet.protocol !== "icmp" && ranges.some(({ first, last }) => port >= first && port <= last);
  const ofFamily = (nets: readonly string[]): readonly string[] => nets.filter((net) => net.includes(":") === is6);
  /** §11.1: a rule whose networks are all of the other family is ignored. */
  const isForeign = [rule.srcNet, rule.dstNet, rule.notSrcNet, rule.notDstNet].some(
    (nets) => nets.length > 0 && ofFamily(nets).length === 0,
  );
  if (isForeign) return false;
  if (rule.ipVersion === IPVersion.IPV4 && is6) return false;
  if (rule.ipVersion === IPVersion.IPV6 && !is6) return false;
  if (rule.protocol !== null && !wanted(rule.protocol.name ?? "")) return false;
  if (rule.notProtocol !== null && wanted(rule.notProtocol.name ?? "")) return false;
  if (rule.srcNet.length > 0 && !rule.srcNet.some((net) => isIn(net, packet.src))) return false;
  if (rule.dstNet.length > 0 && !rule.dstNet.some((net) => isIn(net, packet.dst))) return false;
  if (rule.notSrcNet.some((net) => isIn(net, packet.src))) return false;
  if (rule.notDstNet.some((net) => isIn(net, packet.dst))) return false;
  if (!rule.srcIpSetIds.every((id) => inSet(id, packet.src))) return false;
  if (!rule.dstIpSetIds.every((id) => inSet(id, packet.dst))) return false;
  if (rule.notSrcIpSetIds.some((id) => inSet(id, packet.src))) return false;
  if (rule.notDstIpSetIds.some((id) => inSet(id, packet.dst))) return false;
  if (rule.srcPorts.length > 0 && !inRange(rule.srcPorts, packet.sport)) return false;
  if (rule.dstPorts.length > 0 && !inRange(rule.dstPorts, packet.port)) return false;
  if (rule.notSrcPorts.length > 0 && inRange(rule.notSrcPorts, packet.sport)) return false;
  if (rule.notDstPorts.length > 0 && inRange(rule.notDstPorts, packet.port)) return false;
  return true;
}

/** The tests' prefixes end on whole bytes or groups of an address. */
function isIn(net: string, address: string): boolean {
  const [base = "", length = ""] = net.split("/");
  if (base.includes(":") !== address.includes(":")) return false;
  if (!base.includes(":")) {
    const parts = Number(length) / 8;
    return base.split(".").slice(0, parts).join(".") === address.split(".").slice(0, parts).join(".");
  }
  return Number(length) === 128 ? base === address : address.startsWith(base.replace(/::$/, ":"));
}
