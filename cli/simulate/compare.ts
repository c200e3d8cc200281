/** Two rehearsals of the same seeds, such as with a changed cluster or another update: what is better or worse, and how often. */
import type { JobOutcome, RehearsalOutcome, ServiceOutcome } from "../../simulation/rehearsal/outcome.ts";
import { executionMs, failedTasksOf, jobsBySeed, rolloutMs, servicesBySeed } from "./report.ts";
import { spreadOf, type Spread } from "./spread.ts";

/** Values of a service that are compared, in this order. */
export const measures = [
  { key: "availabilityMin", title: "minimum availability", kind: "share", isHigherBetter: true },
  { key: "fullShare", title: "time with all tasks", kind: "share", isHigherBetter: true },
  { key: "rolloutMs", title: "rollouts", kind: "time", isHigherBetter: false },
  { key: "moves", title: "moves and restarts", kind: "count", isHigherBetter: false },
  { key: "firstFullMs", title: "time until all tasks first ran", kind: "time", isHigherBetter: false },
] as const;

/** Values of a job that are compared, in this order. */
export const jobMeasures = [
  { key: "jobMs", title: "time until it succeeded", kind: "time", isHigherBetter: false },
  { key: "failedTasks", title: "failed tasks", kind: "count", isHigherBetter: false },
  { key: "moves", title: "moves and restarts", kind: "count", isHigherBetter: false },
] as const;

type Measure = (typeof measures)[number] | (typeof jobMeasures)[number];

export interface Comparison {
  readonly before: string;
  readonly after: string;
  /** Seeds that both have finished. */
  readonly seeds: number;
  readonly services: readonly ServiceComparison[];
  readonly jobs: readonly ServiceComparison[];
  readonly violations: { readonly before: number; readonly after: number };
}

export interface ServiceComparison {
  readonly name: string;
  readonly differences: readonly Difference[];
}

export interface Difference {
  readonly measure: Measure["key"];
  readonly before: Spread | null;
  readonly after: Spread | null;
  /** Median of after minus before of one seed; null: no seed has both. */
  readonly medianChange: number | null;
  /** Seeds for which after is better, worse or the same. A value that one of both lacks, such as of a rollout that did not end, is worse. */
  readonly better: number;
  readonly worse: number;
  readonly same: number;
}

/** Compares the services and jobs that both have; seeds that only one has are left out. */
export function compared(before: RehearsalOutcome, after: RehearsalOutcome): Comparison {
  const seeds = new Set(before.runs.map(({ seed }) => seed));
  const common = after.runs.map(({ seed }) => seed).filter((seed) => seeds.has(seed));
  const broken = ({ runs }: RehearsalOutcome): number =>
    runs.filter(({ seed, violation }) => violation !== null && common.includes(seed)).length;
  return {
    before: titleOf(before),
    after: titleOf(after),
    seeds: common.length,
    services: pairsOf(servicesBySeed(before.runs), servicesBySeed(after.runs)).map(({ name, pairs }) => ({
      name,
      differences: measures.map((measure) => differenceOf(pairs, measure, (service) => valueOf(service, measure.key))),
    })),
    jobs: pairsOf(jobsBySeed(before.runs), jobsBySeed(after.runs)).map(({ name, pairs }) => ({
      name,
      differences: jobMeasures.map((measure) => differenceOf(pairs, measure, (job) => jobValueOf(job, measure.key))),
    })),
    violations: { before: broken(before), after: broken(after) },
  };
}

function titleOf({ scenario, cluster }: RehearsalOutcome): string {
  return `${scenario} on ${cluster}`;
}

/** Null: the service has no such value with this seed. */
function valueOf(service: ServiceOutcome, key: (typeof measures)[number]["key"]): number | null {
  switch (key) {
    case "availabilityMin":
    case "fullShare":
    case "firstFullMs":
      return service[key];
    case "moves":
      return service.moves.length;
    case "rolloutMs": {
      const { rollouts } = service;
      const all = rollouts.flatMap((each) => rolloutMs(each) ?? []);
      return all.length === 0 || all.length < rollouts.length ? null : all.reduce((sum, ms) => sum + ms, 0);
    }
  }
}

/** Null: an execution did not succeed, or there was none. */
function jobValueOf(job: JobOutcome, key: (typeof jobMeasures)[number]["key"]): number | null {
  switch (key) {
    case "failedTasks":
      return failedTasksOf(job);
    case "moves":
      return job.moves.length;
    case "jobMs": {
      const all = job.executions.flatMap((each) => executionMs(each) ?? []);
      return all.length === 0 || all.length < job.executions.length ? null : all.reduce((sum, ms) => sum + ms, 0);
    }
  }
}

interface OfSeed<Outcome> {
  readonly seed: number;
  readonly of: Outcome;
}

type Pairs<Outcome> = readonly (readonly [old: Outcome, now: Outcome])[];

/** Outcomes of the same name and seed. */
function pairsOf<Outcome>(
  before: ReadonlyMap<string, readonly OfSeed<Outcome>[]>,
  after: ReadonlyMap<string, readonly OfSeed<Outcome>[]>,
): readonly { readonly name: string; readonly pairs: Pairs<Outcome> }[] {
  return [...before].flatMap(([name, all]) => {
    const others = after.get(name);
    if (others === undefined) return [];
    const now = new Map(others.map(({ seed, of }) => [seed, of]));
    const pairs = all.flatMap(({ seed, of }) => {
      const other = now.get(seed);
      return other === undefined ? [] : [[of, other] as const];
    });
    return [{ name, pairs }];
  });
}

function differenceOf<Outcome>(
  pairs: Pairs<Outcome>,
  { key, isHigherBetter }: Measure,
  valueIn: (outcome: Outcome) => number | null,
): Difference {
  const values = pairs.map(([old, now]) => [valueIn(old), valueIn(now)] as const);
  const signs = values.map(([old, now]) => signOf(old, now, isHigherBetter));
  const changes = values.flatMap(([old, now]) => (old === null || now === null ? [] : [now - old]));
  const count = (sign: number): number => signs.filter((each) => each === sign).length;
  return {
    measure: key,
    before: spreadOf(values.flatMap(([old]) => old ?? [])),
    after: spreadOf(values.flatMap(([, now]) => now ?? [])),
    medianChange: spreadOf(changes)?.median ?? null,
    better: count(1),
    worse: count(-1),
    same: count(0),
  };
}

/** 1: better. */
function signOf(old: number | null, now: number | null, isHigherBetter: boolean): number {
  if (old === null || now === null) return old === now ? 0 : now === null ? -1 : 1;
  return old === now ? 0 : now > old === isHigherBetter ? 1 : -1;
}
