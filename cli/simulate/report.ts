/** Content of every report: values of a rehearsal's services and jobs over all seeds. Times in milliseconds. */
import type {
  JobExecution,
  JobOutcome,
  Move,
  RehearsalOutcome,
  RolloutOutcome,
  RunOutcome,
  ServiceOutcome,
} from "../../simulation/rehearsal/outcome.ts";
import { ranked, spreadOf, type Spread } from "./spread.ts";

export interface Report {
  readonly cluster: string;
  readonly scenario: string;
  readonly durationMs: number;
  readonly seeds: number;
  readonly seedsWanted: number;
  readonly violations: readonly { readonly seed: number; readonly violation: string; readonly atMs: number }[];
  readonly services: readonly ServiceReport[];
  readonly jobs: readonly JobReport[];
  readonly placement: PlacementReport | null;
  readonly requests: RequestReport;
  /** Seeds to look at, the worst first. */
  readonly notable: readonly NotableSeed[];
}

export interface ServiceReport {
  readonly name: string;
  /** Smallest share of wanted tasks that ran. */
  readonly availabilityMin: Spread;
  /** Share of time with all wanted tasks. */
  readonly fullShare: Spread;
  /** Null: it had all wanted tasks with no seed. */
  readonly firstFullMs: Spread | null;
  /** Seeds with which it never had all wanted tasks. */
  readonly neverFull: number;
  readonly rollouts: RolloutReport;
  /** Moves of one seed. */
  readonly moves: Spread;
  readonly moveReasons: readonly Count[];
  /** Moves after which no node took the task, of all seeds. */
  readonly unplaced: number;
  readonly worst: { readonly seed: number; readonly availabilityMin: number };
}

export interface JobReport {
  readonly name: string;
  /** Times that the work began, such as runs of a schedule, of all seeds. */
  readonly executions: number;
  /** From its creation to the end of its last task, of an execution that succeeded; null: none did. */
  readonly durationMs: Spread | null;
  readonly unfinished: number;
  readonly states: readonly Count[];
  /** Tasks of one seed that failed. */
  readonly failedTasks: Spread;
  /** Tasks of one seed that were replaced, failed ones included. */
  readonly moves: Spread;
  readonly moveReasons: readonly Count[];
}

export interface RolloutReport {
  readonly count: number;
  /** Null: none ended. */
  readonly durationMs: Spread | null;
  readonly unfinished: number;
  readonly states: readonly Count[];
  /** Reasons for which they waited, with the mean time of a rollout that waited for it. */
  readonly blocked: readonly { readonly reason: string; readonly rollouts: number; readonly meanMs: number }[];
}

export interface Count {
  readonly text: string;
  readonly count: number;
}

export interface PlacementReport {
  /** Difference between the fullest and the emptiest node: the largest of each seed, and the last. */
  readonly widest: Spread;
  readonly last: Spread;
}

export interface RequestReport {
  /** Of all seeds. */
  readonly sent: number;
  readonly refused: number;
  readonly bySeed: Spread;
  readonly reasons: readonly Count[];
}

export interface NotableSeed {
  readonly seed: number;
  readonly why: string;
}

const notableMax = 10;

/** Null: no run was finished. */
export function reportOf(outcome: RehearsalOutcome): Report | null {
  const { runs } = outcome;
  const refused = spreadOf(runs.map(({ refusals }) => refusals.length));
  if (refused === null) return null;
  const services = servicesOf(runs);
  return {
    cluster: outcome.cluster,
    scenario: outcome.scenario,
    durationMs: outcome.durationMs,
    seeds: runs.length,
    seedsWanted: outcome.seedsWanted,
    violations: runs.flatMap(({ seed, violation, ranMs }) =>
      violation === null ? [] : [{ seed, violation, atMs: ranMs }],
    ),
    services,
    jobs: jobsOf(runs),
    placement: placementOf(runs),
    requests: {
      sent: runs.reduce((sum, { requests }) => sum + requests, 0),
      refused: runs.reduce((sum, { refusals }) => sum + refusals.length, 0),
      bySeed: refused,
      reasons: counted(runs.flatMap(({ refusals }) => refusals.map(({ request, reason }) => `${request}: ${reason}`))),
    },
    notable: notableOf(runs, services),
  };
}

function counted(texts: readonly string[]): readonly Count[] {
  const counts = new Map<string, number>();
  for (const text of texts) counts.set(text, (counts.get(text) ?? 0) + 1);
  return ranked(counts).map(([text, count]) => ({ text, count }));
}

interface OfSeed {
  readonly seed: number;
  readonly of: ServiceOutcome;
}

/** Services in the order in which the runs name them. */
export function servicesBySeed(runs: readonly RunOutcome[]): ReadonlyMap<string, readonly OfSeed[]> {
  const found = new Map<string, OfSeed[]>();
  for (const { seed, services } of runs) {
    for (const of of services) {
      const held = found.get(of.name) ?? [];
      held.push({ seed, of });
      found.set(of.name, held);
    }
  }
  return found;
}

