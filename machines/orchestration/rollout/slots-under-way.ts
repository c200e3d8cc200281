/** The changing slots of a rollout, and their progress deadlines. */
import { Heap } from "./heap.ts";
import { isEarlier, type Due, type TrackedSlot } from "./tracked-slot.ts";

export class SlotsUnderWay {
  readonly #slots = new Set<TrackedSlot>();
  readonly #deadlines = new Heap<Due>(isEarlier);

  get size(): number {
    return this.#slots.size;
  }

  /** The slot that started first. */
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

  /** Sets the deadline of the slot's current task, in milliseconds since the epoch. */
  expect(slot: TrackedSlot, byMs: number): void {
    this.#deadlines.push({ atMs: byMs, slot, taskId: slot.taskId });
  }

  /** The earliest deadline that still applies. */
  firstDeadline(): Due | undefined {
    for (;;) {
      const due = this.#deadlines.first();
      if (due === undefined) return undefined;
      const { slot, taskId } = due;
      if (slot.state === "changing" && slot.taskId === taskId && this.#slots.has(slot)) return due;
      this.#deadlines.dropFirst();
    }
  }

  /** Removes and returns a deadline that has passed. */
  takeDue(nowMs: number): Due | undefined {
    const due = this.firstDeadline();
    if (due === undefined || due.atMs > nowMs) return undefined;
    this.#deadlines.dropFirst();
    return due;
  }
}
