/**
 * Plans worth mutating further: each was the first to reach some feature, a mark or a transition of a chart.
 *
 * A plan is picked by its features' rarity, and by its cost: one whose features many later plans reach as well gives way to others,
 * and so does one that runs for long.
 */
import type { SimOptions } from "../../../simulation/options.ts";
import type { SimRandom } from "../../../runtime/sim/random.ts";

interface Entry {
  readonly plan: SimOptions;
  /** Features that it was the first to reach. */
  readonly own: readonly string[];
  /** Steps of its run. */
  readonly steps: number;
  picked: number;
}

export class Corpus {
  readonly #entries: Entry[] = [];
  /** By feature: the number of runs that reached it. */
  readonly #reached = new Map<string, number>();

  get size(): number {
    return this.#entries.length;
  }

  /** Counts the features of a run; its plan is kept if any is new. Returns these. */
  add(plan: SimOptions, features: Iterable<string>, steps: number): readonly string[] {
    const own: string[] = [];
    for (const feature of features) {
      const before = this.#reached.get(feature) ?? 0;
      if (before === 0) own.push(feature);
      this.#reached.set(feature, before + 1);
    }
    if (own.length > 0) this.#entries.push({ plan, own, steps, picked: 0 });
    return own;
  }

  /** A plan to mutate; null while there is none. */
  pick(random: SimRandom): SimOptions | null {
    const weights = this.#entries.map(({ own, picked, steps }) => {
      const rarity = own.reduce((sum, feature) => sum + 1 / (this.#reached.get(feature) ?? 1), 0);
      return rarity / (1 + picked) / Math.max(1, steps);
    });
    let left = random.next() * weights.reduce((sum, weight) => sum + weight, 0);
    const at = weights.findIndex((weight) => (left -= weight) < 0);
    const entry = this.#entries.at(at);
    if (entry === undefined) return null;
    entry.picked += 1;
    return entry.plan;
  }
}
