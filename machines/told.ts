/**
 * What the follower of a stream of objects was told: between two updates changes are merged, since only that an object changed is
 * kept and not how.
 */

/** Objects of one sort: which the follower has, and which to look at again. */
export class Told {
  readonly #has = new Set<string>();
  readonly #dirty = new Set<string>();

  touch(key: string): void {
    this.#dirty.add(key);
  }

  has(key: string): boolean {
    return this.#has.has(key);
  }

  willBeWhole(key: string): boolean {
    return this.#dirty.has(key);
  }

  /** Each that is to be told, or null where the follower has one that is no more. */
  drain<Message>(now: (key: string) => Message | undefined, changed: Message[], gone: string[]): void {
    for (const key of this.#dirty) {
      const message = now(key);
      if (message !== undefined) {
        this.#has.add(key);
        changed.push(message);
      } else if (this.#has.delete(key)) {
        gone.push(key);
      }
    }
    this.#dirty.clear();
  }
}
