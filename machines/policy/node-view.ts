/**
 * The state that one follower of one node has received, and the changes that it must still receive. Changes between two
 * updates are merged: only keys of changed objects are kept, and changed members of sets, so memory stays bounded for slow
 * followers.
 *
 * V1: after an update, the follower has the node's current state.
 * V2: a follower gets a set, policy or profile only while an endpoint of the node uses it.
 */
import {
  DataplaneSet,
  DataplaneSetDelta,
  DataplaneUpdate,
  type DataplaneConfig,
  type DataplaneHost,
} from "../../proto/gen/messages.ts";
import { isSameMessage } from "../same-message.ts";
import { SentObjects } from "../sent-objects.ts";
import type { CompiledPolicy, CompiledProfile, SetDefinition } from "./compile.ts";
import {
  applicable,
  endpointMessage,
  hostEndpointMessage,
  nodeConfig,
  profilesOf,
  type TierTable,
} from "./endpoint.ts";
import type { EndpointFact } from "./facts.ts";
import { isEmptyUpdate, policyIdOf } from "./node-state.ts";
import type { SetTable, SetUser } from "./set-table.ts";

/** The cluster data that a view reads; implemented by the graph. */
export interface ViewSource {
  readonly tiers: TierTable;
  readonly sets: SetTable;
  readonly hosts: ReadonlyMap<string, DataplaneHost>;
  readonly managers: ReadonlyMap<string, string>;
  endpoint(id: string): EndpointFact | undefined;
  policy(key: string): CompiledPolicy | undefined;
  profile(name: string): CompiledProfile | undefined;
  /** The policies that select the endpoint. */
  chosenBy(id: string): readonly CompiledPolicy[];
}

/** The policies and profiles that an endpoint uses, to be released when they change. */
interface Uses {
  readonly policies: ReadonlySet<string>;
  readonly profiles: ReadonlySet<string>;
}

const nothingUsed: Uses = { policies: new Set(), profiles: new Set() };

