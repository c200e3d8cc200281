/**
 * The desired state of this node: maps in which each message of main replaces or removes one entry, and the units that must be
 * rendered again. Messages may arrive in any order, repeatedly, or about unknown objects.
 *
 * W1: the state depends only on the last message about each object, never on the order between objects.
 * W2: a change marks exactly the units that refer to the changed object.
 */
import type {
  HostEndpoint,
  HostEndpointID,
  IPAMPool,
  Policy,
  Profile,
  ToDataplane,
  WorkloadEndpoint,
  WorkloadEndpointID,
} from "../../proto/gen/felix.ts";
import type { Settings } from "./config.ts";
import type { Evaluation } from "./output.ts";
import { IpSet, IpSetType } from "./ip-set.ts";
import { isInterfaceName } from "./names.ts";
import { policyKey } from "./policy-key.ts";

export interface Workload {
  readonly id: WorkloadEndpointID;
  readonly endpoint: WorkloadEndpoint;
}

export interface Host {
  readonly id: HostEndpointID;
  readonly endpoint: HostEndpoint;
}

/** Units of rendering. `key`: policy, profile, or interface. */
export type Unit =
  | { readonly kind: "policy" | "profile" | "workload"; readonly key: string }
  | { readonly kind: "evaluation"; readonly key: string; readonly evaluation: Evaluation }
  | { readonly kind: "hosts" | "base"; readonly key: "" };

export const unitKey = ({ kind, key }: Unit): string => `${kind} ${key}`;

/** Our own sets, besides main's: masqueraded pools, all pools, and nodes. Main's ids never contain a space. */
export const ownSets = { masqueraded: "pools masqueraded", pools: "pools all", nodes: "nodes all" } as const;

export class Desired {
  readonly settings: Settings;
  readonly sets = new Map<string, IpSet>();
  /** Sets that were removed or have another type now, and that the kernel still has. */
  readonly retired = new Map<string, IpSet>();
  readonly policies = new Map<string, Policy>();
  readonly profiles = new Map<string, Profile>();
  readonly workloads = new Map<string, Workload>();
  readonly hosts = new Map<string, Host>();
  /** Keys of the workloads that name an interface: the smallest key gets it. */
  readonly #byInterface = new Map<string, Set<string>>();
  readonly #pools = new Map<string, IPAMPool>();
  readonly #nodes = new Map<string, string>();
  readonly #dirtyUnits = new Map<string, Unit>();
  readonly #dirtySets = new Set<string>();
  /** Units whose rules name a set; set by `rendered`. */
  readonly #setUsers = new Map<string, Map<string, Unit>>();
  readonly #setsOf = new Map<string, readonly string[]>();

  constructor(settings: Settings) {
    this.settings = settings;
    this.markBase();
  }

