/**
 * From a policy as an operator says it to rules as a dataplane takes them: selectors become sets, names of ports too, nets
 * are written in one way, and the family of each rule is said.
 *
 * C1: what was stored and cannot be right refuses: its rules are left out, so that what it chooses is denied. What does not
 *     even choose is nothing.
 */
import {
  DataplanePeer,
  DataplanePolicy,
  DataplanePolicyId,
  DataplaneProfile,
  DataplaneRule,
  DataplaneSetType,
  type NetworkPolicy,
  type NetworkProfile,
  type PolicyPeer,
  type PolicyRule,
  type PolicySelector,
} from "../../proto/gen/messages.ts";
import { addressAt, parseAddress, parseCidr } from "../../runtime/ip-address.ts";
import { checkPolicyObject, familyOf, reservedPrefix } from "./check.ts";
import { shortDigest } from "./digest.ts";
import { policyKey } from "./node-state.ts";
import { defaultTier, orderOf } from "./objects.ts";
import { parseSelector, selectorId, selectorText, type Selector } from "./selector.ts";

/** What is in a set: of the things that a selector chooses. */
export interface SetDefinition {
  readonly id: string;
  readonly type: DataplaneSetType;
  /** `addresses`; `ports`: where they have a port of that name; `services`: where services are that it chooses. */
  readonly of: "addresses" | "ports" | "services";
  readonly selector: Selector;
  /** Of `ports`: name and protocol. */
  readonly port: string;
  readonly protocol: string;
}

export interface CompiledPolicy {
  readonly key: string;
  readonly tier: string;
  readonly name: string;
  readonly order: number;
  readonly selector: Selector;
  /** Of its selector: two policies may share one. */
  readonly selectorId: string;
  readonly ingress: boolean;
  readonly egress: boolean;
  readonly stage: "normal" | "untracked" | "pre-dnat";
  readonly isForward: boolean;
  readonly message: DataplanePolicy;
  readonly sets: readonly SetDefinition[];
}

export interface CompiledProfile {
  readonly message: DataplaneProfile;
  readonly sets: readonly SetDefinition[];
}

/** Of endpoints whose service names no profile while there is none called `default`: what no policy decides is allowed. */
export const allowProfile = `${reservedPrefix}allow`;

export function builtInProfile(): CompiledProfile {
  const allow = (direction: string) => [DataplaneRule.create({ action: "allow", id: shortDigest(direction) })];
  return {
    message: DataplaneProfile.create({ name: allowProfile, ingress: allow("ingress"), egress: allow("egress") }),
    sets: [],
  };
}

/** Null when nobody can say what it chooses. C1 */
export function compilePolicy(policy: NetworkPolicy): CompiledPolicy | null {
  const outcome = parseSelector(policy.selector);
  if (outcome.kind === "invalid") return null;
  const isRight = checkPolicyObject({ kind: "NetworkPolicy", object: policy }) === null;
  const tier = policy.tier === "" ? defaultTier : policy.tier;
  const id = DataplanePolicyId.create({ tier, name: policy.name });
  const sets = new Map<string, SetDefinition>();
  const { preDnat, doNotTrack } = policy;
  return {
    key: policyKey(id),
    tier,
    name: policy.name,
    order: orderOf(policy.order),
    selector: outcome.selector,
    selectorId: selectorId("p", outcome.selector),
    ingress: policy.appliesIngress || !isRight,
    egress: (policy.appliesEgress || !isRight) && !preDnat,
    stage: preDnat ? "pre-dnat" : doNotTrack ? "untracked" : "normal",
    isForward: policy.applyOnForward,
    message: DataplanePolicy.create({
      id,
      ingress: isRight ? compileRules(policy.ingress, sets) : [],
      egress: isRight ? compileRules(policy.egress, sets) : [],
      untracked: doNotTrack && !preDnat,
      preDnat,
    }),
    sets: [...sets.values()],
  };
}

