/**
 * The order of slots in a rollout (U1 of the tracker): waiting slots, admitted slots that have not been processed yet, and
 * slots that rest for the update delay after their change.
 */
import { Heap } from "./heap.ts";
import { isEarlier, isWaiting, type Due, type TrackedSlot } from "./tracked-slot.ts";

export class TurnQueue {
  /** Slots that were waiting when added: without a running task, and with one. */
  readonly #down = new Heap<TrackedSlot>(isLower);
  readonly #up = new Heap<TrackedSlot>(isLower);
  readonly #admitted = new Set<string>();
  readonly #resting = new Map<TrackedSlot, number>();
  readonly #rests = new Heap<Due>(isEarlier);

  /** Number of admitted slots that have not been processed yet. */
  get admitted(): number {
    return this.#admitted.size;
  }

  get resting(): number {
    return this.#resting.size;
  }

  has(slot: string): boolean {
    return this.#admitted.has(slot);
  }

  enter(slot: TrackedSlot): void {
    (slot.isUp ? this.#up : this.#down).push(slot);
  }

  /** The slot no longer waits. */
  leave({ name }: TrackedSlot): void {
    this.#admitted.delete(name);
  }

  rest(slot: TrackedSlot, untilMs: number): void {
    this.#resting.set(slot, untilMs);
    this.#rests.push({ atMs: untilMs, slot, taskId: slot.taskId });
  }

  endRest(slot: TrackedSlot): void {
    this.#resting.delete(slot);
  }

  endRests(nowMs: number): void {
    for (let due = this.#rests.first(); due !== undefined && due.atMs <= nowMs; due = this.#rests.first()) {
      this.#rests.dropFirst();
      if (this.#resting.get(due.slot) === due.atMs) this.#resting.delete(due.slot);
    }
  }

  /** When the first rest may end, in milliseconds since the epoch. */
  firstRestMs(): number | null {
    return this.#rests.first()?.atMs ?? null;
  }

  /** Admits at most `capacity` slots and returns them. `batch`: only these may be admitted. */
  admit(capacity: number, batch: ReadonlySet<string> | null): readonly string[] {
    const admitted: string[] = [];
    const passed: TrackedSlot[] = [];
    while (admitted.length < capacity) {
      const slot = this.#take();
      if (slot === undefined) break;
      if (this.#admitted.has(slot.name)) continue;
      if (batch !== null && !batch.has(slot.name)) {
        passed.push(slot);
        continue;
      }
      this.#admitted.add(slot.name);
      admitted.push(slot.name);
    }
    for (const slot of passed) this.enter(slot);
    return admitted;
  }

  /** The names of the first waiting slots, without admitting them. */
  first(count: number): readonly string[] {
    const taken = new Set<TrackedSlot>();
    while (taken.size < count) {
      const slot = this.#take();
      if (slot === undefined) break;
      taken.add(slot);
    }
    for (const slot of taken) this.enter(slot);
    return [...taken].map(({ name }) => name);
  }

  /** Removes and returns the first slot that still waits. */
  #take(): TrackedSlot | undefined {
    for (const waiting of [this.#down, this.#up]) {
      for (let slot = waiting.first(); slot !== undefined; slot = waiting.first()) {
        waiting.dropFirst();
        if (isWaiting(slot) && slot.isUp === (waiting === this.#up)) return slot;
      }
    }
    return undefined;
  }
}

function isLower(a: TrackedSlot, b: TrackedSlot): boolean {
  return a.slot === b.slot ? a.nodeId < b.nodeId : a.slot < b.slot;
}
