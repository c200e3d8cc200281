/**
 * Translates objects to the messages of a generation of the protocol. `2016` is that of Felix 2.0; `current` adds several
 * networks in a rule, a list of policies for each direction, sets of networks and of ports, and the untracked and pre-DNAT
 * stages (Felix 3.1 to 3.31); `3.32` names policies by messages without a tier (3.32 and newer).
 *
 * G1: a rule that an earlier generation cannot express is made stricter: an allow rule is left out, a deny rule covers more.
 * G2: settings have the generation's own form: a driver that cannot read its failsafe ports refuses to start, or cuts off its
 *     node.
 */
import {
  ActivePolicyRemove,
  ActivePolicyUpdate,
  ActiveProfileRemove,
  ActiveProfileUpdate,
  HostEndpoint,
  HostEndpointRemove,
  HostEndpointUpdate,
  HostMetadataRemove,
  HostMetadataUpdate,
  IPAMPoolRemove,
  IPAMPoolUpdate,
  IPSetDeltaUpdate,
  IPSetRemove,
  IPSetUpdate,
  IPSetUpdate_IPSetType as SetType,
  Policy,
  PolicyID,
  Profile,
  Rule,
  TierInfo,
  WorkloadEndpoint,
  WorkloadEndpointRemove,
  WorkloadEndpointUpdate,
  type ToDataplane,
} from "../../proto/gen/felix.ts";
import { readTierEntry, tierEntries } from "../../proto/tier-policies.ts";
import type { DataplaneObject, DataplaneRef } from "./objects.ts";

/** In the order of their age. */
export const generations = ["2016", "current", "3.32"] as const;
export type Generation = (typeof generations)[number];

export type Body = Partial<ToDataplane>;

/** Settings that list ports, in lower case: drivers ignore the case of setting names. */
const failsafeSettings = ["failsafeinboundhostports", "failsafeoutboundhostports"];

/**
 * G2. Felix 2.0 knows failsafe ports only as TCP port numbers; other entries of the list cannot be expressed and stay closed.
 */
export function settingsOf(
  settings: Readonly<Record<string, string>>,
  generation: Generation,
): Readonly<Record<string, string>> {
  if (generation !== "2016") return settings;
  return Object.fromEntries(
    Object.entries(settings).map(([name, value]) => [
      name,
      failsafeSettings.includes(name.toLowerCase()) ? barePorts(value) : value,
    ]),
  );
}

/** `none` is Felix's value for an empty list: an empty string would mean its default. */
function barePorts(list: string): string {
  const ports = list.split(",").flatMap((entry) => /^\s*(?:tcp:)?(\d+)\s*$/i.exec(entry)?.[1] ?? []);
  return ports.length === 0 ? "none" : ports.join(",");
}

/** Null: the generation has no such object. */
export function updateOf(object: DataplaneObject, generation: Generation): Body | null {
  const isOld = generation === "2016";
  switch (object.kind) {
    case "ip-set":
      if (isOld && object.type !== SetType.IP) return null;
      return { ipsetUpdate: IPSetUpdate.create({ id: object.id, type: object.type, members: object.members }) };
    case "policy": {
      const { policy } = object;
      if (isOld && (policy.untracked || policy.preDnat)) return null;
      const told = generation === "3.32" ? Policy.patch(policy, { tier: object.id.tier }) : policy;
      const id = policyIdOf(object.id, generation);
      return { activePolicyUpdate: ActivePolicyUpdate.create({ id, policy: isOld ? oldPolicy(policy) : told }) };
    }
    case "profile": {
      const { id, profile } = object;
      return {
        activeProfileUpdate: ActiveProfileUpdate.create({ id, profile: isOld ? oldProfile(profile) : profile }),
      };
    }
    case "workload": {
      const { id, endpoint } = object;
      const told = WorkloadEndpoint.patch(endpoint, { tiers: tiersOf(endpoint.tiers, generation) });
      return { workloadEndpointUpdate: WorkloadEndpointUpdate.create({ id, endpoint: told }) };
    }
    case "host": {
      const { id, endpoint } = object;
      const stage = (tiers: readonly TierInfo[]) => (isOld ? [] : tiersOf(tiers, generation));
      const told = HostEndpoint.patch(endpoint, {
        tiers: tiersOf(endpoint.tiers, generation),
        untrackedTiers: stage(endpoint.untrackedTiers),
        preDnatTiers: stage(endpoint.preDnatTiers),
        forwardTiers: stage(endpoint.forwardTiers),
      });
      return { hostEndpointUpdate: HostEndpointUpdate.create({ id, endpoint: told }) };
    }
    case "node": {
      const { hostname, ipv4Addr } = object;
      return { hostMetadataUpdate: HostMetadataUpdate.create({ hostname, ipv4Addr }) };
    }
    case "pool":
      return { ipamPoolUpdate: IPAMPoolUpdate.create({ id: object.id, pool: object.pool }) };
  }
}

