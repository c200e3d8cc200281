/** Translates a node's updates into the messages of dataplane drivers, and drivers' keys back into endpoint ids. */
import {
  HostEndpoint,
  HostEndpointID,
  IcmpTypeAndCode,
  Policy,
  PolicyID,
  PortRange,
  Profile,
  ProfileID,
  Protocol,
  Rule,
  TierInfo,
  WorkloadEndpoint,
  WorkloadEndpointID,
} from "../../proto/gen/felix.ts";
import {
  DataplanePeer,
  DataplanePolicyId,
  type DataplaneIcmp,
  type DataplaneRule,
  type DataplaneTier,
  type DataplaneUpdate,
} from "../../proto/gen/messages.ts";
import { tierEntries } from "../../proto/tier-policies.ts";
import type { DataplaneDelta } from "../dataplane/objects.ts";

const orchestrator = "muster";

/** Ordered so that every object comes before those that refer to it. */
export function deltasOf(update: DataplaneUpdate): DataplaneDelta[] {
  const deltas: DataplaneDelta[] = [];
  const put = (object: Extract<DataplaneDelta, { kind: "put" }>["object"]): void =>
    void deltas.push({ kind: "put", object });
  const remove = (ref: Extract<DataplaneDelta, { kind: "removed" }>["ref"]): void =>
    void deltas.push({ kind: "removed", ref });
  for (const { id, members, type } of update.sets) put({ kind: "ip-set", id, type, members });
  for (const { added, id, removed } of update.setDeltas) deltas.push({ kind: "members", id, added, removed });
  for (const { egress, ingress, name } of update.profiles)
    put({
      kind: "profile",
      id: ProfileID.create({ name }),
      profile: Profile.create({ inboundRules: ingress.map(ruleOf), outboundRules: egress.map(ruleOf) }),
    });
  for (const { egress, id, ingress, preDnat, untracked } of update.policies)
    put({
      kind: "policy",
      id: policyId(id ?? DataplanePolicyId.create({})),
      policy: Policy.create({
        inboundRules: ingress.map(ruleOf),
        outboundRules: egress.map(ruleOf),
        untracked,
        preDnat,
      }),
    });
  for (const endpoint of update.endpoints)
    put({
      kind: "workload",
      id: workloadId(endpoint.id),
      endpoint: WorkloadEndpoint.create({
        state: endpoint.active ? "active" : "inactive",
        name: endpoint.interface,
        mac: endpoint.mac,
        profileIds: endpoint.profiles,
        ipv4Nets: endpoint.ipv4Nets,
        ipv6Nets: endpoint.ipv6Nets,
        tiers: endpoint.tiers.map(tierOf),
      }),
    });
  for (const endpoint of update.hostEndpoints)
    put({
      kind: "host",
      id: HostEndpointID.create({ endpointId: endpoint.id }),
      endpoint: HostEndpoint.create({
        name: endpoint.interface,
        profileIds: endpoint.profiles,
        tiers: endpoint.tiers.map(tierOf),
        untrackedTiers: endpoint.untrackedTiers.map(tierOf),
        preDnatTiers: endpoint.preDnatTiers.map(tierOf),
        forwardTiers: endpoint.forwardTiers.map(tierOf),
        expectedIpv4Addrs: endpoint.ipv4Addresses,
        expectedIpv6Addrs: endpoint.ipv6Addresses,
      }),
    });
  // Drivers support only IPv4 addresses of nodes.
  for (const { hostname, ipv4Address } of update.hosts)
    if (ipv4Address !== "") put({ kind: "node", hostname, ipv4Addr: ipv4Address });
    else remove({ kind: "node", hostname });
  for (const id of update.removedEndpoints) remove({ kind: "workload", id: workloadId(id) });
  for (const endpointId of update.removedHostEndpoints)
    remove({ kind: "host", id: HostEndpointID.create({ endpointId }) });
  for (const id of update.removedPolicies) remove({ kind: "policy", id: policyId(id) });
  for (const name of update.removedProfiles) remove({ kind: "profile", id: ProfileID.create({ name }) });
  for (const id of update.removedSets) remove({ kind: "ip-set", id });
  for (const hostname of update.removedHosts) remove({ kind: "node", hostname });
  return deltas;
}

