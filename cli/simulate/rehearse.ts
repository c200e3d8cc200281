/** Runs the rehearsals of a command line: on one cluster, or on two that are compared; with progress, and ended by Ctrl-C. */
import type { ChildProcess } from "node:child_process";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { CommandEnded, UsageError, UserError } from "../../lib/user-error.ts";
import type { RehearsalOutcome } from "../../simulation/rehearsal/outcome.ts";
import type { ScenarioPlan } from "../../simulation/rehearsal/plan.ts";
import { rehearseAll, startRehearsing } from "../../simulation/rehearsal/rehearse-all.ts";
import type { Shell } from "../shell.ts";
import { parseCount } from "../values.ts";
import { readClusterFor, readScenarioFor, type ClusterValues, type NamedCluster } from "./inputs.ts";
import { timeText } from "./report-texts.ts";
import { RunProgress } from "./run-progress.ts";
import { report, reportComparison, write, type ReportFiles } from "./saved-reports.ts";

/** Seeds without --seeds: enough for a first look. */
const seedsDefault = 20;
const seedsMax = 100_000;
const processesMax = 1_024;
/** Exit status when an invariant was violated, and when the cluster or the scenario cannot be read. */
const violated = 1;
const unreadable = 2;

/** Flags of the runs. */
export const runFlags = {
  seeds: { type: "string", value: "NUMBER", help: `Number of seeds (default ${seedsDefault})` },
  seed: { type: "string", value: "NUMBER", help: "First seed (default 1); without --seeds, the only one" },
  hours: { type: "string", value: "NUMBER", help: "Length of the rehearsal in hours, instead of the scenario's" },
  jobs: {
    type: "string",
    short: "j",
    value: "NUMBER",
    help: "Maximum number of seeds that run at the same time (default: number of CPUs)",
  },
  record: {
    type: "string",
    value: "FILE",
    help: "Write a recording of the run for 'muster replay'; requires one seed",
  },
  compare: {
    type: "string",
    value: "FILE",
    help: "Rehearse the same seeds on this cluster too, and compare it with the first",
  },
} as const;

export interface RunValues extends ClusterValues, ReportFiles {
  readonly scenario: string;
  readonly seeds?: string | undefined;
  readonly seed?: string | undefined;
  readonly hours?: string | undefined;
  readonly jobs?: string | undefined;
  readonly compare?: string | undefined;
  readonly record?: string | undefined;
}

interface Seeds {
  readonly from: number;
  readonly seeds: number;
  readonly processes: number | undefined;
}

interface Runs extends Seeds {
  readonly started: ChildProcess | undefined;
  readonly signal: AbortSignal;
}

/** Ends with status 1 if an invariant was violated, with 2 if the files have mistakes. */
export async function rehearseFor(values: RunValues, shell: Shell): Promise<void> {
  const seeds = seedsOf(values);
  if (values.record !== undefined && (seeds.seeds > 1 || values.compare !== undefined))
    throw new UsageError("--record needs one seed: set --seed, without --seeds and --compare");
  const started = startRehearsing();
  const outcomes: RehearsalOutcome[] = [];
  const cancelled = new AbortController();
  const cancel = (): void => cancelled.abort();
  let planned: readonly Planned[] = [];
  try {
    planned = await readable(shell, async () => plansOf(values, shell));
    process.once("SIGINT", cancel);
    for (const [at, { cluster, scenario }] of planned.entries()) {
      for (const line of cluster.remarks) shell.remark(line);
      const runs = { ...seeds, started: at === 0 ? started : undefined, signal: cancelled.signal };
      outcomes.push(await readable(shell, () => run(cluster, scenario, runs, shell)));
    }
  } finally {
    process.off("SIGINT", cancel);
    if (started.connected) started.kill();
  }
  const [first, second] = outcomes as [RehearsalOutcome, RehearsalOutcome?];
  if (second === undefined) report(shell, first, commandLine(values), values);
  else reportComparison(shell, first, second, values);
  const wrong = outcomes.map(({ runs }) => runs.find(({ violation }) => violation !== null)?.seed);
  for (const [at, seed] of wrong.entries()) {
    const plans = planned[at];
    if (plans === undefined) continue;
    if (values.record !== undefined) await record(plans, seeds.from, values.record, shell);
    else if (seed !== undefined)
      await record(plans, seed, join(mkdtempSync(join(tmpdir(), "muster-simulate-")), `seed-${seed}.mrec`), shell);
  }
  if (wrong.some((seed) => seed !== undefined)) throw new CommandEnded(violated);
}

