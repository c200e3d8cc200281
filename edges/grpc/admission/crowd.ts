/**
 * Connections of one class, by where they come from. There is always room for a new one: the oldest of whoever has the most
 * goes, so that one source that takes all places only displaces itself.
 *
 * W1: no more than `max` in all and `perSourceMax` of one source.
 */
export interface Member {
  /** True while we owe it something: such a member goes only when its source has no other. */
  readonly isServed: boolean;
}

export class Crowd<Each extends Member> {
  readonly #max: number;
  /** Of each source, oldest first. */
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

  /** Returns the member that has to go for it, already removed; null for none. */
  add(source: string, member: Each, perSourceMax: number): Each | null {
    let members = this.#bySource.get(source);
    if (members === undefined) this.#bySource.set(source, (members = new Set()));
    members.add(member);
    this.#size += 1;
    if (members.size > perSourceMax) return this.#takeOldest(source);
    return this.#size > this.#max ? this.#takeOldest(this.#mostCrowded()) : null;
  }

  /** The oldest of the source that has the most, removed, to make room elsewhere; null when there is nobody. */
  displace(): Each | null {
    return this.#takeOldest(this.#mostCrowded());
  }

  /** False when it is no member. */
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