/** `TASK/NETWORK`. */
function workloadId(id: string): WorkloadEndpointID {
  const [task = "", network = ""] = id.split("/");
  return WorkloadEndpointID.create({ orchestratorId: orchestrator, workloadId: task, endpointId: network });
}

/** The endpoint id of a key of `machines/dataplane/objects.ts`; null if it is not an endpoint of ours. */
export function endpointOfKey(key: string): { readonly kind: "workload" | "host"; readonly id: string } | null {
  const [kind, ...rest] = key.split(" ");
  if (kind === "host") return { kind, id: rest.join(" ") };
  if (kind !== "workload" || rest[0] !== orchestrator) return null;
  return { kind, id: `${rest[1] ?? ""}/${rest[2] ?? ""}` };
}

function policyId({ name, tier }: DataplanePolicyId): PolicyID {
  return PolicyID.create({ tier, name });
}

function tierOf({ defaultAction, egress, ingress, name }: DataplaneTier): TierInfo {
  return TierInfo.create({
    name,
    ingressPolicies: tierEntries(ingress),
    egressPolicies: tierEntries(egress),
    defaultAction: defaultAction === "pass" ? "Pass" : "Deny",
  });
}

function protocolOf(text: string): Protocol | null {
  if (text === "") return null;
  return /^\d+$/.test(text) ? Protocol.create({ number: Number(text) }) : Protocol.create({ name: text });
}

function icmpOf(icmp: DataplaneIcmp | null): {
  readonly type: number | null;
  readonly typeCode: IcmpTypeAndCode | null;
} {
  if (icmp === null) return { type: null, typeCode: null };
  if (icmp.code === null) return { type: icmp.type, typeCode: null };
  return { type: null, typeCode: IcmpTypeAndCode.create({ type: icmp.type, code: icmp.code.code }) };
}

function ruleOf(rule: DataplaneRule): Rule {
  const source = rule.source ?? DataplanePeer.create({});
  const destination = rule.destination ?? DataplanePeer.create({});
  const ports = (list: DataplanePeer["ports"]) => list.map(({ first, last }) => PortRange.create({ first, last }));
  const [icmp, notIcmp] = [icmpOf(rule.icmp), icmpOf(rule.notIcmp)];
  return Rule.create({
    action: rule.action,
    ipVersion: rule.ipVersion === 4 ? 4 : rule.ipVersion === 6 ? 6 : 0,
    protocol: protocolOf(rule.protocol),
    notProtocol: protocolOf(rule.notProtocol),
    srcNet: source.nets,
    notSrcNet: source.notNets,
    srcPorts: ports(source.ports),
    notSrcPorts: ports(source.notPorts),
    srcIpSetIds: source.sets,
    notSrcIpSetIds: source.notSets,
    srcNamedPortIpSetIds: source.portSets,
    notSrcNamedPortIpSetIds: source.notPortSets,
    dstNet: destination.nets,
    notDstNet: destination.notNets,
    dstPorts: ports(destination.ports),
    notDstPorts: ports(destination.notPorts),
    dstIpSetIds: destination.sets,
    notDstIpSetIds: destination.notSets,
    dstNamedPortIpSetIds: destination.portSets,
    notDstNamedPortIpSetIds: destination.notPortSets,
    dstIpPortSetIds: destination.serviceSets,
    icmpType: icmp.type,
    icmpTypeCode: icmp.typeCode,
    notIcmpType: notIcmp.type,
    notIcmpTypeCode: notIcmp.typeCode,
    logPrefix: rule.logPrefix,
    ruleId: rule.id,
  });
}