function seedsOf({ jobs, seed, seeds }: RunValues): Seeds {
  const from = seed === undefined ? 1 : counted(seed, "seed", [0, Number.MAX_SAFE_INTEGER - seedsMax]);
  const count = seed === undefined ? seedsDefault : 1;
  return {
    from,
    seeds: seeds === undefined ? count : counted(seeds, "seeds", [1, seedsMax]),
    processes: jobs === undefined ? undefined : counted(jobs, "jobs", [1, processesMax]),
  };
}

function counted(text: string, flag: string, [least, most]: readonly [number, number]): number {
  const count = parseCount(text, flag);
  if (count < least || count > most) throw new UsageError(`--${flag} must be from ${least} to ${most}`);
  return count;
}

interface Planned {
  readonly cluster: NamedCluster;
  readonly scenario: ScenarioPlan;
}

async function plansOf(values: RunValues, shell: Shell): Promise<readonly Planned[]> {
  const clusters = [await readClusterFor(values, shell)];
  if (values.compare !== undefined) clusters.push(await readClusterFor({ file: values.compare }, shell));
  return clusters.map((cluster) => {
    const scenario = readScenarioFor(values.scenario, cluster.plan);
    return { cluster, scenario: values.hours === undefined ? scenario : lasting(scenario, values.hours) };
  });
}

const hourMs = 3_600_000;

/** The scenario with another length, which no step may exceed. Throws UserError. */
function lasting(scenario: ScenarioPlan, text: string): ScenarioPlan {
  const hours = /^\d+(?:\.\d+)?$/.test(text) ? Number(text) : 0;
  const durationMs = Math.round(hours * hourMs);
  if (durationMs < 1_000)
    throw new UserError(`invalid argument "${text}" for "--hours" flag: expected hours, such as 0.5`);
  const late = scenario.steps.find(({ atMs }) => atMs > durationMs);
  if (late !== undefined)
    throw new UserError(`--hours ${text} is too short: the scenario has a step after ${late.atMs / hourMs} hours`);
  return { ...scenario, durationMs };
}

/** Ends the command with status 2 if the files have mistakes, cannot be read, or are refused by managers. */
export async function readable<Result>(shell: Shell, work: () => Promise<Result>): Promise<Result> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof UserError)) throw error;
    shell.remark(`muster: ${error.message}`);
    throw new CommandEnded(unreadable);
  }
}

/** Runs the seed once more, with the same outcome, and writes its recording. Throws UserError. */
async function record({ cluster, scenario }: Planned, seed: number, path: string, shell: Shell): Promise<void> {
  // Loaded only here: the simulation runs in other processes.
  const { rehearse } = await import("../../simulation/rehearsal/run.ts");
  let recording: { readonly file: Uint8Array; readonly fromMs: number } = { file: new Uint8Array(), fromMs: 0 };
  await rehearse(cluster.plan, scenario, seed, { onRecording: (file, fromMs) => (recording = { file, fromMs }) });
  write(path, recording.file);
  shell.remark(`recording of seed ${seed}: ${path} (muster replay ${path})`);
  if (recording.fromMs > 0)
    shell.remark(`the run is too long to be recorded whole: its first ${timeText(recording.fromMs)} are missing`);
}

async function run(
  { name, plan }: NamedCluster,
  scenario: ScenarioPlan,
  runs: Runs,
  shell: Shell,
): Promise<RehearsalOutcome> {
  const progress = new RunProgress(shell, { seeds: runs.seeds, durationMs: scenario.durationMs });
  try {
    return await rehearseAll({
      ...runs,
      name,
      cluster: plan,
      scenario,
      onProgress: (seed, ranMs) => progress.show(seed, ranMs),
      onRun: (outcome) => progress.finish(outcome),
    });
  } finally {
    progress.end();
  }
}

/** The command line without what chooses seeds: reports continue it. */
function commandLine(values: RunValues): string {
  const words = ["muster", "simulate"];
  if (values.file !== undefined) words.push("--file", values.file);
  if (values["from-cluster"] === true) words.push("--from-cluster");
  words.push("--scenario", values.scenario);
  if (values.hours !== undefined) words.push("--hours", values.hours);
  return words.map(quoted).join(" ");
}

/** For a POSIX shell. */
function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