  /** False if the message changes nothing here. */
  take(message: ToDataplane): boolean {
    const { workloadEndpointUpdate: workload, workloadEndpointRemove: noWorkload } = message;
    if (message.ipsetUpdate !== null) {
      const { id, type, members } = message.ipsetUpdate;
      const set = this.#setFor(id, type);
      const wasUsable = set.isUsable;
      set.replace(members);
      this.#markSet(id, wasUsable !== set.isUsable);
    } else if (message.ipsetDeltaUpdate !== null) {
      const { id, addedMembers, removedMembers } = message.ipsetDeltaUpdate;
      const set = this.sets.get(id) ?? this.#setFor(id, IpSetType.IP);
      const wasUsable = set.isUsable;
      set.change(addedMembers, removedMembers);
      this.#markSet(id, wasUsable !== set.isUsable);
    } else if (message.ipsetRemove !== null) {
      this.#retire(message.ipsetRemove.id);
    } else if (message.activePolicyUpdate?.id != null) {
      const { id, policy } = message.activePolicyUpdate;
      const key = policyKey(id);
      if (policy === null) this.policies.delete(key);
      else this.policies.set(key, policy);
      this.mark({ kind: "policy", key });
    } else if (message.activePolicyRemove?.id != null) {
      const key = policyKey(message.activePolicyRemove.id);
      if (this.policies.delete(key)) this.mark({ kind: "policy", key });
    } else if (message.activeProfileUpdate?.id != null) {
      const { id, profile } = message.activeProfileUpdate;
      if (profile === null) this.profiles.delete(id.name);
      else this.profiles.set(id.name, profile);
      this.mark({ kind: "profile", key: id.name });
    } else if (message.activeProfileRemove?.id != null) {
      const { name } = message.activeProfileRemove.id;
      if (this.profiles.delete(name)) this.mark({ kind: "profile", key: name });
    } else if (workload?.id != null) {
      this.#forgetWorkload(workloadKey(workload.id));
      if (workload.endpoint !== null) this.#addWorkload({ id: workload.id, endpoint: workload.endpoint });
    } else if (noWorkload?.id != null) {
      this.#forgetWorkload(workloadKey(noWorkload.id));
    } else if (message.hostEndpointUpdate?.id != null) {
      const { id, endpoint } = message.hostEndpointUpdate;
      if (endpoint === null) this.hosts.delete(id.endpointId);
      else this.hosts.set(id.endpointId, { id, endpoint });
      this.mark({ kind: "hosts", key: "" });
    } else if (message.hostEndpointRemove?.id != null) {
      if (this.hosts.delete(message.hostEndpointRemove.id.endpointId)) this.mark({ kind: "hosts", key: "" });
    } else if (message.ipamPoolUpdate !== null) {
      const { id, pool } = message.ipamPoolUpdate;
      if (pool === null) this.#pools.delete(id);
      else this.#pools.set(id, pool);
      this.#renewPools();
    } else if (message.ipamPoolRemove !== null) {
      if (this.#pools.delete(message.ipamPoolRemove.id)) this.#renewPools();
    } else if (message.hostMetadataUpdate !== null) {
      this.#nodes.set(message.hostMetadataUpdate.hostname, message.hostMetadataUpdate.ipv4Addr);
      this.#renewNodes();
    } else if (message.hostMetadataRemove !== null) {
      if (this.#nodes.delete(message.hostMetadataRemove.hostname)) this.#renewNodes();
    } else {
      return false;
    }
    return true;
  }

  /** The workload that has the interface, or null. */
  workloadAt(interfaceName: string): Workload | null {
    const keys = this.#byInterface.get(interfaceName);
    if (keys === undefined) return null;
    let least: string | null = null;
    for (const key of keys) if (least === null || key < least) least = key;
    return least === null ? null : (this.workloads.get(least) ?? null);
  }

  /** The type of a set that rules may use; null if it is unknown or unusable. */
  typeOf(id: string): IpSetType | null {
    const set = this.sets.get(id);
    return set === undefined || !set.isUsable ? null : set.type;
  }

  get hasPools(): boolean {
    return [...this.#pools.values()].some(({ masquerade }) => masquerade);
  }

  mark(unit: Unit): void {
    this.#dirtyUnits.set(unitKey(unit), unit);
  }

  markBase(): void {
    this.mark({ kind: "base", key: "" });
  }

  takeDirtyUnits(): Unit[] {
    const units = [...this.#dirtyUnits.values()];
    this.#dirtyUnits.clear();
    return units;
  }

  takeDirtySets(): readonly string[] {
    const ids = [...this.#dirtySets];
    this.#dirtySets.clear();
    return ids;
  }

  get isDirty(): boolean {
    return this.#dirtyUnits.size > 0 || this.#dirtySets.size > 0 || this.retired.size > 0;
  }

  /** The sets that the unit's rules name: a change of their usability marks the unit. W2 */
  rendered(unit: Unit, sets: readonly string[]): void {
    const key = unitKey(unit);
    for (const id of this.#setsOf.get(key) ?? []) {
      const users = this.#setUsers.get(id);
      users?.delete(key);
      if (users?.size === 0) this.#setUsers.delete(id);
    }
    if (sets.length === 0) this.#setsOf.delete(key);
    else this.#setsOf.set(key, sets);
    for (const id of sets) {
      const users = this.#setUsers.get(id) ?? new Map<string, Unit>();
      this.#setUsers.set(id, users.set(key, unit));
    }
  }

  #addWorkload(workload: Workload): void {
    const key = workloadKey(workload.id);
    this.workloads.set(key, workload);
    const { name } = workload.endpoint;
    // Without a valid interface name it stays closed: no interface leads to it.
    if (!isInterfaceName(name)) return;
    const keys = this.#byInterface.get(name) ?? new Set<string>();
    this.#byInterface.set(name, keys.add(key));
    this.mark({ kind: "workload", key: name });
  }

  #forgetWorkload(key: string): void {
    const name = this.workloads.get(key)?.endpoint.name;
    this.workloads.delete(key);
    const keys = name === undefined ? undefined : this.#byInterface.get(name);
    if (name === undefined || keys === undefined) return;
    keys.delete(key);
    if (keys.size === 0) this.#byInterface.delete(name);
    this.mark({ kind: "workload", key: name });
  }

  #setFor(id: string, type: IpSetType): IpSet {
    const known = this.sets.get(id);
    if (known?.type === type) return known;
    if (known !== undefined) this.#retire(id);
    const retired = this.retired.get(retiredKey(id, type));
    const set = retired ?? new IpSet(id, type);
    this.retired.delete(retiredKey(id, type));
    // Its return marks the units that name it: they were rendered without it.
    this.sets.set(id, set);
    this.#markSet(id, true);
    return set;
  }

  #retire(id: string): void {
    const set = this.sets.get(id);
    if (set === undefined) return;
    this.sets.delete(id);
    if (set.isInstalled) this.retired.set(retiredKey(id, set.type), set);
    this.#dirtySets.delete(id);
    this.#markUsers(id);
  }

  #markSet(id: string, isUsersToo: boolean): void {
    this.#dirtySets.add(id);
    if (isUsersToo) this.#markUsers(id);
  }

  #markUsers(id: string): void {
    for (const unit of this.#setUsers.get(id)?.values() ?? []) this.mark(unit);
  }

  #renewPools(): void {
    const pools = [...this.#pools.values()];
    const cidrs = (list: readonly IPAMPool[]): readonly string[] => list.map(({ cidr }) => cidr);
    const before = this.sets.get(ownSets.pools) !== undefined;
    this.#setFor(ownSets.masqueraded, IpSetType.NET).replace(cidrs(pools.filter(({ masquerade }) => masquerade)));
    this.#setFor(ownSets.pools, IpSetType.NET).replace(cidrs(pools));
    for (const id of [ownSets.masqueraded, ownSets.pools]) this.#markSet(id, !before);
    this.markBase();
  }

  #renewNodes(): void {
    if (!this.settings.isIpInIp) return;
    this.#setFor(ownSets.nodes, IpSetType.IP).replace([...this.#nodes.values()]);
    this.#markSet(ownSets.nodes, false);
    this.markBase();
  }
}

const retiredKey = (id: string, type: IpSetType): string => `${type} ${id}`;

export function workloadKey(id: WorkloadEndpointID): string {
  return [id.orchestratorId, id.workloadId, id.endpointId].join("\0");
}
