/**
 * The VXLAN network identifiers of the cluster's overlay networks.
 *
 * M4: an id belongs to one network.
 */

/** SwarmKit's: automatic ids start here; smaller ones can be requested. */
export const vxlanIdFirst = 4096;
/** 24 bits: RFC 7348 §5. */
export const vxlanIdLast = 2 ** 24 - 1;

export class VxlanSpace {
  readonly #owners = new Map<number, string>();
  readonly #held = new Map<string, number[]>();
  #next = vxlanIdFirst;

  /** Number of ids held. */
  get count(): number {
    return this.#owners.size;
  }

  owner(id: number): string | undefined {
    return this.#owners.get(id);
  }

  /** False if another owner has it (M4). */
  claim(owner: string, id: number): boolean {
    const holder = this.#owners.get(id);
    if (holder !== undefined) return holder === owner;
    this.#owners.set(id, owner);
    const held = this.#held.get(owner);
    if (held === undefined) this.#held.set(owner, [id]);
    else held.push(id);
    return true;
  }

  /** The next free id after the one allocated last; null if all are taken. */
  take(owner: string): number | null {
    const count = vxlanIdLast - vxlanIdFirst + 1;
    for (let step = 0; step < count; step += 1) {
      const id = vxlanIdFirst + ((this.#next - vxlanIdFirst + step) % count);
      if (this.#owners.has(id)) continue;
      this.claim(owner, id);
      this.#next = id + 1;
      return id;
    }
    return null;
  }

  /** The next id is searched after this one. */
  continueAfter(id: number): void {
    if (id >= this.#next && id <= vxlanIdLast) this.#next = id + 1;
  }

  /** Releases all ids of the owner. True if there were any. */
  release(owner: string): boolean {
    for (const id of this.#held.get(owner) ?? []) this.#owners.delete(id);
    return this.#held.delete(owner);
  }
}

export function isVxlanId(id: number): boolean {
  return Number.isInteger(id) && id > 0 && id <= vxlanIdLast;
}
