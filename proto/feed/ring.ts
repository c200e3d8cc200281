/** The newest items, up to a number. */
export class Ring<Item> {
  readonly #max: number;
  #items: Item[] = [];
  #next = 0;

  /** `max`: at least 1. */
  constructor(max: number) {
    this.#max = max;
  }

  push(item: Item): void {
    if (this.#items.length < this.#max) this.#items.push(item);
    else this.#items[this.#next] = item;
    this.#next = (this.#next + 1) % this.#max;
  }

  /** Oldest first. */
  items(): readonly Item[] {
    if (this.#items.length < this.#max) return this.#items.slice();
    return [...this.#items.slice(this.#next), ...this.#items.slice(0, this.#next)];
  }
}
