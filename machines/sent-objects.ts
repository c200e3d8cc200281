/** Which objects the follower of a stream has, and which changed since the last update: an update sends each at most once. */

/** The objects of one kind. */
export class SentObjects {
  readonly #sent = new Set<string>();
  readonly #changed = new Set<string>();

  touch(key: string): void {
    this.#changed.add(key);
  }

  /** Whether the follower has the object. */
  has(key: string): boolean {
    return this.#sent.has(key);
  }

  /** Whether the next update sends or removes the object. */
  isPending(key: string): boolean {
    return this.#changed.has(key);
  }

  /** Adds objects to send to `changed`, and keys of objects that the follower has and that no longer exist to `removed`. */
  drain<Message>(now: (key: string) => Message | undefined, changed: Message[], removed: string[]): void {
    for (const key of this.#changed) {
      const message = now(key);
      if (message !== undefined) {
        this.#sent.add(key);
        changed.push(message);
      } else if (this.#sent.delete(key)) {
        removed.push(key);
      }
    }
    this.#changed.clear();
  }
}
