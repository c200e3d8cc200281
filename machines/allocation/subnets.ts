/**
 * The subnets of the cluster's networks. Automatic ones come from the cluster's default address pools, in order, so that a
 * released one is reused as late as possible.
 *
 * M3: no two networks have addresses in common.
 */
import { addressAt, parseCidr, type Prefix } from "../../lib/ip-address.ts";

interface Held {
  readonly owner: string;
  readonly prefix: Prefix;
}

/** The default pools of the cluster object. */
export interface DefaultPools {
  readonly pools: readonly string[];
  /** Prefix length of each network's subnet. */
  readonly length: number;
}

export class SubnetSpace {
  /** Without overlaps, by family and first address. */
  readonly #held: Held[] = [];
  readonly #byOwner = new Map<string, Prefix[]>();
  /** The end of the last default subnet. */
  #next = 0n;

  /** Number of subnets held. */
  get count(): number {
    return this.#held.length;
  }

  /** A held subnet that overlaps. */
  conflict(prefix: Prefix): Held | undefined {
    const held = this.#held[this.#firstEndingAfter(prefix)];
    if (held === undefined || held.prefix.family !== prefix.family || held.prefix.value >= endOf(prefix))
      return undefined;
    return held;
  }

  /** Records the owner's subnet. False if it overlaps with another owner's (M3), which keeps it. */
  claim(owner: string, prefix: Prefix): boolean {
    if (this.conflict(prefix) !== undefined) return false;
    this.#held.splice(this.#firstEndingAfter(prefix), 0, { owner, prefix });
    const owned = this.#byOwner.get(owner);
    if (owned === undefined) this.#byOwner.set(owner, [prefix]);
    else owned.push(prefix);
    return true;
  }

  owns(owner: string, prefix: Prefix): boolean {
    return this.#byOwner.get(owner)?.some((held) => isSame(held, prefix)) ?? false;
  }

  /** Releases all subnets of the owner. True if there were any. */
  release(owner: string): boolean {
    for (const prefix of this.#byOwner.get(owner) ?? []) this.#held.splice(this.#firstEndingAfter(prefix), 1);
    return this.#byOwner.delete(owner);
  }

  /** Takes the next free subnet of the default pools; null if none is free. */
  take(owner: string, defaults: DefaultPools): Prefix | null {
    const pools = defaults.pools
      .map(parseCidr)
      .filter((pool): pool is Prefix => pool?.family === 4 && pool.length <= defaults.length);
    const started = pools.findIndex((pool) => this.#next >= pool.value && this.#next < endOf(pool));
    if (started >= 0) {
      const found =
        this.#freeIn(pools[started] as Prefix, this.#next, defaults.length) ??
        this.#freeInAny([...pools.slice(started + 1), ...pools.slice(0, started + 1)], defaults.length);
      return this.#taken(owner, found);
    }
    return this.#taken(owner, this.#freeInAny(pools, defaults.length));
  }

  /** The next default subnet is searched after this one. */
  continueAfter(prefix: Prefix): void {
    if (prefix.family === 4 && endOf(prefix) > this.#next) this.#next = endOf(prefix);
  }

  #taken(owner: string, prefix: Prefix | null): Prefix | null {
    if (prefix === null) return null;
    this.claim(owner, prefix);
    this.#next = endOf(prefix);
    return prefix;
  }

  #freeInAny(pools: readonly Prefix[], length: number): Prefix | null {
    for (const pool of pools) {
      const found = this.#freeIn(pool, pool.value, length);
      if (found !== null) return found;
    }
    return null;
  }

  #freeIn(pool: Prefix, from: bigint, length: number): Prefix | null {
    const size = 1n << BigInt(32 - length);
    let value = ((from + size - 1n) / size) * size;
    while (value < endOf(pool)) {
      const candidate: Prefix = { family: 4, value, length };
      const inTheWay = this.conflict(candidate);
      if (inTheWay === undefined) return candidate;
      value = ((endOf(inTheWay.prefix) + size - 1n) / size) * size;
    }
    return null;
  }

  /** Index of the first subnet that ends after the start of `prefix`: its place, or the first that may overlap with it. */
  #firstEndingAfter(prefix: Prefix): number {
    let [low, high] = [0, this.#held.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      const { prefix: held } = this.#held[middle] as Held;
      const isBefore = held.family < prefix.family || (held.family === prefix.family && endOf(held) <= prefix.value);
      if (isBefore) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

function endOf({ family, value, length }: Prefix): bigint {
  return value + (1n << BigInt((family === 4 ? 32 : 128) - length));
}

function isSame(a: Prefix, b: Prefix): boolean {
  return a.family === b.family && a.value === b.value && a.length === b.length;
}

export function cidrOf(prefix: Prefix): string {
  return `${addressAt(prefix, 0)}/${prefix.length}`;
}
