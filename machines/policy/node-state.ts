/**
 * The state of one node's dataplane: keyed objects, and the updates from one state to the next. The manager computes it, the
 * agent stores it, and the driver's main side translates it.
 *
 * D1: applying `difference(a, b)` to `a` gives `b`; an empty update changes nothing.
 * D2: a fresh state replaces the old one only when it is complete.
 */
import {
  DataplaneConfig,
  DataplanePolicyId,
  DataplaneSet,
  DataplaneSetDelta,
  DataplaneUpdate,
  type DataplaneEndpoint,
  type DataplaneHost,
  type DataplaneHostEndpoint,
  type DataplanePolicy,
  type DataplaneProfile,
  type DataplaneSetType,
} from "../../proto/gen/messages.ts";
import { isSameMessage } from "../same-message.ts";
import { joined } from "./pieces.ts";

interface NodeSet {
  readonly type: DataplaneSetType;
  readonly members: Set<string>;
}

/** Modified in place only by `applyUpdate`. */
export interface NodeState {
  config: DataplaneConfig;
  /** By id, like endpoints and host endpoints. */
  readonly sets: Map<string, NodeSet>;
  /** By name. */
  readonly profiles: Map<string, DataplaneProfile>;
  /** By `policyKey`. */
  readonly policies: Map<string, DataplanePolicy>;
  readonly endpoints: Map<string, DataplaneEndpoint>;
  readonly hostEndpoints: Map<string, DataplaneHostEndpoint>;
  /** By hostname. */
  readonly hosts: Map<string, DataplaneHost>;
}

export function emptyState(): NodeState {
  return {
    config: DataplaneConfig.create({}),
    sets: new Map(),
    profiles: new Map(),
    policies: new Map(),
    endpoints: new Map(),
    hostEndpoints: new Map(),
    hosts: new Map(),
  };
}

/** Neither part contains a space. */
export function policyKey({ tier, name }: { readonly tier: string; readonly name: string }): string {
  return `${tier} ${name}`;
}

export function policyIdOf(key: string): DataplanePolicyId {
  const space = key.indexOf(" ");
  return DataplanePolicyId.create({ tier: key.slice(0, space), name: key.slice(space + 1) });
}

function keyOf({ id }: DataplanePolicy): string {
  return policyKey(id ?? DataplanePolicyId.create({}));
}

/** Ignores `fresh` and `in_sync`. Removing unknown objects and adding existing members has no effect. */
export function applyUpdate(state: NodeState, update: DataplaneUpdate): void {
  if (update.config !== null) state.config = update.config;
  for (const { id, type, members } of update.sets) state.sets.set(id, { type, members: new Set(members) });
  for (const { id, added, removed } of update.setDeltas) {
    const set = state.sets.get(id);
    if (set === undefined) continue;
    for (const member of removed) set.members.delete(member);
    for (const member of added) set.members.add(member);
  }
  for (const each of update.profiles) state.profiles.set(each.name, each);
  for (const each of update.policies) state.policies.set(keyOf(each), each);
  for (const each of update.endpoints) state.endpoints.set(each.id, each);
  for (const each of update.hostEndpoints) state.hostEndpoints.set(each.id, each);
  for (const each of update.hosts) state.hosts.set(each.hostname, each);
  for (const id of update.removedEndpoints) state.endpoints.delete(id);
  for (const id of update.removedHostEndpoints) state.hostEndpoints.delete(id);
  for (const id of update.removedPolicies) state.policies.delete(policyKey(id));
  for (const name of update.removedProfiles) state.profiles.delete(name);
  for (const id of update.removedSets) state.sets.delete(id);
  for (const name of update.removedHosts) state.hosts.delete(name);
}

/** Whether it only says that the state is complete. */
export function isEmptyUpdate(update: DataplaneUpdate): boolean {
  return (
    update.config === null &&
    [
      update.sets,
      update.setDeltas,
      update.profiles,
      update.policies,
      update.endpoints,
      update.hostEndpoints,
      update.hosts,
      update.removedEndpoints,
      update.removedHostEndpoints,
      update.removedPolicies,
      update.removedProfiles,
      update.removedSets,
      update.removedHosts,
    ].every((list) => list.length === 0)
  );
}

