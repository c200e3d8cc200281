/**
 * Generic resources: a node has, of each kind, a number (discrete) or a set of named ones. A task reserves a number, and gets
 * the names of the ones assigned to it.
 */
import { DiscreteGenericResource, GenericResource, NamedGenericResource } from "../../proto/gen/messages.ts";

/** A node's resources of one kind. */
interface Stock {
  /** Free discrete ones; negative if the node offers fewer than before. */
  count: number;
  /** Name → whether it is free. */
  readonly names: Map<string, boolean>;
}

export interface GenericWant {
  readonly kind: string;
  readonly count: number;
}

/** The free generic resources of one node. */
export class GenericStock {
  /** Most nodes have none. */
  #kinds: Map<string, Stock> | null = null;

  constructor(offered: readonly GenericResource[]) {
    for (const { namedResourceSpec: named, discreteResourceSpec: discrete } of offered) {
      if (named !== null) this.#kind(named.kind).names.set(named.value, true);
      if (discrete !== null) this.#kind(discrete.kind).count += discrete.value;
    }
  }

  has(wants: readonly GenericWant[]): boolean {
    return wants.every(({ kind, count }) => this.free(kind) >= count);
  }

  free(kind: string): number {
    const stock = this.#kinds?.get(kind);
    if (stock === undefined) return 0;
    let free = Math.max(0, stock.count);
    for (const isFree of stock.names.values()) if (isFree) free += 1;
    return free;
  }

  /** The resources that a task would get now: named ones first, in the node's order. Does not reserve them. */
  choose(wants: readonly GenericWant[]): readonly GenericResource[] {
    const chosen: GenericResource[] = [];
    for (const { kind, count } of wants) {
      let missing = count;
      for (const [value, isFree] of this.#kinds?.get(kind)?.names ?? []) {
        if (missing === 0) break;
        if (!isFree) continue;
        chosen.push(GenericResource.create({ namedResourceSpec: NamedGenericResource.create({ kind, value }) }));
        missing -= 1;
      }
      if (missing === 0) continue;
      chosen.push(
        GenericResource.create({ discreteResourceSpec: DiscreteGenericResource.create({ kind, value: missing }) }),
      );
    }
    return chosen;
  }

  take(assigned: readonly GenericResource[]): void {
    this.#move(assigned, -1);
  }

  giveBack(assigned: readonly GenericResource[]): void {
    this.#move(assigned, 1);
  }

  #move(assigned: readonly GenericResource[], sign: 1 | -1): void {
    for (const { namedResourceSpec: named, discreteResourceSpec: discrete } of assigned) {
      if (discrete !== null) this.#kind(discrete.kind).count += sign * discrete.value;
      if (named === null) continue;
      const { names } = this.#kind(named.kind);
      // Ignores names that the node no longer offers.
      if (names.has(named.value)) names.set(named.value, sign > 0);
    }
  }

  #kind(kind: string): Stock {
    const kinds = (this.#kinds ??= new Map<string, Stock>());
    let stock = kinds.get(kind);
    if (stock === undefined) kinds.set(kind, (stock = { count: 0, names: new Map() }));
    return stock;
  }
}
