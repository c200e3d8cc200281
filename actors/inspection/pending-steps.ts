/**
 * Steps that a listener has not received yet. Their number is bounded: beyond it, only the newest step of each actor stays, and
 * counts those before it.
 *
 * PS1: an actor's newest step is never dropped, unless all are (`overflows`).
 * PS2: the end of an actor is never dropped: it comes before the first step of a later actor with its id.
 */
import type { ObservedStep } from "../../runtime/observation/step.ts";

/** Five seconds at 2,000 steps/s; about 4 MB. */
export const pendingStepsMax = 10_000;

interface PendingStep {
  readonly step: ObservedStep;
  withContext: boolean;
  /** Steps of the actor left out before it. */
  skipped: number;
  /** Another actor with this id has ended in a step that was left out, and its end was not told. */
  endedBefore: boolean;
}

export class PendingSteps {
  #steps: PendingStep[] = [];
  /** Steps left out since `takeDropped`. */
  #dropped = 0;
  #isOverflown = false;
  readonly #max: number;

  constructor(max = pendingStepsMax) {
    this.#max = max;
  }

  get size(): number {
    return this.#steps.length;
  }

  /** Too many actors moved: the listener needs a snapshot. */
  get isOverflown(): boolean {
    return this.#isOverflown;
  }

  add(step: ObservedStep, withContext: boolean): void {
    if (this.#isOverflown) {
      this.#dropped += 1;
      return;
    }
    if (this.#steps.length >= this.#max) this.#thin();
    if (!this.#isOverflown) this.#steps.push({ step, withContext, skipped: 0, endedBefore: false });
    else this.#dropped += 1;
  }

  /** Hands out the oldest ones until `take` refuses one, which stays. */
  takeWhile(take: (pending: PendingStep) => boolean): void {
    let count = 0;
    try {
      while (count < this.#steps.length && take(this.#steps[count] as PendingStep)) count += 1;
    } finally {
      this.#steps.splice(0, count);
    }
  }

  takeDropped(): number {
    const dropped = this.#dropped;
    this.#dropped = 0;
    return dropped;
  }

  /** A snapshot replaces them. */
  clear(): void {
    this.#steps = [];
    this.#isOverflown = false;
  }

  /** PS1, PS2 */
  #thin(): void {
    const newest = new Map<string, PendingStep>();
    for (const pending of this.#steps) {
      const { id } = pending.step;
      const before = newest.get(id);
      if (before !== undefined) {
        // Last in the order.
        newest.delete(id);
        this.#dropped += 1;
        const isAnother = before.step.status !== "active";
        pending.endedBefore ||= before.endedBefore || isAnother;
        pending.skipped += isAnother ? 0 : before.skipped + 1;
        pending.withContext ||= before.withContext;
      }
      newest.set(id, pending);
    }
    this.#steps = [...newest.values()];
    // Else it would be thinned again and again for few new steps.
    if (this.#steps.length <= this.#max / 2) return;
    this.#dropped += this.#steps.length;
    this.#steps = [];
    this.#isOverflown = true;
  }
}