/** The whole state as one fresh update. */
export function wholeState(state: NodeState, version = 0): DataplaneUpdate {
  return DataplaneUpdate.patch(difference(emptyState(), state), {
    fresh: true,
    inSync: true,
    version,
    config: state.config,
  });
}

/** D1. The update is in sync: it leads to a complete state. */
export function difference(before: NodeState, after: NodeState, version = 0): DataplaneUpdate {
  const sets: DataplaneSet[] = [];
  const setDeltas: DataplaneSetDelta[] = [];
  for (const [id, { type, members }] of after.sets) {
    const old = before.sets.get(id);
    if (old === undefined || old.type !== type) {
      sets.push(DataplaneSet.create({ id, type, members: [...members] }));
      continue;
    }
    const added = [...members].filter((member) => !old.members.has(member));
    const removed = [...old.members].filter((member) => !members.has(member));
    if (added.length + removed.length > 0) setDeltas.push(DataplaneSetDelta.create({ id, added, removed }));
  }
  return DataplaneUpdate.create({
    inSync: true,
    version,
    config: isSameMessage(before.config, after.config) ? null : after.config,
    sets,
    setDeltas,
    profiles: changed(before.profiles, after.profiles),
    policies: changed(before.policies, after.policies),
    endpoints: changed(before.endpoints, after.endpoints),
    hostEndpoints: changed(before.hostEndpoints, after.hostEndpoints),
    hosts: changed(before.hosts, after.hosts),
    removedEndpoints: missing(before.endpoints, after.endpoints),
    removedHostEndpoints: missing(before.hostEndpoints, after.hostEndpoints),
    removedPolicies: missing(before.policies, after.policies).map(policyIdOf),
    removedProfiles: missing(before.profiles, after.profiles),
    removedSets: missing(before.sets, after.sets),
    removedHosts: missing(before.hosts, after.hosts),
  });
}

function changed<Message>(before: ReadonlyMap<string, Message>, after: ReadonlyMap<string, Message>): Message[] {
  const list: Message[] = [];
  for (const [key, message] of after) {
    const old = before.get(key);
    if (old === undefined || !isSameMessage(old, message)) list.push(message);
  }
  return list;
}

function missing(before: ReadonlyMap<string, unknown>, after: ReadonlyMap<string, unknown>): string[] {
  return [...before.keys()].filter((key) => !after.has(key));
}

/**
 * An agent's side of the stream: takes updates and returns changes. While a fresh state arrives, the old one stays in force
 * (D2); then only the difference is returned.
 */
export class FollowedState {
  #state: NodeState = emptyState();
  #pieces: DataplaneUpdate[] = [];
  #isWhole = false;
  #version = 0;

  /** The state in force; empty until `isWhole`. */
  get state(): NodeState {
    return this.#state;
  }

  /** Whether a complete state was ever received. */
  get isWhole(): boolean {
    return this.#isWhole;
  }

  /** Version of the newest update in force; 0 before the first. */
  get version(): number {
    return this.#version;
  }

  /** The resulting change of the state in force; null until the update is complete. */
  take(piece: DataplaneUpdate): DataplaneUpdate | null {
    if (piece.fresh) this.#pieces = [];
    this.#pieces.push(piece);
    if (!piece.inSync) return null;
    const update = joined(this.#pieces);
    this.#pieces = [];
    if (!update.fresh) {
      // A delta without a base state.
      if (!this.#isWhole) return null;
      applyUpdate(this.#state, update);
      this.#version = update.version;
      return update;
    }
    const fresh = emptyState();
    applyUpdate(fresh, update);
    const change = this.#isWhole ? difference(this.#state, fresh, update.version) : wholeState(fresh, update.version);
    this.#state = fresh;
    this.#isWhole = true;
    this.#version = update.version;
    return change;
  }

  /** The stream broke: drops the incomplete update, and keeps the state in force. */
  interrupted(): void {
    this.#pieces = [];
  }
}
