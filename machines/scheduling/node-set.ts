/**
 * What the scheduler knows of each node beside its object: what is free on it, what it runs and what failed there.
 * Brought along with every commit, and with every decision that is on its way to the log.
 *
 * N1: a task is charged to at most one node, from its decision or assignment until it is observed to have ended.
 *     (The record is in tracked.ts.)
 * N2: the order of nodes is that of their ids, whatever order they came in: the same state gives the same choice.
 */
import {
  NodeSpec_Availability,
  NodeStatus_State,
  PortConfig_PublishMode,
  TaskState,
  type GenericResource,
  type Node,
  type PortConfig,
  type Task,
  type Volume,
  type VolumeAttachment,
} from "../../proto/gen/messages.ts";
import { nodeNames } from "../node-names.ts";
import { GenericStock } from "./generic-resources.ts";
import { PluginLists, type Plugins } from "./plugins.ts";
import { noGeneric, noVolumes, Tracked } from "./tracked.ts";
import { VolumeSet } from "./volumes.ts";

/** From SwarmKit (manager semantics §4.4): so many failures in so many milliseconds count against a node. */
export const failurePenalty = { countMin: 5, windowMs: 5 * 60_000 } as const;

/** Keys of failures kept for a node before those that are too old are looked for. */
const failureKeysMax = 64;

/** Fields change in place; only NodeSet changes them. */
export class NodeInfo {
  readonly id: string;
  /** Its place in lists by node; taken over by another node only when this one is gone. */
  readonly place: number;
  /** Of the whole cluster: whether this node can give a task its volumes depends on who uses them elsewhere. */
  readonly volumes: VolumeSet;
  /** Null: it is not there (any more), but tasks still name it. */
  node: Node | null = null;
  isReady = false;
  freeNanoCpus = 0;
  freeMemoryBytes = 0;
  /** Null: it has none, and none is taken. */
  generic: GenericStock | null = null;
  /** Null: the node says nothing of its engine. */
  plugins: Plugins | null = null;
  /** Tasks that count, all and by service. */
  activeTasks = 0;
  /** These are made when there is something to count: most nodes of a new cluster run nothing. */
  #activeByService: Map<string, number> | null = null;
  #hostPorts: Map<number, number> | null = null;
  /** Tasks that hold something here, in no order. */
  readonly charges: Tracked[] = [];
  #failures: Map<string, number[]> | null = null;

  constructor(id: string, place: number, volumes: VolumeSet) {
    this.id = id;
    this.place = place;
    this.volumes = volumes;
  }

  activeOf(serviceId: string): number {
    return this.#activeByService?.get(serviceId) ?? 0;
  }

  hasHostPort(port: number): boolean {
    return this.#hostPorts?.has(port) === true;
  }