export function compileProfile(profile: NetworkProfile): CompiledProfile {
  const isRight = checkPolicyObject({ kind: "NetworkProfile", object: profile }) === null;
  const sets = new Map<string, SetDefinition>();
  return {
    message: DataplaneProfile.create({
      name: profile.name,
      ingress: isRight ? compileRules(profile.ingress, sets) : [],
      egress: isRight ? compileRules(profile.egress, sets) : [],
    }),
    sets: [...sets.values()],
  };
}

function compileRules(rules: readonly PolicyRule[], sets: Map<string, SetDefinition>): DataplaneRule[] {
  const seen = new Map<string, number>();
  return rules.map((rule) => {
    const family = familyOf(rule);
    const compiled = DataplaneRule.create({
      action: rule.action,
      ipVersion: family === "none" ? 0 : family,
      protocol: rule.protocol,
      notProtocol: rule.notProtocol,
      source: rule.source === null ? null : compilePeer(rule, rule.source, sets),
      destination: rule.destination === null ? null : compilePeer(rule, rule.destination, sets),
      icmp: rule.icmp,
      notIcmp: rule.notIcmp,
      logPrefix: rule.action === "log" ? "muster: " : "",
    });
    // Two alike rules are still two.
    const text = JSON.stringify(DataplaneRule.toJson(compiled));
    const count = seen.get(text) ?? 0;
    seen.set(text, count + 1);
    return DataplaneRule.patch(compiled, { id: shortDigest(`${text}${count}`).slice(0, 16) });
  });
}

function compilePeer(rule: PolicyRule, peer: PolicyPeer, sets: Map<string, SetDefinition>): DataplanePeer {
  const use = (definition: SetDefinition): string => {
    sets.set(definition.id, definition);
    return definition.id;
  };
  const chosen = (selector: PolicySelector | null): string[] =>
    selector === null ? [] : [use(addressSet(parsed(selector.text)))];
  const portSelector = parsed(peer.selector?.text ?? "");
  const named = (names: readonly string[]): string[] =>
    names.map((name) => use(portSet(portSelector, name, rule.protocol)));
  return DataplanePeer.create({
    nets: peer.nets.map(netText),
    notNets: peer.notNets.map(netText),
    ports: peer.ports,
    notPorts: peer.notPorts,
    sets: chosen(peer.selector),
    notSets: chosen(peer.notSelector),
    portSets: named(peer.namedPorts),
    notPortSets: named(peer.notNamedPorts),
    serviceSets: peer.services === null ? [] : [use(serviceSet(parsed(peer.services.text)))],
  });
}

/** The whole was checked before. */
function parsed(text: string): Selector {
  const outcome = parseSelector(text);
  return outcome.kind === "parsed" ? outcome.selector : { kind: "not", of: { kind: "all" } };
}

function addressSet(selector: Selector): SetDefinition {
  const id = selectorId("s", selector);
  return { id, type: DataplaneSetType.DATAPLANE_SET_ADDRESSES, of: "addresses", selector, port: "", protocol: "" };
}

const withPorts = DataplaneSetType.DATAPLANE_SET_ADDRESSES_AND_PORTS;

function portSet(selector: Selector, port: string, protocol: string): SetDefinition {
  return { id: selectorId("n", selector, port, protocol), type: withPorts, of: "ports", selector, port, protocol };
}

function serviceSet(selector: Selector): SetDefinition {
  const id = `v${shortDigest(selectorText(selector))}`;
  return { id, type: withPorts, of: "services", selector, port: "", protocol: "" };
}

/** With its prefix length and without bits beyond it. */
export function netText(net: string): string {
  const address = parseAddress(net);
  const prefix = parseCidr(net) ?? (address === null ? null : { ...address, length: address.family === 4 ? 32 : 128 });
  return prefix === null ? net : `${addressAt(prefix, 0)}/${prefix.length}`;
}
