/**
 * Decides which plan is explored next, and sums up what was reached. It is deterministic: the plan of a number depends on the start
 * seed and the results of earlier numbers only, however many processes run them.
 */
import type { SimOptions } from "../../../simulation/options.ts";
import { drawOptions } from "../../../simulation/options.ts";
import { SimRandom } from "../../../runtime/sim/random.ts";
import type { SimResult } from "../../../simulation/world.ts";
import { invariantOf } from "../shrinking/invariant.ts";
import { planOf } from "../shrinking/shrink.ts";
import { Corpus } from "./corpus.ts";
import { mutated } from "./mutations.ts";

/** A plan depends on all results but those of the newest plans before it, this many: they may still be running. */
export const lag = 8;
/**
 * Bounds of the share of plans that are new seeds, the others being mutations. In between, it is their share of the features found
 * for each step: seeds find most at first, and mutations once seeds find little.
 */
const newSeedShareMin = 0.2;
const newSeedShareMax = 0.8;
/** By this factor, earlier plans of a kind count less with each later one. */
const forgetting = 0.97;

/** The part of a run's result that exploration needs. */
export interface ExploredRun extends Pick<SimResult, "failure" | "steps" | "strikes" | "versions" | "virtualMs"> {
  readonly marks: readonly (readonly [string, number])[];
  readonly transitions: readonly string[];
  readonly cpuMs: number;
}

/** The first run that violated an invariant. */
export interface ExploredFailure {
  readonly invariant: string;
  readonly number: number;
  readonly plan: SimOptions;
  readonly run: ExploredRun;
}

/** A run whose result later plans do not depend on yet. */
interface Unlearned {
  readonly number: number;
  readonly plan: SimOptions;
  readonly isNew: boolean;
  readonly run: ExploredRun;
}

/** Features that the plans of one kind found, for each of their steps; newer plans count more. */
class Yield {
  #features = 1;
  #steps = 1;

  add(features: number, steps: number): void {
    this.#features = this.#features * forgetting + features;
    this.#steps = this.#steps * forgetting + steps;
  }

  get perStep(): number {
    return this.#features / this.#steps;
  }
}

export class Exploration {
  readonly #start: number;
  readonly #isGuided: boolean;
  readonly #corpus = new Corpus();
  readonly #plans = new Map<number, { readonly plan: SimOptions; readonly isNew: boolean }>();
  readonly #yields = { new: new Yield(), mutated: new Yield() };
  /** In the order of their numbers. */
  #unlearned: Unlearned[] = [];
  readonly #failures = new Map<string, { readonly first: ExploredFailure; times: number }>();
  readonly marks = new Map<string, number>();
  readonly transitions = new Set<string>();
  #runs = 0;
  #virtualMs = 0;
  #cpuMs = 0;

  /** `start`: number of the first plan, and the seed of everything that is drawn. `isGuided`: otherwise each plan is a new seed. */
  constructor(start: number, isGuided: boolean) {
    this.#start = start;
    this.#isGuided = isGuided;
  }

  /** The plan of a number; the results of all earlier ones but the newest `lag` must be in. Call it in the order of the numbers. */
  plan(number: number): SimOptions {
    this.#learn(number - lag);
    const random = new SimRandom(`${this.#start}/explore/${number}`);
    const isNew = !this.#isGuided || random.chance(this.#newSeedShare());
    const picked = isNew ? null : this.#corpus.pick(random);
    const plan = picked === null ? drawOptions(number) : mutated(picked, random, this.#corpus.pick(random) ?? picked);
    this.#plans.set(number, { plan, isNew: picked === null });
    return plan;
  }

  /** With one process, newer results are in as well: they must not count yet. */
  #learn(last: number): void {
    const isDue = ({ number }: Unlearned): boolean => number <= last;
    for (const { isNew, plan, run } of this.#unlearned.filter(isDue)) {
      const marks = new Map(run.marks);
      const found = this.#corpus.add(planOf(plan, { ...run, marks }), [...marks.keys(), ...run.transitions], run.steps);
      this.#yields[isNew ? "new" : "mutated"].add(found.length, run.steps);
    }
    this.#unlearned = this.#unlearned.filter((each) => !isDue(each));
  }

  #newSeedShare(): number {
    const [seeds, mutations] = [this.#yields.new.perStep, this.#yields.mutated.perStep];
    return Math.min(Math.max(seeds / (seeds + mutations), newSeedShareMin), newSeedShareMax);
  }

  /** Takes the result of a number; they must come in order. Returns the failure if its invariant was not violated before. */
  take(number: number, run: ExploredRun): ExploredFailure | null {
    const { isNew, plan } = this.#plans.get(number) as { readonly plan: SimOptions; readonly isNew: boolean };
    this.#plans.delete(number);
    this.#runs += 1;
    this.#virtualMs += run.virtualMs;
    this.#cpuMs += run.cpuMs;
    for (const [mark, times] of run.marks) this.marks.set(mark, (this.marks.get(mark) ?? 0) + times);
    for (const transition of run.transitions) this.transitions.add(transition);
    if (run.failure === null) {
      // A run that failed ended early: what it reached next to a bug is not worth more of the same.
      this.#unlearned.push({ number, plan, isNew, run });
      return null;
    }
    const invariant = invariantOf(run.failure);
    const known = this.#failures.get(invariant);
    if (known !== undefined) {
      known.times += 1;
      return null;
    }
    const first = { invariant, number, plan, run };
    this.#failures.set(invariant, { first, times: 1 });
    return first;
  }

  get sums() {
    return {
      runs: this.#runs,
      virtualMs: this.#virtualMs,
      cpuMs: this.#cpuMs,
      corpus: this.#corpus.size,
      /** By invariant: the number of runs that violated it. */
      failures: [...this.#failures].map(([invariant, { times }]) => ({ invariant, times })),
    };
  }
}
