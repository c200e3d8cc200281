/** A dataplane driver as a model: stores its input, and reports an order that the protocol does not allow. */
import { updateOf, type Body } from "../../machines/dataplane/generation.ts";
import { keyOf, type DataplaneDelta } from "../../machines/dataplane/objects.ts";
import {
  PolicyID,
  ProfileID,
  type HostEndpoint,
  type IPSetDeltaUpdate,
  type Policy,
  type Profile,
  type Rule,
  type TierInfo,
  type WorkloadEndpoint,
} from "../../proto/gen/felix.ts";

type Endpoint = WorkloadEndpoint | HostEndpoint;

export class ModelDriver {
  readonly problems: string[] = [];
  inSyncs = 0;
  readonly #sets = new Map<string, Set<string>>();
  readonly #rules = new Map<string, Policy | Profile>();
  readonly #endpoints = new Map<string, Endpoint>();
  /** Addresses by key. */
  readonly #nodes = new Map<string, string>();

  /** How many objects it has. */
  get size(): number {
    return this.#sets.size + this.#rules.size + this.#endpoints.size + this.#nodes.size;
  }

  /** The expected end state, computed directly. */
  want(delta: DataplaneDelta): void {
    if (delta.kind === "members") {
      const set = this.#sets.get(delta.id);
      for (const member of delta.removed) set?.delete(member);
      for (const member of delta.added) set?.add(member);
    } else if (delta.kind === "removed") {
      if (delta.ref.kind === "ip-set") this.#sets.delete(delta.ref.id);
      else for (const table of [this.#rules, this.#endpoints, this.#nodes]) table.delete(keyOf(delta.ref));
    } else {
      const body = updateOf(delta.object, "current");
      if (body !== null) this.take(body);
    }
  }

  take(body: Body): void {
    const { ipsetUpdate, ipsetDeltaUpdate, ipsetRemove, activePolicyUpdate, activePolicyRemove } = body;
    const { activeProfileUpdate, activeProfileRemove, workloadEndpointUpdate, workloadEndpointRemove } = body;
    const { hostEndpointUpdate, hostEndpointRemove, hostMetadataUpdate, hostMetadataRemove } = body;
    if (body.inSync) this.inSyncs += 1;
    if (ipsetUpdate) this.#sets.set(ipsetUpdate.id, new Set(ipsetUpdate.members));
    if (ipsetDeltaUpdate) this.#change(ipsetDeltaUpdate);
    if (ipsetRemove) this.#forget(this.#sets, ipsetRemove.id);
    if (activePolicyUpdate?.id && activePolicyUpdate.policy)
      this.#rules.set(keyOf({ kind: "policy", id: activePolicyUpdate.id }), activePolicyUpdate.policy);
    if (activePolicyRemove?.id) this.#forget(this.#rules, keyOf({ kind: "policy", id: activePolicyRemove.id }));
    if (activeProfileUpdate?.id && activeProfileUpdate.profile)
      this.#rules.set(keyOf({ kind: "profile", id: activeProfileUpdate.id }), activeProfileUpdate.profile);
    if (activeProfileRemove?.id) this.#forget(this.#rules, keyOf({ kind: "profile", id: activeProfileRemove.id }));
    if (workloadEndpointUpdate?.id && workloadEndpointUpdate.endpoint)
      this.#endpoints.set(keyOf({ kind: "workload", id: workloadEndpointUpdate.id }), workloadEndpointUpdate.endpoint);
    if (workloadEndpointRemove?.id)
      this.#forget(this.#endpoints, keyOf({ kind: "workload", id: workloadEndpointRemove.id }));
    if (hostEndpointUpdate?.id && hostEndpointUpdate.endpoint)
      this.#endpoints.set(keyOf({ kind: "host", id: hostEndpointUpdate.id }), hostEndpointUpdate.endpoint);
    if (hostEndpointRemove?.id) this.#forget(this.#endpoints, keyOf({ kind: "host", id: hostEndpointRemove.id }));
    if (hostMetadataUpdate)
      this.#nodes.set(keyOf({ kind: "node", hostname: hostMetadataUpdate.hostname }), hostMetadataUpdate.ipv4Addr);
    if (hostMetadataRemove) this.#forget(this.#nodes, keyOf({ kind: "node", hostname: hostMetadataRemove.hostname }));
  }

  picture(): unknown {
    const sorted = (entries: Iterable<[string, unknown]>) => [...entries].toSorted(([a], [b]) => (a < b ? -1 : 1));
    return {
      sets: sorted([...this.#sets].map(([id, set]) => [id, [...set].toSorted()])),
      others: sorted(
        [...this.#rules, ...this.#endpoints, ...this.#nodes].map(([key, message]) => [key, JSON.stringify(message)]),
      ),
    };
  }

  /** An endpoint without its policy or profile, or a rule without its set: the driver would have to guess. Null: none. */
  findDangling(): string | null {
    for (const [key, rules] of this.#rules)
      for (const rule of [...rules.inboundRules, ...rules.outboundRules])
        for (const id of setsOf(rule)) if (!this.#sets.has(id)) return `${key} names the missing set ${id}`;
    for (const [key, endpoint] of this.#endpoints) {
      for (const name of endpoint.profileIds)
        if (!this.#rules.has(keyOf({ kind: "profile", id: ProfileID.create({ name }) })))
          return `${key} names the missing profile ${name}`;
      for (const { egressPolicies, ingressPolicies, name: tier } of tiersOf(endpoint))
        for (const name of [...ingressPolicies, ...egressPolicies].map((entry) => Buffer.from(entry).toString()))
          if (!this.#rules.has(keyOf({ kind: "policy", id: PolicyID.create({ tier, name }) })))
            return `${key} names the missing policy ${tier}/${name}`;
    }
    return null;
  }

  #change({ id, addedMembers, removedMembers }: IPSetDeltaUpdate): void {
    const set = this.#sets.get(id);
    if (set === undefined) this.problems.push(`a change of the unknown set ${id}`);
    for (const member of removedMembers)
      if (set?.delete(member) !== true) this.problems.push(`${member} was not in ${id}`);
    for (const member of addedMembers) {
      if (set?.has(member) === true) this.problems.push(`${member} was in ${id}`);
      if (removedMembers.includes(member)) this.problems.push(`${member} is both added and removed`);
      set?.add(member);
    }
  }

  #forget(from: Map<string, unknown>, key: string): void {
    if (!from.delete(key)) this.problems.push(`${key} is removed, but was never sent`);
  }
}

function setsOf(rule: Rule): readonly string[] {
  return [
    ...rule.srcIpSetIds,
    ...rule.notSrcIpSetIds,
    ...rule.dstIpSetIds,
    ...rule.notDstIpSetIds,
    ...rule.srcNamedPortIpSetIds,
    ...rule.notSrcNamedPortIpSetIds,
    ...rule.dstNamedPortIpSetIds,
    ...rule.notDstNamedPortIpSetIds,
    ...rule.dstIpPortSetIds,
  ];
}

function tiersOf(endpoint: Endpoint): readonly TierInfo[] {
  if (!("untrackedTiers" in endpoint)) return endpoint.tiers;
  return [...endpoint.tiers, ...endpoint.untrackedTiers, ...endpoint.preDnatTiers, ...endpoint.forwardTiers];
}
