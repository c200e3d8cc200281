/** The slots of a rollout whose new task is on its way, and by when each must run. */
import { Heap } from "./heap.ts";
import { isEarlier, type Due, type TrackedSlot } from "./tracked-slot.ts";

export class SlotsUnderWay {
  readonly #slots = new Set<TrackedSlot>();
  readonly #deadlines = new Heap<Due>(isEarlier);

  get size(): number {
    return this.#slots.size;
  }

  /** The one that set out first. */
  first(): TrackedSlot | undefined {
    for (const slot of this.#slots) return slot;
    return undefined;
  }

  add(slot: TrackedSlot): void {
    this.#slots.add(slot);
  }

  delete(slot: TrackedSlot): void {
    this.#slots.delete(slot);
  }

  /** The task that the slot has now must run by then, in milliseconds since the epoch. */
  expect(slot: TrackedSlot, byMs: number): void {
    this.#deadlines.push({ atMs: byMs, slot, taskId: slot.taskId });
  }

  /** The deadline that comes first, of those that still mean something. */
  firstDeadline(): Due | undefined {
    for (;;) {
      const due = this.#deadlines.first();
      if (due === undefined) return undefined;
      const { slot, taskId } = due;
      if (slot.state === "changing" && slot.taskId === taskId && this.#slots.has(slot)) return due;
      this.#deadlines.dropFirst();
    }
  }

  /** Takes out a deadline that has passed. */
  takeDue(nowMs: number): Due | undefined {
    const due = this.firstDeadline();
    if (due === undefined || due.atMs > nowMs) return undefined;
    this.#deadlines.dropFirst();
    return due;
  }
}
