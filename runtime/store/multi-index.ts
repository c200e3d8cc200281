/**
 * An index from a key to the ids that have it. Most keys of a cluster have one id (a slot has one live task, a name one
 * object), which is stored directly: a Set of one costs some 200 bytes. A few ids are an array, which is smaller than a Set and
 * quicker to add to; only many are a Set, because searching an array would take long.
 */

/** Most ids of one key that are kept as an array: what a node runs. Searching that many takes less than a microsecond. */
const arrayMax = 128;

export class MultiIndex<Key> {
  readonly #entries = new Map<Key, string | string[] | Set<string>>();

  get size(): number {
    return this.#entries.size;
  }

  /** The key must not have the id: callers know what changed. */
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

  /** The oldest remaining id; undefined if there is none. */
  first(key: Key): string | undefined {
    for (const id of this.ids(key)) return id;
    return undefined;
  }

  /** In insertion order. An id that is deleted meanwhile may hide another. */
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