  countActive(serviceId: string, sign: 1 | -1): void {
    this.activeTasks += sign;
    count((this.#activeByService ??= new Map<string, number>()), serviceId, sign);
  }

  countHostPort(port: number, sign: 1 | -1): void {
    count((this.#hostPorts ??= new Map<number, number>()), port, sign);
  }

  recordFailure(key: string, at: number): void {
    // Most nodes never have one.
    const failures = (this.#failures ??= new Map<string, number[]>());
    if (failures.size >= failureKeysMax) {
      for (const [other, times] of failures) {
        if (Math.max(...times) <= at - failurePenalty.windowMs) failures.delete(other);
      }
    }
    const recent = (failures.get(key) ?? []).filter((time) => time > at - failurePenalty.windowMs);
    recent.push(at);
    failures.set(key, recent);
  }

  /** Failures that count against it: 0 below the threshold. */
  penalty(key: string, now: number): number {
    const times = this.#failures?.get(key);
    if (times === undefined) return 0;
    let count = 0;
    for (const time of times) if (time > now - failurePenalty.windowMs) count += 1;
    return count >= failurePenalty.countMin ? count : 0;
  }
}

/** What failures are counted by: the service and the version of its spec, as SwarmKit does; 0 for a task without one. */
export function groupKey(task: Task): string {
  return `${task.serviceId}/${task.specVersion?.index ?? 0}`;
}

function portKey(port: PortConfig): number {
  return port.protocol * 65_536 + port.publishedPort;
}

export function hostPortsOf(task: Task): readonly number[] {
  const ports =
    task.endpoint === null
      ? []
      : task.endpoint.ports.length > 0
        ? task.endpoint.ports
        : (task.endpoint.spec?.ports ?? []);
  if (ports.length === 0) return noPorts;
  return ports
    .filter(({ publishMode, publishedPort }) => publishMode === PortConfig_PublishMode.HOST && publishedPort !== 0)
    .map(portKey);
}

const noPorts: readonly number[] = [];

/** Whether the task holds what it reserved on its node. */
function isHolding(task: Task): boolean {
  const state = task.status?.state ?? TaskState.NEW;
  return task.nodeId !== "" && state > TaskState.PENDING && state <= TaskState.RUNNING;
}

export class NodeSet {
  /** Follows the same tasks as the nodes do; volumes themselves are put here by whoever follows them. */
  readonly volumes = new VolumeSet();
  readonly #nodes = new Map<string, NodeInfo>();
  readonly #tracked = new Map<string, Tracked>();
  readonly #plugins = new PluginLists();
  /** What nodes are called; null: since it was last asked, a hostname came, went or changed. */
  #names: ((id: string) => string) | null = null;
  readonly #freePlaces: number[] = [];
  #placesUsed = 0;
  #sorted: readonly NodeInfo[] | null = [];
  #changed = new Set<NodeInfo>();
  #revision = 0;

  /** Rises with everything that may make a node fit, unfit, better or worse. */
  get revision(): number {
    return this.#revision;
  }

  /** Nodes that exist, by id (N2). */
  get nodes(): readonly NodeInfo[] {
    this.#sorted ??= [...this.#nodes.values()]
      .filter((info) => info.node !== null)
      .sort((a, b) => (a.id < b.id ? -1 : 1));
    return this.#sorted;
  }

  /** One more than the highest place. */
  get places(): number {
    return this.#placesUsed;
  }

  find(id: string): NodeInfo | undefined {
    const info = this.#nodes.get(id);
    return info === undefined || info.node === null ? undefined : info;
  }

  /** What the node is called, which tells it from others of its hostname. */
  nameOf(id: string): string {
    this.#names ??= nodeNames(this.nodes.flatMap(({ node }) => (node === null ? [] : [node])));
    return this.#names(id);
  }

  /** The nodes that may take more, or other, tasks than when this was last asked, or are gone (`node` is null). */
  takeChanged(): ReadonlySet<NodeInfo> {
    const changed = this.#changed;
    if (changed.size > 0) this.#changed = new Set();
    return changed;
  }

  hasChanged(): boolean {
    return this.#changed.size > 0;
  }

  put(node: Node): void {
    const info = this.#info(node.id);
    const old = info.node;
    if (old === null) this.#sorted = null;
    info.node = node;
    if (old?.description?.hostname !== node.description?.hostname || old === null) this.#names = null;
    if (old !== null && isAlike(old, node)) return;
    info.isReady =
      node.status?.state === NodeStatus_State.READY &&
      (node.spec?.availability ?? NodeSpec_Availability.ACTIVE) === NodeSpec_Availability.ACTIVE;
    if (old === null || old.description !== node.description) describe(info, node, this.#plugins);
    this.#changed.add(info);
    this.#revision += 1;
  }

  remove(nodeId: string): void {
    const info = this.#nodes.get(nodeId);
    if (info === undefined || info.node === null) return;
    info.node = null;
    info.isReady = false;
    this.#sorted = null;
    this.#names = null;
    this.#revision += 1;
    // To the end: another node that takes over its place comes behind it.
    this.#changed.delete(info);
    this.#changed.add(info);
    this.#forget(info);
  }

  /** The record of a task, if there is one. */
  tracked(taskId: string): Tracked | null {
    return this.#tracked.get(taskId) ?? null;
  }

  /** Makes the record of a task that has none. */
  add(task: Task): Tracked {
    const tracked = new Tracked(task);
    this.#tracked.set(task.id, tracked);
    return tracked;
  }

  /** Forgets a task that neither waits nor holds anything. */
  untrack(tracked: Tracked): void {
    if (tracked.queue === null && tracked.on === null) this.#tracked.delete(tracked.task.id);
  }

  /** Takes the task as the store has it. `known`: its record, if there is one; what is left of it is returned. */
  follow(task: Task, known: Tracked | null = this.tracked(task.id)): Tracked | null {
    if (!isHolding(task)) {
      if (known === null) return null;
      this.#release(known);
      return known.queue === null ? null : known;
    }
    const tracked = known ?? this.add(task);
    if (tracked.isPlanned) {
      tracked.isPlanned = false;
      // From now on they are used.
      for (const { id } of tracked.volumes) this.volumes.touch(id);
    }
    this.#charge(tracked, task, this.#nodeOf(tracked, task.nodeId), task.assignedGenericResources, task.volumes);
    return tracked;
  }

  /** Charges what is decided but not yet in the store. */
  plan(
    task: Task,
    nodeId: string,
    generic: readonly GenericResource[] = noGeneric,
    volumes: readonly VolumeAttachment[] = noVolumes,
  ): void {
    this.planOn(this.tracked(task.id) ?? this.add(task), this.#info(nodeId), generic, volumes);
  }

  /** The same, where record and node are at hand. */
  planOn(
    tracked: Tracked,
    info: NodeInfo,
    generic: readonly GenericResource[],
    volumes: readonly VolumeAttachment[],
  ): void {
    this.#charge(tracked, tracked.task, info, generic, volumes);
    tracked.isPlanned = true;
  }

  /** Volumes to be published elsewhere than they are, as they should be written. */
  takeRepublished(): readonly Volume[] {
    return this.volumes.hasTouched
      ? this.volumes.takeRepublished((taskId) => this.#tracked.get(taskId)?.isPlanned === true)
      : [];
  }

  release(taskId: string): void {
    const tracked = this.#tracked.get(taskId);
    if (tracked !== undefined) this.#release(tracked);
  }

  #release(tracked: Tracked): void {
    this.#uncharge(tracked);
    this.untrack(tracked);
  }

  #uncharge(tracked: Tracked): void {
    const info = tracked.on;
    if (info === null) return;
    const last = info.charges.pop() as Tracked;
    if (last !== tracked) {
      info.charges[tracked.at] = last;
      last.at = tracked.at;
    }
    account(info, tracked, -1);
    if (tracked.volumes.length > 0) this.volumes.release(tracked.task.id, tracked.volumes);
    tracked.on = null;
    tracked.isPlanned = false;
    tracked.generic = noGeneric;
    tracked.volumes = noVolumes;
    this.#revision += 1;
    if (info.node === null) this.#forget(info);
    else this.#changed.add(info);
  }

  #charge(
    tracked: Tracked,
    task: Task,
    info: NodeInfo,
    generic: readonly GenericResource[],
    volumes: readonly VolumeAttachment[],
  ): void {
    const isActive = task.desiredState <= TaskState.COMPLETE;
    // Most changes of a task (it starts, it runs) change nothing of what it holds.
    if (
      tracked.on === info &&
      tracked.isActive === isActive &&
      tracked.task.spec === task.spec &&
      tracked.generic.length === generic.length &&
      tracked.volumes.length === volumes.length
    ) {
      tracked.task = task;
      return;
    }
    // N1
    this.#uncharge(tracked);
    tracked.task = task;
    tracked.on = info;
    tracked.at = info.charges.length;
    tracked.isActive = isActive;
    tracked.generic = generic;
    tracked.volumes = volumes;
    info.charges.push(tracked);
    account(info, tracked, 1);
    if (volumes.length > 0) this.volumes.use(task, info.id, volumes);
    this.#revision += 1;
  }

  /** Mostly the one it is on already. */
  #nodeOf({ on }: Tracked, nodeId: string): NodeInfo {
    return on !== null && on.id === nodeId ? on : this.#info(nodeId);
  }

  #info(id: string): NodeInfo {
    let info = this.#nodes.get(id);
    if (info === undefined)
      this.#nodes.set(id, (info = new NodeInfo(id, this.#freePlaces.pop() ?? this.#placesUsed++, this.volumes)));
    return info;
  }

  #forget(info: NodeInfo): void {
    if (info.charges.length > 0) return;
    this.#nodes.delete(info.id);
    this.#freePlaces.push(info.place);
  }
}

/** Whether nothing that the scheduler looks at has changed: certificates, attachments and messages come and go. */
function isAlike(old: Node, next: Node): boolean {
  return (
    old.spec === next.spec &&
    old.description === next.description &&
    old.role === next.role &&
    old.status?.state === next.status?.state &&
    old.status?.addr === next.status?.addr
  );
}

/** What the node has, less what its tasks hold. */
function describe(info: NodeInfo, { description }: Node, lists: PluginLists): void {
  const resources = description?.resources ?? null;
  info.freeNanoCpus = resources?.nanoCpus ?? 0;
  info.freeMemoryBytes = resources?.memoryBytes ?? 0;
  info.generic = resources === null || resources.generic.length === 0 ? null : new GenericStock(resources.generic);
  info.plugins = description?.engine == null ? null : lists.of(description.engine.plugins);
  for (const charge of info.charges) hold(info, charge, 1);
}

function account(info: NodeInfo, charge: Tracked, sign: 1 | -1): void {
  const { task, isActive } = charge;
  hold(info, charge, sign);
  for (const port of hostPortsOf(task)) info.countHostPort(port, sign);
  if (isActive) info.countActive(task.serviceId, sign);
}

function hold(info: NodeInfo, { task, generic }: Tracked, sign: 1 | -1): void {
  const reserved = task.spec?.resources?.reservations ?? null;
  if (reserved !== null) {
    info.freeNanoCpus -= sign * reserved.nanoCpus;
    info.freeMemoryBytes -= sign * reserved.memoryBytes;
  }
  if (generic.length === 0) return;
  info.generic ??= new GenericStock([]);
  if (sign > 0) info.generic.take(generic);
  else info.generic.giveBack(generic);
}

function count<Key>(counts: Map<Key, number>, key: Key, sign: 1 | -1): void {
  const next = (counts.get(key) ?? 0) + sign;
  if (next === 0) counts.delete(key);
  else counts.set(key, next);
}
