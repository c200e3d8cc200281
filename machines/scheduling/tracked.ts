/**
 * The scheduler's record of one task: where it waits for a node, or what it holds on one. Each change of a task looks its
 * record up by id once, and everything else follows references: with 100,000 tasks, a lookup by id costs more than the
 * decision.
 *
 * N1: a task is charged to at most one node, from its decision or assignment until it is observed to have ended.
 * B1: a task waits, or is charged to a node, or neither; never both.
 */
import type { GenericResource, Task, VolumeAttachment } from "../../proto/gen/messages.ts";
import type { NodeInfo } from "./node-set.ts";

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
