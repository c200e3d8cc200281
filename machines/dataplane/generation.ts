/**
 * Objects as the messages of a generation of the protocol. `2016` is what drivers of Felix 2.0 know; `current` has several
 * networks in a rule, a list of policies for each direction, sets of networks and of ports, and the places before tracking
 * and before translation.
 *
 * G1: what the earlier generation cannot say is said more strictly: what would open is left out, what would close closes more.
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
  Profile,
  Rule,
  TierInfo,
  WorkloadEndpoint,
  WorkloadEndpointRemove,
  WorkloadEndpointUpdate,
  type ToDataplane,
} from "../../proto/gen/felix.ts";
import type { DataplaneObject, DataplaneRef } from "./objects.ts";

export type Generation = "2016" | "current";

export type Body = Partial<ToDataplane>;

/** Null: the generation has no such object. */
export function updateOf(object: DataplaneObject, generation: Generation): Body | null {
  const isOld = generation === "2016";
  switch (object.kind) {
    case "ip-set":
      if (isOld && object.type !== SetType.IP) return null;
      return { ipsetUpdate: IPSetUpdate.create({ id: object.id, type: object.type, members: object.members }) };
    case "policy": {
      const { id, policy } = object;
      if (isOld && (policy.untracked || policy.preDnat)) return null;
      return { activePolicyUpdate: ActivePolicyUpdate.create({ id, policy: isOld ? oldPolicy(policy) : policy }) };
    }
    case "profile": {
      const { id, profile } = object;
      return {
        activeProfileUpdate: ActiveProfileUpdate.create({ id, profile: isOld ? oldProfile(profile) : profile }),
      };
    }
    case "workload": {
      const { id, endpoint } = object;
      const told = isOld ? WorkloadEndpoint.patch(endpoint, { tiers: endpoint.tiers.map(oldTier) }) : endpoint;
      return { workloadEndpointUpdate: WorkloadEndpointUpdate.create({ id, endpoint: told }) };
    }
    case "host": {
      const { id, endpoint } = object;
      const told = isOld
        ? HostEndpoint.patch(endpoint, {
            tiers: endpoint.tiers.map(oldTier),
            untrackedTiers: [],
            preDnatTiers: [],
            forwardTiers: [],
          })
        : endpoint;
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

export function removalOf(ref: DataplaneRef): Body {
  switch (ref.kind) {
    case "ip-set":
      return { ipsetRemove: IPSetRemove.create({ id: ref.id }) };
    case "policy":
      return { activePolicyRemove: ActivePolicyRemove.create({ id: ref.id }) };
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

/** One list holds for both directions: a policy of either is in it, and decides nothing that it does not speak of. */
function oldTier({ name, ingressPolicies, egressPolicies }: TierInfo): TierInfo {
  return TierInfo.create({ name, ingressPolicies: [...new Set([...ingressPolicies, ...egressPolicies])] });
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

/** An earlier driver keeps the last of several networks: each pair of them becomes a rule. */
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