function servicesOf(runs: readonly RunOutcome[]): readonly ServiceReport[] {
  return [...servicesBySeed(runs)].flatMap(([name, all]) => {
    const [first, ...others] = all;
    const availabilityMin = spreadOf(all.map(({ of }) => of.availabilityMin));
    const fullShare = spreadOf(all.map(({ of }) => of.fullShare));
    const moves = spreadOf(all.map(({ of }) => of.moves.length));
    if (first === undefined || availabilityMin === null || fullShare === null || moves === null) return [];
    const worst = others.reduce((least, each) => (isWorse(each.of, least.of) ? each : least), first);
    const every = all.flatMap(({ of }) => of.moves);
    const fulls = all.flatMap(({ of }) => (of.firstFullMs === null ? [] : [of.firstFullMs]));
    return [
      {
        name,
        availabilityMin,
        fullShare,
        firstFullMs: spreadOf(fulls),
        neverFull: all.length - fulls.length,
        rollouts: rolloutsOf(all.flatMap(({ of }) => of.rollouts)),
        moves,
        moveReasons: counted(every.map(reasonOf)),
        unplaced: every.filter(({ to }) => to === null).length,
        worst: { seed: worst.seed, availabilityMin: worst.of.availabilityMin },
      },
    ];
  });
}

interface JobOfSeed {
  readonly seed: number;
  readonly of: JobOutcome;
}

/** Jobs in the order in which the runs name them. */
export function jobsBySeed(runs: readonly RunOutcome[]): ReadonlyMap<string, readonly JobOfSeed[]> {
  const all = runs.flatMap(({ seed, jobs }) => jobs.map((of): JobOfSeed => ({ seed, of })));
  return Map.groupBy(all, ({ of }) => of.name);
}

function jobsOf(runs: readonly RunOutcome[]): readonly JobReport[] {
  return [...jobsBySeed(runs)].flatMap(([name, all]) => {
    const executions = all.flatMap(({ of }) => of.executions);
    const failedTasks = spreadOf(all.map(({ of }) => failedTasksOf(of)));
    const moves = spreadOf(all.map(({ of }) => of.moves.length));
    if (failedTasks === null || moves === null) return [];
    return [
      {
        name,
        executions: executions.length,
        durationMs: spreadOf(executions.flatMap((each) => executionMs(each) ?? [])),
        unfinished: executions.filter(({ endedMs }) => endedMs === null).length,
        states: counted(executions.map(({ state }) => state)),
        failedTasks,
        moves,
        moveReasons: counted(all.flatMap(({ of }) => of.moves).map(reasonOf)),
      },
    ];
  });
}

export function failedTasksOf({ executions }: JobOutcome): number {
  return executions.reduce((sum, { failedTasks }) => sum + failedTasks, 0);
}

/** Null: it did not succeed. */
export function executionMs({ beganMs, endedMs, state }: JobExecution): number | null {
  return endedMs === null || state !== "succeeded" ? null : endedMs - beganMs;
}

export function isWorse(a: ServiceOutcome, b: ServiceOutcome): boolean {
  if (a.availabilityMin !== b.availabilityMin) return a.availabilityMin < b.availabilityMin;
  return a.fullShare < b.fullShare;
}

/** The same reason on different nodes counts together. */
function reasonOf({ from, reason }: Move): string {
  return from === "" ? reason : reason.replaceAll(from, "NODE");
}

export function rolloutMs({ beganMs, endedMs }: RolloutOutcome): number | null {
  return endedMs === null ? null : endedMs - beganMs;
}

function rolloutsOf(rollouts: readonly RolloutOutcome[]): RolloutReport {
  const durations = rollouts.flatMap((each) => rolloutMs(each) ?? []);
  const totals = new Map<string, { rollouts: number; ms: number }>();
  for (const { blocked } of rollouts) {
    for (const { reason, ms } of blocked) {
      const held = totals.get(reason) ?? { rollouts: 0, ms: 0 };
      totals.set(reason, { rollouts: held.rollouts + 1, ms: held.ms + ms });
    }
  }
  return {
    count: rollouts.length,
    durationMs: spreadOf(durations),
    unfinished: rollouts.length - durations.length,
    states: counted(rollouts.map(({ state }) => state)),
    blocked: [...totals]
      .toSorted(([, a], [, b]) => b.ms - a.ms)
      .map(([reason, { rollouts: count, ms }]) => ({ reason, rollouts: count, meanMs: ms / count })),
  };
}

function placementOf(runs: readonly RunOutcome[]): PlacementReport | null {
  const sampled = runs.filter(({ placement }) => placement.length > 0);
  const widths = sampled.map(({ placement }) => placement.map(({ min, max }) => max - min));
  const widest = spreadOf(widths.map((each) => each.reduce((most, width) => Math.max(most, width), 0)));
  const last = spreadOf(widths.map((each) => each.at(-1) ?? 0));
  return widest === null || last === null ? null : { widest, last };
}

/** Violations, then each service's worst seed. */
function notableOf(runs: readonly RunOutcome[], services: readonly ServiceReport[]): readonly NotableSeed[] {
  const found = new Map<number, string[]>();
  const add = (seed: number, why: string): void => void found.set(seed, [...(found.get(seed) ?? []), why]);
  for (const { seed, violation } of runs) if (violation !== null) add(seed, "violates an invariant");
  for (const { name, worst, fullShare } of services) {
    if (worst.availabilityMin < 1 || fullShare.min < 1) add(worst.seed, `lowest availability of ${name}`);
  }
  for (const { seed, services: each } of runs) {
    const stuck = each.find(({ rollouts }) => rollouts.some(({ endedMs }) => endedMs === null));
    if (stuck !== undefined) add(seed, `a rollout of ${stuck.name} did not end`);
  }
  for (const { seed, jobs } of runs) {
    const failed = jobs.find(({ executions }) => executions.some(({ state }) => state === "failed"));
    if (failed !== undefined) add(seed, `job ${failed.name} failed`);
  }
  return [...found].slice(0, notableMax).map(([seed, whys]) => ({ seed, why: whys.join("; ") }));
}
