/**
 * What the scheduler remembers of one task: where it waits for a node, or what it holds on one. There is one such record for
 * each task that does either, found by the task's id once for each change of it; everything else follows references. With
 * 100,000 tasks a look-up by id costs more than the decision it serves.
 *
 * N1: a task is charged to at most one node, from its decision or assignment until it is observed to have ended.
 * B1: a task waits, or is charged to a node, or neither; never both.
 */
import type { GenericResource, Task, VolumeAttachment } from "../../proto/gen/messages.ts";
import type { NodeInfo } from "./node-set.ts";

/** Fields change in place; only NodeSet and TaskQueue change them. */
export class Tracked {
  task: Task;
  /** Where it waits, and its neighbours there. */
  queue: TaskQueue | null = null;
  next: Tracked | null = null;
  previous: Tracked | null = null;
  /** What it was told last while it waits; its status may not say so yet. */
  told: string | null = null;
  /** The node that it is charged to, and its place in that node's list. */
  on: NodeInfo | null = null;
  at = 0;
  /** It counts as one of the node's tasks; one that is to stop only holds what it has. */
  isActive = false;
  /** It is decided, but the store does not show it yet. */
  isPlanned = false;
  generic: readonly GenericResource[] = noGeneric;
  volumes: readonly VolumeAttachment[] = noVolumes;

  constructor(task: Task) {
    this.task = task;
  }
}

export const noGeneric: readonly GenericResource[] = [];
export const noVolumes: readonly VolumeAttachment[] = [];

/** Tasks that wait at one place, in the order in which they came. */
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

  /** Of a task that waits nowhere. */
  add(tracked: Tracked): void {
    tracked.queue = this;
    tracked.previous = this.#last;
    if (this.#last === null) this.#first = tracked;
    else this.#last.next = tracked;
    this.#last = tracked;
    this.#size += 1;
  }

  /** Of one of its own. */
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
