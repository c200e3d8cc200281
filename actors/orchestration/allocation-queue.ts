/** The allocator's queues, by kind of object. */
import { Waiting } from "../../machines/allocation/waiting.ts";

/** In the order in which they are allocated: tasks come after what they depend on. */
export const kinds = ["network", "node", "service", "task"] as const;
export type Kind = (typeof kinds)[number];

/** Objects of one kind: those due, those waiting for resources, and those being written. */
export class AllocationQueue {
  readonly due = new Set<string>();
  readonly waiting = new Waiting();
  readonly writing = new Set<string>();

  add(id: string): boolean {
    if (this.writing.has(id)) return false;
    this.due.add(id);
    return true;
  }

  /** Removes and yields due objects. */
  *take(most = Number.POSITIVE_INFINITY): Generator<string> {
    let left = most;
    for (const id of this.due) {
      if (left === 0) return;
      left -= 1;
      this.due.delete(id);
      if (!this.writing.has(id)) yield id;
    }
  }
}
