/**
 * Checks of policy objects, for `muster policy apply` (which adds the file and line) and for Control (any client's resource).
 * Paths are those of the YAML form, so that both name the same key.
 */
import type {
  DataplaneIcmp,
  DataplanePorts,
  HostEndpoint,
  NetworkPolicy,
  NetworkProfile,
  PolicyPeer,
  PolicyRule,
  PolicySelector,
  Resource,
  Tier,
} from "../../proto/gen/messages.ts";
import { parseAddress, parseCidr } from "../../lib/ip-address.ts";
import { invalid, type Refusal } from "../refusal.ts";
import { isPolicyKind, readPolicyObject, resourceNameOf, type PolicyObject } from "./objects.ts";
import { parseSelector } from "./selector.ts";

/** `problem` continues the path: `spec.order must be …`. */
interface Problem {
  readonly path: string;
  readonly problem: string;
}

/** As long as SwarmKit's names; no spaces or slashes, because kernels and drivers derive names from them. */
const namePattern = /^[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?$/i;
/** Prefix of names that are reserved for the cluster. */
export const reservedPrefix = "muster.";
/** Limits of one object: more than a person maintains, and small enough for one update to a driver. */
const rulesMax = 1_000;
const entriesMax = 1_000;

/** Names of service ports that rules can refer to. */
export const portNamePattern = /^[\w.-]{1,63}$/;

const protocolNames = ["tcp", "udp", "icmp", "icmpv6", "sctp", "udplite"];
const portProtocols = ["tcp", "udp", "sctp", "udplite", "6", "17", "132", "136"];
const namedPortProtocols = ["tcp", "udp", "sctp"];
const actions = ["allow", "deny", "pass", "log"];

class Found extends Error {
  readonly problem: Problem;
  constructor(path: string, problem: string) {
    super(problem);
    this.problem = { path, problem };
  }
}

function demand(holds: boolean, path: string, problem: string): asserts holds {
  if (!holds) throw new Found(path, problem);
}

/** The object's first problem, or null. */
export function checkPolicyObject(of: PolicyObject): Problem | null {
  try {
    checkName(of.object.name, "metadata.name");
    switch (of.kind) {
      case "NetworkPolicy":
        checkPolicy(of.object);
        break;
      case "NetworkProfile":
        checkProfile(of.object);
        break;
      case "HostEndpoint":
        checkHostEndpoint(of.object);
        break;
      case "Tier":
        checkTier(of.object);
    }
    return null;
  } catch (error) {
    if (error instanceof Found) return error.problem;
    throw error;
  }
}

/** For Control. Resources of other kinds are not checked. */
export function checkPolicyResource(resource: Pick<Resource, "annotations" | "kind" | "payload">): Refusal | null {
  if (!isPolicyKind(resource.kind)) return null;
  const object = readPolicyObject(resource);
  if (object === null) return invalid(`invalid payload: expected a muster.v1.${resource.kind}`);
  if (resource.annotations?.name !== resourceNameOf(object.kind, object.object.name))
    return invalid(
      `invalid resource name: a ${object.kind} named '${object.object.name}' requires ${resource.kind}.NAME`,
    );
  const found = checkPolicyObject(object);
  return found === null ? null : invalid(`${found.path} ${found.problem}`);
}

function checkName(name: string, path: string): void {
  demand(
    namePattern.test(name),
    path,
    `must be 1 to 63 letters, digits, '.', '_' or '-', with a letter or digit at both ends, not '${name}'`,
  );
  demand(!name.startsWith(reservedPrefix), path, `must not begin with '${reservedPrefix}'`);
}

function checkSelector(text: string, path: string): void {
  const outcome = parseSelector(text);
  if (outcome.kind === "invalid") throw new Found(path, `${outcome.problem} (character ${outcome.at})`);
}

function checkPolicy(policy: NetworkPolicy): void {
  if (policy.tier !== "") checkName(policy.tier, "spec.tier");
  checkOrder(policy.order?.value ?? 0, "spec.order");
  checkSelector(policy.selector, "spec.selector");
  demand(policy.appliesIngress || policy.appliesEgress, "spec.types", "must name ingress, egress or both");
  demand(
    policy.appliesIngress || policy.ingress.length === 0,
    "spec.ingress",
    "has rules, but spec.types lacks ingress",
  );
  demand(policy.appliesEgress || policy.egress.length === 0, "spec.egress", "has rules, but spec.types lacks egress");
  demand(!policy.preDnat || !policy.doNotTrack, "spec.preDNAT", "cannot be combined with doNotTrack");
  demand(!policy.preDnat || !policy.appliesEgress, "spec.types", "must be only ingress with preDNAT");
  for (const [key, isSet] of [
    ["spec.doNotTrack", policy.doNotTrack],
    ["spec.preDNAT", policy.preDnat],
  ] as const)
    demand(
      !isSet || policy.applyOnForward,
      key,
      "needs applyOnForward: true, because it also applies to forwarded packets",
    );
  checkRules(policy.ingress, "spec.ingress", true);
  checkRules(policy.egress, "spec.egress", true);
}

function checkProfile(profile: NetworkProfile): void {
  checkRules(profile.ingress, "spec.ingress", false);
  checkRules(profile.egress, "spec.egress", false);
}

function checkHostEndpoint(endpoint: HostEndpoint): void {
  demand(endpoint.node !== "", "spec.node", "must name a node");
  demand(
    endpoint.interface === "*" || /^[^\s/*]{0,15}$/.test(endpoint.interface),
    "spec.interface",
    `must be the name of an interface, or '*', not '${endpoint.interface}'`,
  );
  demand(
    endpoint.interface !== "" || endpoint.expectedAddresses.length > 0,
    "spec",
    "must have an interface or expectedAddresses",
  );
  for (const [at, address] of endpoint.expectedAddresses.entries())
    demand(parseAddress(address) !== null, `spec.expectedAddresses[${at}]`, `must be an IP address, not '${address}'`);
  for (const [at, name] of endpoint.profiles.entries()) checkName(name, `spec.profiles[${at}]`);
}

function checkTier(tier: Tier): void {
  checkOrder(tier.order?.value ?? 0, "spec.order");
  demand(
    ["", "deny", "pass"].includes(tier.defaultAction),
    "spec.defaultAction",
    `must be deny or pass, not '${tier.defaultAction}'`,
  );
}

function checkOrder(order: number, path: string): void {
  demand(Number.isFinite(order), path, "must be a number");
}

function checkRules(rules: readonly PolicyRule[], path: string, isPolicy: boolean): void {
  demand(rules.length <= rulesMax, path, `has more than ${rulesMax} rules`);
  for (const [at, rule] of rules.entries()) checkRule(rule, `${path}[${at}]`, isPolicy);
}

function checkRule(rule: PolicyRule, path: string, isPolicy: boolean): void {
  demand(actions.includes(rule.action), `${path}.action`, `must be allow, deny, pass or log, not '${rule.action}'`);
  demand(isPolicy || rule.action !== "pass", `${path}.action`, "cannot be pass in a profile: nothing comes after it");
  demand([0, 4, 6].includes(rule.ipVersion), `${path}.ipVersion`, `must be 4 or 6, not ${rule.ipVersion}`);
  checkProtocol(rule.protocol, `${path}.protocol`);
  checkProtocol(rule.notProtocol, `${path}.notProtocol`);
  checkIcmp(rule, rule.icmp, `${path}.icmp`);
  checkIcmp(rule, rule.notIcmp, `${path}.notICMP`);
  checkPeer(rule, rule.source, `${path}.source`, false);
  checkPeer(rule, rule.destination, `${path}.destination`, true);
  demand(familyOf(rule) !== "none", path, "can never match: it requires both IPv4 and IPv6");
}

function checkProtocol(protocol: string, path: string): void {
  const isNumber = /^[1-9]\d{0,2}$/.test(protocol) && Number(protocol) <= 255;
  demand(
    protocol === "" || protocolNames.includes(protocol) || isNumber,
    path,
    `must be ${protocolNames.join(", ")} or a number from 1 to 255, not '${protocol}'`,
  );
}

function checkIcmp(rule: PolicyRule, icmp: DataplaneIcmp | null, path: string): void {
  if (icmp === null) return;
  demand(["icmp", "icmpv6"].includes(rule.protocol), path, "needs protocol: icmp or icmpv6");
  demand(icmp.type <= 254, `${path}.type`, `must be 0 to 254, not ${icmp.type}`);
  demand((icmp.code?.code ?? 0) <= 255, `${path}.code`, `must be 0 to 255, not ${icmp.code?.code}`);
}

function checkPeer(rule: PolicyRule, peer: PolicyPeer | null, path: string, isDestination: boolean): void {
  if (peer === null) return;
  const selectors: readonly (readonly [string, PolicySelector | null])[] = [
    ["selector", peer.selector],
    ["notSelector", peer.notSelector],
    ["serviceSelector", peer.services],
  ];
  for (const [key, selector] of selectors) if (selector !== null) checkSelector(selector.text, `${path}.${key}`);
  checkNets(peer.nets, `${path}.nets`);
  checkNets(peer.notNets, `${path}.notNets`);
  checkPorts(peer.ports, `${path}.ports`);
  checkPorts(peer.notPorts, `${path}.notPorts`);
  const [named, plain] = [
    [...peer.namedPorts, ...peer.notNamedPorts],
    [...peer.ports, ...peer.notPorts],
  ];
  for (const name of named)
    demand(
      portNamePattern.test(name),
      `${path}.ports`,
      `must name a port with 1 to 63 letters, digits, '.', '_' or '-', not '${name}'`,
    );
  demand(
    plain.length + named.length === 0 || portProtocols.includes(rule.protocol),
    `${path}.ports`,
    "need protocol: tcp, udp, sctp or udplite",
  );
  demand(
    named.length === 0 || namedPortProtocols.includes(rule.protocol),
    `${path}.ports`,
    "with names need protocol: tcp, udp or sctp",
  );
  if (peer.services === null) return;
  demand(isDestination, `${path}.serviceSelector`, "is only allowed in a destination");
  demand(
    plain.length + named.length === 0,
    `${path}.ports`,
    "cannot be combined with serviceSelector, which implies the ports",
  );
}

function checkNets(nets: readonly string[], path: string): void {
  demand(nets.length <= entriesMax, path, `has more than ${entriesMax} entries`);
  for (const [at, net] of nets.entries())
    demand(
      parseAddress(net) !== null || parseCidr(net) !== null,
      `${path}[${at}]`,
      `must be an IP address or a CIDR, not '${net}'`,
    );
}

function checkPorts(ports: readonly DataplanePorts[], path: string): void {
  demand(ports.length <= entriesMax, path, `has more than ${entriesMax} entries`);
  for (const [at, { first, last }] of ports.entries()) {
    demand(last <= 65_535, `${path}[${at}]`, `must be 0 to 65535, not ${last}`);
    demand(first <= last, `${path}[${at}]`, `must not begin after its end: ${first}:${last}`);
  }
}

/**
 * The IP family that a rule can match, 0 for both: from its ipVersion, its protocol, and lists of nets that are all of one
 * family (a packet of the other family then never matches the rule, not even a negated list).
 */
export function familyOf(rule: PolicyRule): 0 | 4 | 6 | "none" {
  const families = new Set<number>();
  if (rule.ipVersion !== 0) families.add(rule.ipVersion);
  if (["icmp", "1"].includes(rule.protocol)) families.add(4);
  if (["icmpv6", "58"].includes(rule.protocol)) families.add(6);
  for (const peer of [rule.source, rule.destination]) {
    for (const nets of [peer?.nets ?? [], peer?.notNets ?? []]) {
      const of = new Set(nets.map((net) => (net.includes(":") ? 6 : 4)));
      if (of.size === 1) for (const family of of) families.add(family);
    }
  }
  if (families.size > 1) return "none";
  return families.has(4) ? 4 : families.has(6) ? 6 : 0;
}