export function membersOf(id: string, added: Iterable<string>, removed: Iterable<string>): Body {
  return {
    ipsetDeltaUpdate: IPSetDeltaUpdate.create({ id, addedMembers: [...added], removedMembers: [...removed] }),
  };
}

export function removalOf(ref: DataplaneRef, generation: Generation): Body {
  switch (ref.kind) {
    case "ip-set":
      return { ipsetRemove: IPSetRemove.create({ id: ref.id }) };
    case "policy":
      return { activePolicyRemove: ActivePolicyRemove.create({ id: policyIdOf(ref.id, generation) }) };
    case "profile":
      return { activeProfileRemove: ActiveProfileRemove.create({ id: ref.id }) };
    case "workload":
      return { workloadEndpointRemove: WorkloadEndpointRemove.create({ id: ref.id }) };
    case "host":
      return { hostEndpointRemove: HostEndpointRemove.create({ id: ref.id }) };
    case "node":
      return { hostMetadataRemove: HostMetadataRemove.create({ hostname: ref.hostname }) };
    case "pool":
      return { ipamPoolRemove: IPAMPoolRemove.create({ id: ref.id }) };
  }
}

/**
 * From 3.32 on, an id has no tier and is unique across tiers. Ours are unique within a tier: a policy that moves to another
 * tier is sent there before its removal here. Our names contain no slash.
 */
function policyIdOf(id: PolicyID, generation: Generation): PolicyID {
  return generation === "3.32" ? PolicyID.create({ name: `${id.tier}/${id.name}`, kind: "GlobalNetworkPolicy" }) : id;
}

function tiersOf(tiers: readonly TierInfo[], generation: Generation): readonly TierInfo[] {
  if (generation === "current") return tiers;
  return tiers.map((tier) => (generation === "2016" ? oldTier(tier) : idTier(tier)));
}

function namesOf(entries: readonly Uint8Array[]): string[] {
  return entries.map(readTierEntry).flatMap((entry) => (entry.kind === "name" ? [entry.name] : []));
}

/**
 * One list serves both directions: it contains policies of either, and a policy decides nothing about the other direction.
 */
function oldTier({ name, ingressPolicies, egressPolicies }: TierInfo): TierInfo {
  const names = new Set([...namesOf(ingressPolicies), ...namesOf(egressPolicies)]);
  return TierInfo.create({ name, ingressPolicies: tierEntries([...names]) });
}

function idTier(tier: TierInfo): TierInfo {
  const ids = (entries: readonly Uint8Array[]) =>
    namesOf(entries).map((name) => PolicyID.encode(policyIdOf(PolicyID.create({ tier: tier.name, name }), "3.32")));
  return TierInfo.patch(tier, {
    ingressPolicies: ids(tier.ingressPolicies),
    egressPolicies: ids(tier.egressPolicies),
  });
}

function oldPolicy({ inboundRules, outboundRules }: Policy): Policy {
  return Policy.create({
    inboundRules: inboundRules.flatMap(oldRules),
    outboundRules: outboundRules.flatMap(oldRules),
  });
}

function oldProfile({ inboundRules, outboundRules }: Profile): Profile {
  return Profile.create({
    inboundRules: inboundRules.flatMap(oldRules),
    outboundRules: outboundRules.flatMap(oldRules),
  });
}

/** An earlier driver uses only the last of several networks: each pair of networks becomes a rule. */
function oldRules(rule: Rule): readonly Rule[] {
  const { action } = rule;
  const opens = action === "" || action === "allow" || action === "log";
  const isSayable =
    rule.srcNamedPortIpSetIds.length + rule.dstNamedPortIpSetIds.length === 0 &&
    rule.notSrcNamedPortIpSetIds.length + rule.notDstNamedPortIpSetIds.length === 0 &&
    rule.dstIpPortSetIds.length === 0 &&
    rule.notSrcNet.length < 2 &&
    rule.notDstNet.length < 2 &&
    rule.httpMatch === null;
  if (!isSayable && opens) return []; // G1
  const said = Rule.patch(rule, {
    action: isSayable ? (action === "pass" ? "next-tier" : action) : "deny",
    srcNamedPortIpSetIds: [],
    dstNamedPortIpSetIds: [],
    notSrcNamedPortIpSetIds: [],
    notDstNamedPortIpSetIds: [],
    dstIpPortSetIds: [],
    httpMatch: null,
    notSrcNet: rule.notSrcNet.slice(0, 1),
    notDstNet: rule.notDstNet.slice(0, 1),
    ...(rule.srcNamedPortIpSetIds.length > 0 ? { srcPorts: [] } : {}),
    ...(rule.dstNamedPortIpSetIds.length > 0 ? { dstPorts: [] } : {}),
  });
  const sources = rule.srcNet.length === 0 ? [[]] : rule.srcNet.map((net) => [net]);
  const targets = rule.dstNet.length === 0 ? [[]] : rule.dstNet.map((net) => [net]);
  return sources.flatMap((srcNet) => targets.map((dstNet) => Rule.patch(said, { srcNet, dstNet })));
}
