/**
 * Connections of one class, by where they come from. There is always room for a new one: the oldest of whoever has the most
 * goes, so that one source that takes all places only displaces itself.
 *
 * W1: no more than `max` in all and `perSourceMax` of one source.
 */
import { isIPv6 } from "node:net";

export interface Member {
  /** True while we owe it something: such a member goes only when its source has no other. */
  readonly isServed: boolean;
}

/** Groups of an IPv6 address that name a network, of which one machine usually has all addresses. */
const networkGroups = 4;

/** Who is counted together: an IPv4 address, or the /64 network of an IPv6 address. */
export function sourceOf(address: string): string {
  const plain = address.replace(/^::ffff:(?=\d+\.)/, "");
  if (!isIPv6(plain)) return plain;
  const [head = "", tail] = plain.split("%")[0]?.split("::") ?? [];
  const groups = head === "" ? [] : head.split(":");
  const rest = tail === undefined || tail === "" ? [] : tail.split(":");
  const zeros = tail === undefined ? 0 : Math.max(0, 8 - groups.length - rest.length);
  return [...groups, ...Array.from({ length: zeros }, () => "0"), ...rest].slice(0, networkGroups).join(":");
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
