/**
 * Mutations of plans: each yields a plan near the given one, with faults, workloads and sizes that seeds also draw. So a failure that
 * exploration finds is one that a seed could have found.
 */
import type { Strike } from "../../../simulation/faults/fault.ts";
import { faults } from "../../../simulation/faults/kinds.ts";
import { drawOptions, type SimOptions } from "../../../simulation/options.ts";
import { quietOptions } from "../../../simulation/quiet-options.ts";
import { trialNames } from "../../../simulation/trial-names.ts";
import type { SimRandom } from "../../../runtime/sim/random.ts";
import { busyLeaves, leavesOf, withLeaves, withRatesOfStrikes, type Leaf } from "../shrinking/leaves.ts";

/** Maximum number of strikes in a plan; the busiest seeds have about as many. */
export const strikesMax = 120;
/** Bounds of the fault phase, in virtual milliseconds: seeds draw 10 to 40 s. */
const faultsMsRange = [5_000, 60_000] as const;
const managersMax = 3;
const agentsMax = 6;
const trialsMax = 3;
/** Number of mutations applied to one plan, at most. */
const mutationsMax = 4;
/** Largest distance by which a strike moves, in virtual milliseconds: around the leases, graces and timeouts of a few seconds. */
const moveMsMax = 5_000;
/** Number of seeds whose options bound each value. */
const sampledSeeds = 300;

type Mutate = (plan: SimOptions, random: SimRandom, donor: SimOptions) => SimOptions;

const strikesOf = ({ strikes }: SimOptions): readonly Strike[] => strikes ?? [];

/** Each is given a plan with lists of strikes and trials, and another plan, to take parts from. */
const mutations: Readonly<Record<string, Mutate>> = {
  strikeMoved(plan, random) {
    const strikes = [...strikesOf(plan)];
    if (strikes.length === 0) return plan;
    const at = random.below(strikes.length);
    const { atMs, ...rest } = strikes[at] as Strike;
    strikes[at] = { ...rest, atMs: Math.max(0, Math.round(atMs + random.between(-moveMsMax, moveMsMax))) };
    return { ...plan, strikes };
  },
  strikeAdded: (plan, random) => ({ ...plan, strikes: [...strikesOf(plan), someStrike(plan, random)] }),
  strikeRemoved(plan, random) {
    const strikes = strikesOf(plan);
    const gone = random.below(Math.max(1, strikes.length));
    return { ...plan, strikes: strikes.filter((_, at) => at !== gone) };
  },
  /** Another strike just after one: what a fault leaves behind meets the next. */
  strikeFollowed(plan, random) {
    const strikes = strikesOf(plan);
    if (strikes.length === 0) return plan;
    const { atMs } = random.pick(strikes);
    const next = { ...someStrike(plan, random), atMs: Math.round(atMs + random.between(0, moveMsMax)) };
    return { ...plan, strikes: [...strikes, next] };
  },
  strikeRedrawn(plan, random) {
    const strikes = [...strikesOf(plan)];
    if (strikes.length === 0) return plan;
    const at = random.below(strikes.length);
    strikes[at] = { ...(strikes[at] as Strike), draw: random.below(1_000) };
    return { ...plan, strikes };
  },
  /** All strikes of one kind, from the other plan. */
  kindTaken(plan, random, donor) {
    const { kind } = random.pick(faults);
    const others = strikesOf(plan).filter((strike) => strike.kind !== kind);
    return { ...plan, strikes: [...others, ...strikesOf(donor).filter((strike) => strike.kind === kind)] };
  },
  valueTaken(plan, random, donor) {
    const path = random.pick(paths);
    return withValues(plan, [[path, leavesOf(donor).get(path) as Leaf]]);
  },
  /** Such as all faults of the network. */
  groupTaken(plan, random, donor) {
    const [group] = random.pick(paths.filter((path) => path.includes("."))).split(".");
    return withValues(
      plan,
      [...leavesOf(donor)].filter(([path]) => path.startsWith(`${group}.`)),
    );
  },
  valueScaled(plan, random) {
    const numbers = [...busyLeaves(plan)].filter(([path, value]) => typeof value === "number" && ranges.has(path));
    if (numbers.length === 0) return plan;
    const [path, value] = random.pick(numbers) as [string, number];
    const scaled = value * random.pick([0.5, 0.75, 1.5, 2]);
    return withValues(plan, [[path, withinRange(path, scaled)]]);
  },
  valueQuiet(plan, random) {
    const [path] = random.pick([...busyLeaves(plan)]);
    return withValues(plan, [[path, leavesOf(quietOptions(plan)).get(path) ?? 0]]);
  },
  managers: (plan, random) => ({ ...plan, managers: 1 + random.below(managersMax) }),
  agents: (plan, random) => ({ ...plan, agents: 1 + random.below(agentsMax) }),
  length: (plan, random) => ({ ...plan, faultsMs: Math.round(random.between(...faultsMsRange)) }),
  trials: (plan, random) => ({
    ...plan,
    onlyTrials: Array.from({ length: 1 + random.below(trialsMax) }, () => random.pick(trialNames)),
  }),
  /** Everything that is drawn while it runs. */
  seed: (plan, random) => ({ ...plan, seed: random.below(1_000_000) }),
};

