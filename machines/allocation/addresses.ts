/**
 * The addresses of one network: its subnets, and in each which addresses are taken. Gives them out in order, so that a
 * freed one is given again as late as possible.
 *
 * M2: the network's own address, its broadcast address, its gateway and what the user reserved are never given.
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
} from "../../runtime/ip-address.ts";
import { NumberSpace, numbersMax } from "./numbers.ts";

/** How much is held in all spaces that share it. */
export interface Census {
  addresses: number;
}

interface Pool {
  readonly prefix: Prefix;
  /** Only the first `numbersMax` addresses are given; others can be asked for by name and are kept here. */
  readonly near: NumberSpace;
  readonly far: Set<number>;
  /** Given without being asked for: from offset to offset. */
  readonly first: number;
  readonly last: number;
}

/** Addresses come and go as text with the subnet's prefix length, `10.0.1.5/24`, as attachments and virtual IPs carry them. */
export class AddressSpace {
  readonly #pools: Pool[] = [];
  readonly #census: Census;
  #holders = 0;

  /** Takes configs of a network whose addresses were resolved; those that cannot be read are left out. */
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

  /** How many addresses were claimed or taken and not released. */
  get holders(): number {
    return this.#holders;
  }

  /** How many addresses can be taken, at least as many as can: 0 only when none can. */
  get room(): number {
    let room = 0;
    for (const { near, first, last } of this.#pools)
      if (near.hasFree(first, last)) room += Math.min(last - first + 1, near.size - near.used);
    return room;
  }

  /** For people: the subnets. */
  get name(): string {
    return this.#pools.map(({ prefix }) => `${addressAt(prefix, 0)}/${prefix.length}`).join(", ");
  }

  /** Takes the next free address, of the first subnet that has one; null when none has. */
  take(): string | null {
    for (const pool of this.#pools) {
      const offset = pool.near.take(pool.first, pool.last);
      if (offset < 0) continue;
      this.#count(1);
      return `${addressAt(pool.prefix, offset)}/${pool.prefix.length}`;
    }
    return null;
  }

  /** Takes what was asked for, with or without a prefix length, or says why not. */
  takeExactly(asked: string): { readonly address: string } | { readonly problem: string } {
    for (const pool of this.#pools) {
      const offset = offsetOf(pool, asked);
      if (offset < 0) continue;
      if (!mark(pool, offset)) return { problem: `address ${asked} is taken` };
      this.#count(1);
      return { address: `${addressAt(pool.prefix, offset)}/${pool.prefix.length}` };
    }
    return { problem: `address ${asked} is not in ${this.name}` };
  }

  /** Notes what is held already. False when it is another's, or none of this network's. */
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
  // M2. Point-to-point subnets (/31, /32, /127, /128) have neither.
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

/** -1 for what is not an address of the pool. */
function offsetOf(pool: Pool, text: string): number {
  const slash = text.indexOf("/");
  const address = slash < 0 ? text : text.slice(0, slash);
  if (pool.prefix.family === 4) return offsetIn(pool.prefix, address);
  const parsed = parseAddress(address);
  if (parsed === null || parsed.family !== 6) return -1;
  const offset = parsed.value - pool.prefix.value;
  // Beyond 2^53 an offset is no exact number any more; no subnet that people make has addresses there that they name.
  return offset < 0n || offset >= BigInt(prefixSize(pool.prefix)) ? -1 : Number(offset);
}
