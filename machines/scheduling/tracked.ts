/**
 * The scheduler's records of tasks and nodes, which refer to each other: where a task waits, or what it holds on a node. Each change of a task looks its
 * record up by id once, and everything else follows references: with 100,000 tasks, a lookup by id costs more than the
 * decision.
 *
 * N1: a task is charged to at most one node, from its decision or assignment until it is observed to have ended.
 * B1: a task waits, or is charged to a node, or neither; never both.
 */
import type { GenericResource, Node, Task, VolumeAttachment } from "../../proto/gen/messages.ts";
import type { GenericStock } from "./generic-resources.ts";
import type { Plugins } from "./plugins.ts";
import type { VolumeSet } from "./volumes.ts";

/** Fields change in place; only NodeSet and TaskQueue change them. */
export class Tracked {
  task: Task;
  /** The queue that it waits in, and its neighbours there. */
  queue: TaskQueue | null = null;
  next: Tracked | null = null;
  previous: Tracked | null = null;
  /** The last explanation sent while it waits; it may not be in the status yet. */
  reported: string | null = null;
  /** The node that it is charged to, and its index in that node's charges. */
  on: NodeInfo | null = null;
  at = 0;
  /** It counts as one of the node's tasks; a stopping task only holds its resources. */
  isActive = false;
  /** It is decided, but not yet in the store. */
  isPlanned = false;
  generic: readonly GenericResource[] = noGeneric;
  volumes: readonly VolumeAttachment[] = noVolumes;

  constructor(task: Task) {
    this.task = task;
  }
}

export const noGeneric: readonly GenericResource[] = [];
export const noVolumes: readonly VolumeAttachment[] = [];

/** Waiting tasks, first in, first out. */
export class TaskQueue {
  #first: Tracked | null = null;
  #last: Tracked | null = null;
  #size = 0;

  get first(): Tracked | null {
    return this.#first;
  }

  get size(): number {
    return this.#size;
  }

  /** The task must not be in a queue. */
  add(tracked: Tracked): void {
    tracked.queue = this;
    tracked.previous = this.#last;
    if (this.#last === null) this.#first = tracked;
    else this.#last.next = tracked;
    this.#last = tracked;
    this.#size += 1;
  }

  /** The task must be in this queue. */
  remove(tracked: Tracked): void {
    const { previous, next } = tracked;
    if (previous === null) this.#first = next;
    else previous.next = next;
    if (next === null) this.#last = previous;
    else next.previous = previous;
    tracked.queue = null;
    tracked.next = null;
    tracked.previous = null;
    this.#size -= 1;
  }
}

/** SwarmKit's (manager semantics §4.4): this many failures within the window (milliseconds) count against a node. */
export const failurePenalty = { countMin: 5, windowMs: 5 * 60_000 } as const;

/** Failure keys per node above which expired ones are removed. */
const failureKeysMax = 64;

/** Fields change in place; only NodeSet changes them. */
export class NodeInfo {
  readonly id: string;
  /** Its index in arrays by node; reused by another node only after this one is removed. */
  readonly place: number;
  /** The whole cluster's: whether a task can use a volume on this node depends on its users elsewhere. */
  readonly volumes: VolumeSet;
  /** Null: it does not exist (any more), but tasks still refer to it. */
  node: Node | null = null;
  isReady = false;
  freeNanoCpus = 0;
  freeMemoryBytes = 0;
  /** Null: none offered and none in use. */
  generic: GenericStock | null = null;
  /** Null: the node reports nothing about its engine. */
  plugins: Plugins | null = null;
  /** Active tasks, all and by service. */
  activeTasks = 0;
  /** Created on first use: most nodes of a new cluster run nothing. */
  #activeByService: Map<string, number> | null = null;
  #hostPorts: Map<number, number> | null = null;
  /** Tasks charged to this node, unordered. */
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
    // Created on first use: most nodes never have failures.
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

  /** Failures that count against the node; 0 below the threshold. */
  penalty(key: string, now: number): number {
    const times = this.#failures?.get(key);
    if (times === undefined) return 0;
    let count = 0;
    for (const time of times) if (time > now - failurePenalty.windowMs) count += 1;
    return count >= failurePenalty.countMin ? count : 0;
  }
}

function count<Key>(counts: Map<Key, number>, key: Key, sign: 1 | -1): void {
  const next = (counts.get(key) ?? 0) + sign;
  if (next === 0) counts.delete(key);
  else counts.set(key, next);
}
