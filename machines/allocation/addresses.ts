/**
 * The addresses of one network: its subnets, and which of their addresses are taken. Allocates in order, so that a released
 * address is reused as late as possible.
 *
 * M2: the network address, the broadcast address, the gateway and addresses that the user reserved are never allocated.
 */
import type { IPAMConfig } from "../../proto/gen/messages.ts";
import {
  addressAt,
  containsRange,
  offsetIn,
  parseAddress,
  parseCidr,
  prefixSize,
  type Prefix,
} from "../../lib/ip-address.ts";
import { NumberSpace, numbersMax } from "./numbers.ts";

/** The number of addresses held in all spaces that share it. */
export interface Census {
  addresses: number;
}

interface Pool {
  readonly prefix: Prefix;
  /** Only the first `numbersMax` addresses are allocated; others can be requested explicitly and are kept here. */
  readonly near: NumberSpace;
  readonly far: Set<number>;
  /** Offsets of automatic allocation, first to last. */
  readonly first: number;
  readonly last: number;
}

/** Addresses are strings with the subnet's prefix length, such as `10.0.1.5/24`, as in attachments and virtual IPs. */
export class AddressSpace {
  readonly #pools: Pool[] = [];
  readonly #census: Census;
  #holders = 0;

  /** Configs of a network whose addresses were resolved; unreadable ones are ignored. */
  constructor(configs: readonly IPAMConfig[], census: Census = { addresses: 0 }) {
    this.#census = census;
    for (const { subnet, range, gateway, reserved } of configs) {
      const prefix = parseCidr(subnet);
      if (prefix === null) continue;
      const pool = poolOf(prefix, range === "" ? null : parseCidr(range));
      this.#pools.push(pool);
      for (const kept of [gateway, ...Object.values(reserved)]) {
        const offset = offsetOf(pool, kept);
        if (offset >= 0) mark(pool, offset);
      }
    }
  }

  /** Number of addresses that were claimed or taken and not released. */
  get holders(): number {
    return this.#holders;
  }

  /** An upper bound of the number of free addresses; 0 only if there are none. */
  get room(): number {
    let room = 0;
    for (const { near, first, last } of this.#pools)
      if (near.hasFree(first, last)) room += Math.min(last - first + 1, near.size - near.used);
    return room;
  }

  /** The subnets, for messages. */
  get name(): string {
    return this.#pools.map(({ prefix }) => `${addressAt(prefix, 0)}/${prefix.length}`).join(", ");
  }

  /** Takes the next free address from the first subnet that has one; null if all are taken. */
  take(): string | null {
    for (const pool of this.#pools) {
      const offset = pool.near.take(pool.first, pool.last);
      if (offset < 0) continue;
      this.#count(1);
      return `${addressAt(pool.prefix, offset)}/${pool.prefix.length}`;
    }
    return null;
  }

  /** Takes the requested address (with or without a prefix length), or says why it cannot. */
  takeExactly(asked: string): { readonly address: string } | { readonly problem: string } {
    for (const pool of this.#pools) {
      const offset = offsetOf(pool, asked);
      if (offset < 0) continue;
      if (!mark(pool, offset)) return { problem: `address ${asked} is already in use` };
      this.#count(1);
      return { address: `${addressAt(pool.prefix, offset)}/${pool.prefix.length}` };
    }
    return { problem: `address ${asked} is not in ${this.name}` };
  }

  /** Records an address that is already held. False if another object holds it, or if it is not in this network. */
  claim(address: string): boolean {
    for (const pool of this.#pools) {
      const offset = offsetOf(pool, address);
      if (offset < 0) continue;
      if (!mark(pool, offset)) return false;
      if (offset >= pool.first && offset <= pool.last) pool.near.continueAfter(offset);
      this.#count(1);
      return true;
    }
    return false;
  }

  #count(change: 1 | -1): void {
    this.#holders += change;
    this.#census.addresses += change;
  }

  release(address: string): boolean {
    for (const pool of this.#pools) {
      const offset = offsetOf(pool, address);
      if (offset < 0) continue;
      if (!(offset < pool.near.size ? pool.near.release(offset) : pool.far.delete(offset))) return false;
      this.#count(-1);
      return true;
    }
    return false;
  }
}

function poolOf(prefix: Prefix, range: Prefix | null): Pool {
  const size = prefixSize(prefix);
  const near = new NumberSpace(Math.min(size, numbersMax));
  // M2. Point-to-point subnets (/31, /32, /127, /128) have no network or broadcast address.
  if (size > 2) near.claim(0);
  if (prefix.family === 4 && size > 2) near.claim(size - 1);
  const inner = range !== null && containsRange(prefix, range) ? range : prefix;
  const first = Math.min(Number(inner.value - prefix.value), near.size);
  return { prefix, near, far: new Set(), first, last: Math.min(first + prefixSize(inner), near.size) - 1 };
}

function mark(pool: Pool, offset: number): boolean {
  if (offset < pool.near.size) return pool.near.claim(offset);
  if (pool.far.has(offset)) return false;
  pool.far.add(offset);
  return true;
}

/** -1 if the text is not an address of the pool. */
function offsetOf(pool: Pool, text: string): number {
  const slash = text.indexOf("/");
  const address = slash < 0 ? text : text.slice(0, slash);
  if (pool.prefix.family === 4) return offsetIn(pool.prefix, address);
  const parsed = parseAddress(address);
  if (parsed === null || parsed.family !== 6) return -1;
  const offset = parsed.value - pool.prefix.value;
  // Offsets beyond 2^53 are not exact numbers; no real subnet uses addresses there.
  return offset < 0n || offset >= BigInt(prefixSize(pool.prefix)) ? -1 : Number(offset);
}
