/**
 * An index from a key to the ids that have it. Most keys of a cluster have one id (a slot has one live task, a name one
 * object), so a single id is kept as itself: a Set of one costs some 200 bytes. A few are an array, which is smaller than
 * a Set and quicker to add to; only many are a Set, where to find one in an array would take long.
 */

/** Ids of one key that are kept as an array: what a node runs. To find one among so many takes less than a microsecond. */
const arrayMax = 128;

export class MultiIndex<Key> {
  readonly #entries = new Map<Key, string | string[] | Set<string>>();

  get size(): number {
    return this.#entries.size;
  }

  /** An id that the key does not have: whoever keeps an index knows what changed. */
  add(key: Key, id: string): void {
    const entry = this.#entries.get(key);
    if (entry === undefined) this.#entries.set(key, id);
    else if (typeof entry === "string") this.#entries.set(key, [entry, id]);
    else if (entry instanceof Set) entry.add(id);
    else if (entry.length < arrayMax) entry.push(id);
    else this.#entries.set(key, new Set(entry).add(id));
  }

  delete(key: Key, id: string): void {
    const entry = this.#entries.get(key);
    if (entry === undefined) return;
    if (typeof entry === "string") {
      if (entry === id) this.#entries.delete(key);
      return;
    }
    if (entry instanceof Set) {
      entry.delete(id);
      if (entry.size === 0) this.#entries.delete(key);
      return;
    }
    const at = entry.indexOf(id);
    if (at < 0) return;
    entry.splice(at, 1);
    if (entry.length === 0) this.#entries.delete(key);
  }

  /** The id added first among those that are left; undefined when none is. */
  first(key: Key): string | undefined {
    for (const id of this.ids(key)) return id;
    return undefined;
  }

  /** In the order in which they were added. One that is deleted meanwhile may hide another. */
  *ids(key: Key): Generator<string> {
    const entry = this.#entries.get(key);
    if (entry === undefined) return;
    if (typeof entry === "string") yield entry;
    else yield* entry;
  }

  *allIds(): Generator<string> {
    for (const entry of this.#entries.values()) {
      if (typeof entry === "string") yield entry;
      else yield* entry;
    }
  }

  clear(): void {
    this.#entries.clear();
  }
}
