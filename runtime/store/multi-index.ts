/**
 * An index from a key to the ids that have it. Most keys of a cluster have one id (a slot has one live task, a name one
 * object), so a single id is kept as itself and only a second one makes a Set: a Set of one costs some 200 bytes.
 */
export class MultiIndex<Key> {
  readonly #entries = new Map<Key, string | Set<string>>();

  get size(): number {
    return this.#entries.size;
  }

  add(key: Key, id: string): void {
    const entry = this.#entries.get(key);
    if (entry === undefined) this.#entries.set(key, id);
    else if (typeof entry !== "string") entry.add(id);
    else if (entry !== id) this.#entries.set(key, new Set([entry, id]));
  }

  delete(key: Key, id: string): void {
    const entry = this.#entries.get(key);
    if (entry === undefined) return;
    if (typeof entry === "string") {
      if (entry === id) this.#entries.delete(key);
      return;
    }
    entry.delete(id);
    if (entry.size === 0) this.#entries.delete(key);
  }

  /** The id added first among those that are left; undefined when none is. */
  first(key: Key): string | undefined {
    const entry = this.#entries.get(key);
    if (entry === undefined || typeof entry === "string") return entry;
    for (const id of entry) return id;
    return undefined;
  }

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
