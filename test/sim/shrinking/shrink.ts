/**
 * Reduces a seed that fails to the smallest plan that still violates the same invariant: fewer trials, faults, workloads and nodes,
 * and a shorter time. Each smaller plan is run: what one part draws depends on others only through the cluster itself.
 */
import type { SimOptions } from "../../../simulation/options.ts";
import { trialNames } from "../../../simulation/trial-names.ts";
import type { SimResult } from "../../../simulation/world.ts";
import { ddmin, smallest } from "./ddmin.ts";
import { invariantOf } from "./invariant.ts";
import { busyLeaves, withLeaves, withRatesOfStrikes } from "./leaves.ts";

/** Default of the real time that shrinking one seed may take, in milliseconds; then the smallest plan so far counts. */
export const shrinkMsMax = 120_000;
/** Shortest fault phase, and the step in which it is shortened, in virtual milliseconds. */
const faultsMsStep = 1_000;

type Outcome = Pick<SimResult, "failure" | "marks" | "strikes">;

interface ShrinkOptions {
  readonly run: (options: SimOptions) => Promise<Outcome>;
  readonly limitMs: number;
  /** Real time, in milliseconds. */
  readonly now: () => number;
}

export interface Shrunk {
  readonly options: SimOptions;
  readonly invariant: string;
  readonly failure: string;
  /** Number of plans that were run. */
  readonly runs: number;
  /** False if the time was over before nothing more could be removed. */
  readonly isMinimal: boolean;
}

/** The whole plan of a run that took place, with its strikes and trials as lists. */
export function planOf(options: SimOptions, { marks, strikes }: Outcome): SimOptions {
  const onlyTrials = [...marks.keys()].flatMap((mark) => trialNames.filter((name) => mark === `trial.${name}`));
  return withRatesOfStrikes({ ...options, strikes, onlyTrials });
}

/** `found`: the result of `options`, which has failed with `failure`. */
export async function shrink(
  options: SimOptions,
  found: Outcome & { readonly failure: string },
  { limitMs, now, run }: ShrinkOptions,
): Promise<Shrunk> {
  const invariant = invariantOf(found.failure);
  const until = now() + limitMs;
  const known = new Map<string, boolean>();
  let best = options;
  let failure = found.failure;
  let runs = 0;
  let isOver = false;
  /** Whether the plan fails likewise; it is then the best so far. */
  const fails = async (plan: SimOptions): Promise<boolean> => {
    const key = JSON.stringify(plan);
    let holds = known.get(key);
    if (holds === undefined) {
      isOver ||= now() >= until;
      if (isOver) return false;
      runs += 1;
      const outcome = await run(plan);
      holds = outcome.failure !== null && invariantOf(outcome.failure) === invariant;
      known.set(key, holds);
      if (holds) failure = outcome.failure as string;
    }
    if (holds) best = plan;
    return holds;
  };
  // If times in whole milliseconds do not fail, faults are left as they are drawn.
  await fails(planOf(options, found));
  for (let before = ""; before !== JSON.stringify(best) && !isOver;) {
    before = JSON.stringify(best);
    await shrinkLists(() => best, fails);
    await shrinkNumbers(() => best, fails);
  }
  return { options: best, invariant, failure, runs, isMinimal: !isOver };
}

type Fails = (plan: SimOptions) => Promise<boolean>;

async function shrinkLists(best: () => SimOptions, fails: Fails): Promise<void> {
  const leaves = [...busyLeaves(best())];
  await ddmin(leaves, (some) => fails(withLeaves(best(), new Map(some))));
  const { onlyTrials, strikes } = best();
  if (onlyTrials !== null) await ddmin(onlyTrials, (some) => fails({ ...best(), onlyTrials: some }));
  if (strikes !== null) await ddmin(strikes, (some) => fails(withRatesOfStrikes({ ...best(), strikes: some })));
}

async function shrinkNumbers(best: () => SimOptions, fails: Fails): Promise<void> {
  for (const key of ["managers", "agents"] as const)
    await smallest(1, best()[key], (number) => fails({ ...best(), [key]: number }));
  for (const [path, value] of busyLeaves(best()))
    if (/perations$|^(?:watchers|jsonClients|looksBack|lateAgents)$/.test(path) && typeof value === "number")
      await smallest(1, value, (number) => fails(withLeaves(best(), new Map([...busyLeaves(best()), [path, number]]))));
  const { faultsMs } = best();
  const steps = Math.ceil(faultsMs / faultsMsStep);
  await smallest(1, steps, (number) => fails({ ...best(), faultsMs: Math.min(number * faultsMsStep, faultsMs) }));
}