export class NodeView implements SetUser {
  readonly nodeId: string;
  readonly #source: ViewSource;
  readonly #onDirty: () => void;
  readonly #uses = new Map<string, Uses>();
  readonly #policyUses = new Map<string, number>();
  readonly #profileUses = new Map<string, number>();
  /** By set id: the number of active policies and profiles that use the set. */
  readonly #setUses = new Map<string, number>();
  /** The sets of active policies and profiles, as compiled when these became active. */
  readonly #activeSets = new Map<string, readonly SetDefinition[]>();
  readonly #touched = new Set<string>();
  readonly #sent = {
    endpoints: new SentObjects(),
    hostEndpoints: new SentObjects(),
    policies: new SentObjects(),
    profiles: new SentObjects(),
    sets: new SentObjects(),
    hosts: new SentObjects(),
  };
  readonly #deltas = new Map<string, Map<string, boolean>>();
  #config: DataplaneConfig | null = null;
  #isConfigTouched = true;
  #isNew = true;
  #isDirty = true;

  constructor(nodeId: string, source: ViewSource, onDirty: () => void) {
    this.nodeId = nodeId;
    this.#source = source;
    this.#onDirty = onDirty;
    for (const hostname of source.hosts.keys()) this.#sent.hosts.touch(hostname);
  }

  touchEndpoint(id: string): void {
    this.#touched.add(id);
    this.#dirty();
  }

  touchConfig(): void {
    this.#isConfigTouched = true;
    this.#dirty();
  }

  touchHost(hostname: string): void {
    this.#sent.hosts.touch(hostname);
    this.#dirty();
  }

  /** The policy has changed or was removed; its sets change with it. */
  touchPolicy(key: string): void {
    if (!this.#policyUses.has(key)) return;
    this.#sent.policies.touch(key);
    this.#activate(`policy ${key}`, this.#source.policy(key)?.sets ?? []);
    this.#dirty();
  }

  touchProfile(name: string): void {
    if (!this.#profileUses.has(name)) return;
    this.#sent.profiles.touch(name);
    this.#activate(`profile ${name}`, this.#source.profile(name)?.sets ?? []);
    this.#dirty();
  }

  touchAllEndpoints(): void {
    for (const id of this.#uses.keys()) this.touchEndpoint(id);
  }

  memberChanged(setId: string, member: string, isMember: boolean): void {
    if (!this.#sent.sets.has(setId) || this.#sent.sets.isPending(setId)) return;
    let delta = this.#deltas.get(setId);
    if (delta === undefined) this.#deltas.set(setId, (delta = new Map<string, boolean>()));
    if (delta.get(member) === !isMember) delta.delete(member);
    else delta.set(member, isMember);
    // The delta is longer than the set: send the whole set instead.
    if (delta.size > 1_000 + (this.#source.sets.get(setId)?.members.size ?? 0)) {
      this.#deltas.delete(setId);
      this.#sent.sets.touch(setId);
    }
    this.#dirty();
  }

  /** Releases all sets. */
  close(): void {
    for (const id of this.#setUses.keys()) this.#source.sets.unuse(id, this);
  }

  /** V1. The changes since the last call; null if there are none. The first update is fresh. */
  take(version: number): DataplaneUpdate | null {
    if (!this.#isDirty) return null;
    this.#isDirty = false;
    this.#settle();
    const parts = this.#parts();
    const update = DataplaneUpdate.create({
      fresh: this.#isNew,
      inSync: true,
      version,
      config: this.#configNews(),
      ...parts,
    });
    if (!this.#isNew && isEmptyUpdate(update)) return null;
    this.#isNew = false;
    return update;
  }

  /** Null if the node has it already. */
  #configNews(): DataplaneConfig | null {
    if (!this.#isConfigTouched) return null;
    this.#isConfigTouched = false;
    const config = nodeConfig(this.#source.managers.values());
    if (isSameMessage(config, this.#config)) return null;
    this.#config = config;
    return config;
  }

  #dirty(): void {
    if (this.#isDirty) return;
    this.#isDirty = true;
    this.#onDirty();
  }

  #settle(): void {
    for (const id of this.#touched) {
      const fact = this.#source.endpoint(id);
      const isOurs = fact !== undefined && fact.nodeId === this.nodeId;
      const before = this.#uses.get(id) ?? nothingUsed;
      const after = isOurs ? this.#usesOf(id, fact) : nothingUsed;
      for (const key of after.policies) if (!before.policies.has(key)) this.#usePolicy(key);
      for (const name of after.profiles) if (!before.profiles.has(name)) this.#useProfile(name);
      for (const key of before.policies) if (!after.policies.has(key)) this.#unusePolicy(key);
      for (const name of before.profiles) if (!after.profiles.has(name)) this.#unuseProfile(name);
      if (isOurs) this.#uses.set(id, after);
      else this.#uses.delete(id);
      this.#sent.endpoints.touch(id);
      this.#sent.hostEndpoints.touch(id);
    }
    this.#touched.clear();
  }

  #usesOf(id: string, fact: EndpointFact): Uses {
    const policies = applicable(fact, this.#source.chosenBy(id)).map(({ key }) => key);
    return { policies: new Set(policies), profiles: new Set(this.#profilesOf(fact)) };
  }

  #profilesOf(fact: EndpointFact): readonly string[] {
    if (fact.isHost) return fact.profiles ?? [];
    return profilesOf(fact, (name) => this.#source.profile(name) !== undefined);
  }

  #usePolicy(key: string): void {
    if (increment(this.#policyUses, key) > 1) return;
    this.#sent.policies.touch(key);
    this.#activate(`policy ${key}`, this.#source.policy(key)?.sets ?? []);
  }

  #unusePolicy(key: string): void {
    if (decrement(this.#policyUses, key) > 0) return;
    this.#sent.policies.touch(key);
    this.#activate(`policy ${key}`, []);
  }

  #useProfile(name: string): void {
    if (increment(this.#profileUses, name) > 1) return;
    this.#sent.profiles.touch(name);
    this.#activate(`profile ${name}`, this.#source.profile(name)?.sets ?? []);
  }

  #unuseProfile(name: string): void {
    if (decrement(this.#profileUses, name) > 0) return;
    this.#sent.profiles.touch(name);
    this.#activate(`profile ${name}`, []);
  }

  #activate(user: string, sets: readonly SetDefinition[]): void {
    const before = this.#activeSets.get(user) ?? [];
    for (const definition of sets) {
      if (increment(this.#setUses, definition.id) > 1) continue;
      // The set will be sent whole, so earlier deltas are obsolete.
      this.#deltas.delete(definition.id);
      this.#sent.sets.touch(definition.id);
      this.#source.sets.use(definition, this);
    }
    for (const { id } of before) {
      if (decrement(this.#setUses, id) > 0) continue;
      this.#deltas.delete(id);
      this.#sent.sets.touch(id);
      this.#source.sets.unuse(id, this);
    }
    if (sets.length === 0) this.#activeSets.delete(user);
    else this.#activeSets.set(user, sets);
  }

  #parts(): Partial<DataplaneUpdate> {
    const source = this.#source;
    const parts = {
      sets: [] as DataplaneSet[],
      setDeltas: [] as DataplaneSetDelta[],
      profiles: [] as CompiledProfile["message"][],
      policies: [] as CompiledPolicy["message"][],
      endpoints: [] as ReturnType<typeof endpointMessage>[],
      hostEndpoints: [] as ReturnType<typeof hostEndpointMessage>[],
      hosts: [] as DataplaneHost[],
      removedEndpoints: [] as string[],
      removedHostEndpoints: [] as string[],
      removedProfiles: [] as string[],
      removedSets: [] as string[],
      removedHosts: [] as string[],
    };
    const ofNode = (id: string, isHost: boolean): EndpointFact | undefined => {
      const fact = source.endpoint(id);
      return fact?.nodeId === this.nodeId && fact.isHost === isHost ? fact : undefined;
    };
    this.#sent.sets.drain((id) => this.#wholeSet(id), parts.sets, parts.removedSets);
    for (const [id, delta] of this.#deltas) {
      const added = [...delta].filter(([, isMember]) => isMember).map(([member]) => member);
      const removed = [...delta].filter(([, isMember]) => !isMember).map(([member]) => member);
      if (delta.size > 0) parts.setDeltas.push(DataplaneSetDelta.create({ id, added, removed }));
    }
    this.#deltas.clear();
    const removedPolicies: string[] = [];
    this.#sent.policies.drain(
      (key) => (this.#policyUses.has(key) ? source.policy(key)?.message : undefined),
      parts.policies,
      removedPolicies,
    );
    this.#sent.profiles.drain(
      (name) => (this.#profileUses.has(name) ? source.profile(name)?.message : undefined),
      parts.profiles,
      parts.removedProfiles,
    );
    this.#sent.endpoints.drain(
      (id) => {
        const fact = ofNode(id, false);
        return fact && endpointMessage(fact, source.chosenBy(id), this.#profilesOf(fact), source.tiers);
      },
      parts.endpoints,
      parts.removedEndpoints,
    );
    this.#sent.hostEndpoints.drain(
      (id) => {
        const fact = ofNode(id, true);
        return fact && hostEndpointMessage(fact, source.chosenBy(id), source.tiers);
      },
      parts.hostEndpoints,
      parts.removedHostEndpoints,
    );
    this.#sent.hosts.drain((hostname) => source.hosts.get(hostname), parts.hosts, parts.removedHosts);
    return { ...parts, removedPolicies: removedPolicies.map(policyIdOf) };
  }

  #wholeSet(id: string): DataplaneSet | undefined {
    const set = this.#setUses.has(id) ? this.#source.sets.get(id) : undefined;
    return set && DataplaneSet.create({ id, type: set.definition.type, members: [...set.members.keys()] });
  }
}

function increment(counts: Map<string, number>, key: string): number {
  const count = (counts.get(key) ?? 0) + 1;
  counts.set(key, count);
  return count;
}

function decrement(counts: Map<string, number>, key: string): number {
  const count = (counts.get(key) ?? 0) - 1;
  if (count > 0) counts.set(key, count);
  else counts.delete(key);
  return count;
}
