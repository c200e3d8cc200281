/**
 * Compiles an operator's policy into a dataplane's rules: selectors and port names become sets, nets are normalized, and each
 * rule's IP family is explicit.
 *
 * C1: an invalid stored policy fails closed: its rules are omitted, so that it denies the traffic of the endpoints that it
 *     selects. A policy with an invalid selector is ignored.
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
import { addressAt, parseAddress, parseCidr } from "../../lib/ip-address.ts";
import { checkPolicyObject, familyOf, reservedPrefix } from "./check.ts";
import { shortDigest } from "./digest.ts";
import { policyKey } from "./node-state.ts";
import { defaultTier, orderOf } from "./objects.ts";
import { parseSelector, selectorId, selectorText, type Selector } from "./selector.ts";

/** A set: its members come from the endpoints or services that the selector chooses. */
export interface SetDefinition {
  readonly id: string;
  readonly type: DataplaneSetType;
  /** `addresses`: of endpoints; `ports`: of endpoints with a port of that name; `services`: of services, with their ports. */
  readonly of: "addresses" | "ports" | "services";
  readonly selector: Selector;
  /** For `ports`: name and protocol. */
  readonly port: string;
  readonly protocol: string;
}

export interface CompiledPolicy {
  readonly key: string;
  readonly tier: string;
  readonly name: string;
  readonly order: number;
  readonly selector: Selector;
  /** Policies with equal selectors share this id. */
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

/** For endpoints whose service names no profile, if no profile `default` exists: allows what no policy decides. */
export const allowProfile = `${reservedPrefix}allow`;

export function builtInProfile(): CompiledProfile {
  const allow = (direction: string) => [DataplaneRule.create({ action: "allow", id: shortDigest(direction) })];
  return {
    message: DataplaneProfile.create({ name: allowProfile, ingress: allow("ingress"), egress: allow("egress") }),
    sets: [],
  };
}

/** Null if its selector is invalid. C1 */
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
    // Equal rules get different ids.
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

/** The policy was checked before, so the fallback (match nothing) is never used. */
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

/** Normalized: with a prefix length, and without bits beyond it. */
export function netText(net: string): string {
  const address = parseAddress(net);
  const prefix = parseCidr(net) ?? (address === null ? null : { ...address, length: address.family === 4 ? 32 : 128 });
  return prefix === null ? net : `${addressAt(prefix, 0)}/${prefix.length}`;
}