export const mutationNames: readonly string[] = Object.keys(mutations);

const sampled = Array.from({ length: sampledSeeds }, (_, at) => leavesOf(drawOptions(at + 1)));
const paths = [...(sampled[0] as ReadonlyMap<string, Leaf>).keys()].filter(
  (path) => !path.startsWith("rates.") && path !== "trials",
);
/** By number: the least and the largest value that seeds draw. */
const ranges = new Map(
  paths.flatMap((path) => {
    const values = sampled.map((leaves) => leaves.get(path));
    if (typeof values[0] !== "number") return [];
    const numbers = values as number[];
    const isWhole = numbers.every(Number.isInteger);
    return [[path, { least: Math.min(...numbers), most: Math.max(...numbers), isWhole }] as const];
  }),
);

function withinRange(path: string, value: number): number {
  const { isWhole, least, most } = ranges.get(path) ?? { isWhole: false, least: 0, most: value };
  const within = Math.min(Math.max(value, least), most);
  return isWhole ? Math.round(within) : within;
}

function someStrike({ faultsMs }: SimOptions, random: SimRandom): Strike {
  const { kind } = random.pick(faults);
  return { kind, atMs: Math.round(random.between(0, faultsMs)), draw: random.below(1_000) };
}

const withValues = (plan: SimOptions, values: readonly (readonly [string, Leaf])[]): SimOptions =>
  withLeaves(plan, new Map([...leavesOf(plan), ...values].filter(([path]) => !path.startsWith("rates."))));

/** The plan as seeds may draw it: options that exclude or need each other, and strikes within the fault phase. */
export function sound(plan: SimOptions): SimOptions {
  const strikes = strikesOf(plan)
    .filter(({ atMs }) => atMs < plan.faultsMs)
    .toSorted((one, other) => one.atMs - other.atMs)
    .slice(0, strikesMax);
  const { certificateOperations, drivers, healthOperations, historyRecords, looksBack, network, watchers } = plan;
  const isDelayed = network.delay > 0 && network.delayMsMax > 0;
  return withRatesOfStrikes({
    ...plan,
    strikes,
    // The list of trials counts.
    trials: plan.onlyTrials === null ? plan.trials : 0,
    // A node that does not come back blocks a rotation of the root.
    endsWithAllManagers: plan.endsWithAllManagers || certificateOperations > 0,
    // Reads of the past and resumed watches may need any record.
    historyRecords: looksBack + watchers > 0 ? 0 : historyRecords,
    drivers: healthOperations > 0 ? drivers : { ...drivers, unwell: 0 },
    network: isDelayed ? network : { ...network, delay: 0, delayMsMax: 0 },
  });
}

/** A plan with up to a few differences. `plan`, `donor`: with lists of strikes and trials (`planOf`). */
export function mutated(plan: SimOptions, random: SimRandom, donor: SimOptions): SimOptions {
  let next = plan;
  for (let left = 1 + random.below(mutationsMax); left > 0; left -= 1)
    next = (mutations[random.pick(mutationNames)] as Mutate)(next, random, donor);
  return sound(next);
}

/** One named mutation, for tests. */
export const mutatedBy = (name: string, plan: SimOptions, random: SimRandom, donor: SimOptions): SimOptions =>
  sound((mutations[name] as Mutate)(plan, random, donor));
