/** A simulated operator: a number of operations at random times, each abandoned when refused. */
import type { SimRandom } from "../../runtime/sim/random.ts";
import type { SimPorts } from "../../runtime/sim/simulation.ts";
import type { SimClient } from "./client.ts";

export interface OperationsOptions {
  readonly ports: SimPorts;
  readonly operations: number;
  /** The operations are spread over this many milliseconds. */
  readonly withinMs: number;
}

export class Operations {
  readonly #options: OperationsOptions;
  readonly #random: SimRandom;
  readonly #client: SimClient;
  #done = 0;

  constructor(options: OperationsOptions, random: SimRandom, client: SimClient) {
    this.#options = options;
    this.#random = random;
    this.#client = client;
  }

  get areDone(): boolean {
    return this.#done === this.#options.operations;
  }

  /** `isFirstAtOnce`: the first operation runs at once, so that the others have something to change. */
  start(operate: () => Promise<void>, isFirstAtOnce: boolean): void {
    const { operations, ports, withinMs } = this.#options;
    for (let operation = 0; operation < operations; operation += 1) {
      const at = operation === 0 && isFirstAtOnce ? 0 : this.#random.between(0, withinMs);
      ports.clock.after(at, () => void this.#client.attempt(operate).then(() => (this.#done += 1)));
    }
  }
}
