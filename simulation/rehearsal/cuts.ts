/** Cuts of the network that may overlap: a pair is connected again when the last of its cuts has ended. */
import type { SimNetwork } from "../../runtime/sim/network.ts";

export class Cuts {
  readonly #network: SimNetwork;
  readonly #counts = new Map<string, number>();

  constructor(network: SimNetwork) {
    this.#network = network;
  }

  /** In both directions. */
  cut(one: string, other: string): void {
    const count = this.#count(one, other, 1);
    if (count > 1) return;
    this.#network.cut(one, other);
    this.#network.cut(other, one);
  }

  heal(one: string, other: string): void {
    const count = this.#count(one, other, -1);
    if (count > 0) return;
    this.#network.heal(one, other);
    this.#network.heal(other, one);
  }

  #count(one: string, other: string, change: number): number {
    const pair = [one, other].sort().join(" ");
    const count = (this.#counts.get(pair) ?? 0) + change;
    this.#counts.set(pair, count);
    return count;
  }
}
