/**
 * Puts the steps of several processes in the order of their times: each arrives within the interval in which feeds are sent, and
 * waits for earlier ones of other processes as long.
 */

/** Items; at more, the oldest no longer waits. */
const heldMax = 50_000;

interface Item {
  readonly ms: number;
  readonly apply: () => void;
}

export class Held {
  readonly #holdMs: number;
  #items: Item[] = [];
  #newestMs = 0;

  constructor(holdMs: number) {
    this.#holdMs = holdMs;
  }

  /** Time of the oldest item that waits; infinite if none does. */
  get oldestMs(): number {
    return this.#items[0]?.ms ?? Number.POSITIVE_INFINITY;
  }

  add(ms: number, apply: () => void): void {
    if (this.#holdMs === 0) {
      apply();
      return;
    }
    this.#newestMs = Math.max(this.#newestMs, ms);
    this.#items.splice(this.#placeOf(ms), 0, { ms, apply });
  }

  /** After the items of the same time. */
  #placeOf(ms: number): number {
    let [low, high] = [0, this.#items.length];
    // Most items are the newest.
    if (high === 0 || (this.#items[high - 1] as Item).ms <= ms) return high;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#items[middle] as Item).ms <= ms) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Applies what has waited long enough. Items may be up to `toMs`, which is ahead of the present by the time of waiting. */
  release(toMs: number): void {
    const untilMs = Math.min(this.#newestMs, toMs - this.#holdMs) - this.#holdMs;
    let count = Math.max(0, this.#items.length - heldMax);
    while (count < this.#items.length && (this.#items[count] as Item).ms <= untilMs) count += 1;
    this.#apply(count);
  }

  releaseAll(): void {
    this.#apply(this.#items.length);
  }

  #apply(count: number): void {
    if (count === 0) return;
    const ready = this.#items.slice(0, count);
    this.#items = this.#items.slice(count);
    for (const { apply } of ready) apply();
  }
}
