/**
 * Connections of one class, by source. There is always space for a new one: the oldest connection of the source that has the
 * most is displaced, so that a source that takes every place only displaces itself.
 *
 * W1: at most `max` connections in total, and `perSourceMax` of one source.
 */
export interface Member {
  /** True while the connection waits for our answer: it is displaced only if its source has no other. */
  readonly isServed: boolean;
}

export class Crowd<Each extends Member> {
  readonly #max: number;
  /** By source, oldest first. */
  readonly #bySource = new Map<string, Set<Each>>();
  #size = 0;

  constructor(max: number) {
    this.#max = max;
  }

  get size(): number {
    return this.#size;
  }

  *[Symbol.iterator](): Iterator<Each> {
    for (const members of this.#bySource.values()) yield* members;
  }

  /** Returns the member that is displaced, already removed, or null. */
  add(source: string, member: Each, perSourceMax: number): Each | null {
    let members = this.#bySource.get(source);
    if (members === undefined) this.#bySource.set(source, (members = new Set()));
    members.add(member);
    this.#size += 1;
    if (members.size > perSourceMax) return this.#takeOldest(source);
    return this.#size > this.#max ? this.#takeOldest(this.#mostCrowded()) : null;
  }

  /** Removes and returns the oldest member of the source that has the most; null if there are no members. */
  displace(): Each | null {
    return this.#takeOldest(this.#mostCrowded());
  }

  /** False if it was not a member. */
  remove(source: string, member: Each): boolean {
    const members = this.#bySource.get(source);
    if (members?.delete(member) !== true) return false;
    if (members.size === 0) this.#bySource.delete(source);
    this.#size -= 1;
    return true;
  }

  #mostCrowded(): string {
    let source = "";
    let most = 0;
    for (const [each, { size }] of this.#bySource) {
      if (size <= most) continue;
      source = each;
      most = size;
    }
    return source;
  }

  #takeOldest(source: string): Each | null {
    let oldest: Each | null = null;
    for (const member of this.#bySource.get(source) ?? []) {
      oldest ??= member;
      if (member.isServed) continue;
      oldest = member;
      break;
    }
    if (oldest !== null) this.remove(source, oldest);
    return oldest;
  }
}
