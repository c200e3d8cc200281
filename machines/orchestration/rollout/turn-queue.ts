/**
 * Whose turn it is in a rollout: slots that wait, in their order (U1 of the tracker), those whose turn has come and which
 * have not been tended yet, and those that rest for the delay after their change.
 */
import { Heap } from "./heap.ts";
import { isEarlier, isWaiting, type Due, type TrackedSlot } from "./tracked-slot.ts";

export class TurnQueue {
  /** Slots that waited when they were put in, without a task that ran and with one. */
  readonly #down = new Heap<TrackedSlot>(isLower);
  readonly #up = new Heap<TrackedSlot>(isLower);
  readonly #admitted = new Set<string>();
  readonly #resting = new Map<TrackedSlot, number>();
  readonly #rests = new Heap<Due>(isEarlier);

  /** Slots whose turn has come, and which wait still. */
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

  /** It waits no longer. */
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

  /** The slots whose turn comes now, at most `room`. `batch`: no others may have one. */
  admit(room: number, batch: ReadonlySet<string> | null): readonly string[] {
    const admitted: string[] = [];
    const passed: TrackedSlot[] = [];
    while (admitted.length < room) {
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

  /** The names of the first slots that wait; their turn has not come by that. */
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

  /** The first that still waits. */
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
