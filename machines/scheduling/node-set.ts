/**
 * The scheduler's bookkeeping for each node: what is free on it, what it runs and what failed there. Updated with every
 * commit, and with every decision in flight to the log.
 *
 * N1: a task is charged to at most one node, from its decision or assignment until it is observed to have ended.
 *     (The record is in tracked.ts.)
 * N2: nodes are ordered by id, not by arrival, so that the same state gives the same choice.
 */
import { takesTasks } from "../node.ts";
import { isHeld, isWanted, observedState, specVersionOf } from "../task.ts";
import {
  PortConfig_PublishMode,
  type GenericResource,
  type Node,
  type PortConfig,
  type Task,
  type Volume,
  type VolumeAttachment,
} from "../../proto/gen/messages.ts";
import { nodeNames } from "../node-names.ts";
import { GenericStock } from "./generic-resources.ts";
import { PluginLists } from "./plugins.ts";
import { NodeInfo, noGeneric, noVolumes, Tracked } from "./tracked.ts";
import { VolumeSet } from "./volumes.ts";

/** The key that failures are counted by: service and spec version, as in SwarmKit; version 0 for a task without one. */
export function groupKey(task: Task): string {
  return `${task.serviceId}/${specVersionOf(task)}`;
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

/** Whether the task holds its reservations on its node. */
function isHolding(task: Task): boolean {
  return task.nodeId !== "" && isHeld(observedState(task));
}

export class NodeSet {
  /** Follows the same tasks as the nodes; the caller puts the volumes themselves. */
  readonly volumes = new VolumeSet();
  readonly #nodes = new Map<string, NodeInfo>();
  readonly #tracked = new Map<string, Tracked>();
  readonly #plugins = new PluginLists();
  /** Display names of nodes; null: to be recomputed, since a hostname was added, removed or changed. */
  #names: ((id: string) => string) | null = null;
  readonly #freePlaces: number[] = [];
  #placesUsed = 0;
  #sorted: readonly NodeInfo[] | null = [];
  #changed = new Set<NodeInfo>();
  #revision = 0;

  /** Increases with every change that may affect whether, or how well, a node fits. */
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

  /** The highest place plus one. */
  get places(): number {
    return this.#placesUsed;
  }

  find(id: string): NodeInfo | undefined {
    const info = this.#nodes.get(id);
    return info === undefined || info.node === null ? undefined : info;
  }

  /** The node's display name, unique even if hostnames repeat. */
  nameOf(id: string): string {
    this.#names ??= nodeNames(this.nodes.flatMap(({ node }) => (node === null ? [] : [node])));
    return this.#names(id);
  }

  /** Nodes that may accept more or other tasks than at the last call, or were removed (`node` is null). */
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
    info.isReady = takesTasks(node);
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
    // Move to the end: a node that reuses its place must come after it.
    this.#changed.delete(info);
    this.#changed.add(info);
    this.#forget(info);
  }

  /** The record of a task; null if there is none. */
  tracked(taskId: string): Tracked | null {
    return this.#tracked.get(taskId) ?? null;
  }

  /** Creates the record of a task that is not tracked. */
  add(task: Task): Tracked {
    const tracked = new Tracked(task);
    this.#tracked.set(task.id, tracked);
    return tracked;
  }

  /** Forgets a task that neither waits nor holds anything. */
  untrack(tracked: Tracked): void {
    if (tracked.queue === null && tracked.on === null) this.#tracked.delete(tracked.task.id);
  }

  /** Updates the task from the store. `known`: its record, if any. Returns the record if it is still needed. */
  follow(task: Task, known: Tracked | null = this.tracked(task.id)): Tracked | null {
    if (!isHolding(task)) {
      if (known === null) return null;
      this.#release(known);
      return known.queue === null ? null : known;
    }
    const tracked = known ?? this.add(task);
    if (tracked.isPlanned) {
      tracked.isPlanned = false;
      // Now its volumes count as used.
      for (const { id } of tracked.volumes) this.volumes.touch(id);
    }
    this.#charge(tracked, task, this.#nodeOf(tracked, task.nodeId), task.assignedGenericResources, task.volumes);
    return tracked;
  }

  /** Charges a decision that is not yet in the store. */
  plan(
    task: Task,
    nodeId: string,
    generic: readonly GenericResource[] = noGeneric,
    volumes: readonly VolumeAttachment[] = noVolumes,
  ): void {
    this.planOn(this.tracked(task.id) ?? this.add(task), this.#info(nodeId), generic, volumes);
  }

  /** The same, for callers that have the record and the node. */
  planOn(
    tracked: Tracked,
    info: NodeInfo,
    generic: readonly GenericResource[],
    volumes: readonly VolumeAttachment[],
  ): void {
    this.#charge(tracked, tracked.task, info, generic, volumes);
    tracked.isPlanned = true;
  }

  /** Volumes with a changed publish status, as they should be written. */
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
    const isActive = isWanted(task);
    // Most changes of a task (it starts, it runs) do not change what it holds.
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

  /** Usually the node that it is already charged to. */
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

/** Whether all fields that the scheduler reads are unchanged; certificates, attachments and messages change often. */
function isAlike(old: Node, next: Node): boolean {
  return (
    old.spec === next.spec &&
    old.description === next.description &&
    old.role === next.role &&
    old.status?.state === next.status?.state &&
    old.status?.addr === next.status?.addr
  );
}

/** Sets the free resources: what the node has, minus what its tasks hold. */
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
