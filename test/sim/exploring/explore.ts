/** `npm run sim -- --hours H`: explores plans in several processes until the time is over, and reports what was reached. */
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { allCharts } from "../../../cli/charts.ts";
import { transitionsOf, childrenOf, rootOf, type AnyNode } from "../../../runtime/observation/transition-ids.ts";
import { poolNodeFlags, runPool } from "../../../simulation/pool.ts";
import type { SimOptions } from "../../../simulation/options.ts";
import { runSeed } from "../../../simulation/world.ts";
import { saveFailingRun } from "../failing-run.ts";
import { knownMarks } from "../marks.ts";
import { filesKeep } from "../run-files.ts";
import { scenarioText } from "../shrinking/scenario-file.ts";
import { Exploration, lag, type ExploredFailure, type ExploredRun } from "./exploration.ts";

interface ExploreOptions {
  readonly from: number;
  /** Real time, in milliseconds; runs under way are finished. */
  readonly limitMs: number;
  /** Maximum number of plans. */
  readonly plansMax: number;
  /** Default: the number of processors. */
  readonly processes: number | undefined;
  /** False: each plan is a new seed, for comparison. */
  readonly isGuided: boolean;
  /** Maximum real time for shrinking each failure; 0: none. */
  readonly shrinkMs: number;
  readonly say: (line: string) => void;
  /** Aborts: ends as if the time were over. */
  readonly signal: AbortSignal;
}

/** Interval between lines about the progress, in milliseconds of real time. */
const progressMs = 60_000;
const exploreProcess = fileURLToPath(new URL("explore-process.ts", import.meta.url));

/** Names of all transitions of all charts, as runs report them. */
async function allTransitions(): Promise<ReadonlySet<string>> {
  const names = new Set<string>();
  const list = (chart: string, node: AnyNode): void => {
    for (const { id } of transitionsOf(node)) names.add(`${chart} ${id}`);
    for (const child of childrenOf(node)) list(chart, child);
  };
  for (const { machine } of await allCharts()) list(machine.id, rootOf(machine));
  return names;
}

const lost = (how: string): ExploredRun => ({
  failure: `the process of the simulation ended: ${how}`,
  marks: [],
  transitions: [],
  strikes: [],
  steps: 0,
  versions: 0,
  virtualMs: 0,
  cpuMs: 0,
});

/** Returns the number of violated invariants. */
export async function explore(options: ExploreOptions): Promise<number> {
  const { from, isGuided, limitMs, plansMax, processes, say, shrinkMs } = options;
  const exploration = new Exploration(from, isGuided);
  const startedAt = performance.now();
  const shown = (): string => {
    const { corpus, cpuMs, failures, runs, virtualMs } = exploration.sums;
    const minutes = Math.round((performance.now() - startedAt) / 60_000);
    return `${minutes} min: ${runs} runs, ${(cpuMs / 60_000).toFixed(1)} CPU min, ${hours(virtualMs)} simulated cluster-hours, ${exploration.marks.size} marks, ${exploration.transitions.size} transitions, ${corpus} plans kept, ${failures.length} failures`;
  };
  // A plan waits for the results that it depends on.
  let taken = from;
  const waiting = new Map<number, () => void>();
  const isIn = (number: number): Promise<void> =>
    number < taken ? Promise.resolve() : new Promise((resolve) => waiting.set(number, resolve));
  const writer = new FailureWriter({ from, shrinkMs, say });
  const time = AbortSignal.timeout(limitMs);
  const progress = setInterval(() => say(shown()), progressMs);
  try {
    await runPool<null, ExploredRun, SimOptions>({
      program: { command: process.execPath, args: [...poolNodeFlags, exploreProcess] },
      settings: null,
      from,
      count: plansMax,
      processes,
      signal: AbortSignal.any([time, options.signal]),
      lost,
      jobOf: async (number) => {
        await isIn(number - lag);
        return exploration.plan(number);
      },
      onResult: (number, run) => {
        const failure = exploration.take(number, run);
        taken = number + 1;
        waiting.get(number)?.();
        waiting.delete(number);
        if (failure !== null) writer.add(failure);
      },
    });
  } finally {
    clearInterval(progress);
  }
  say(shown());
  await report(exploration, say);
  await writer.done();
  return exploration.sums.failures.length;
}

async function report({ marks, sums, transitions }: Exploration, say: (line: string) => void): Promise<void> {
  const { cpuMs, failures, virtualMs } = sums;
  const all = await allTransitions();
  const missed = [...all].filter((name) => !transitions.has(name)).toSorted();
  const missedMarks = knownMarks.filter((mark) => !marks.has(mark));
  say(`${hours(virtualMs)} simulated cluster-hours in ${hours(cpuMs)} CPU hours`);
  say("faults by kind:");
  for (const [mark, times] of [...marks].toSorted(([one], [other]) => (one < other ? -1 : 1)))
    if (mark.startsWith("fault.")) say(`  ${String(times).padStart(7)}  ${mark.slice("fault.".length)}`);
  say(`${marks.size} marks reached; ${missedMarks.length} of the known ones not: ${missedMarks.join(", ") || "none"}`);
  say(`${all.size - missed.length} of ${all.size} transitions of charts reached; the others:`);
  for (const name of missed) say(`  ${name}`);
  say(`${failures.length} invariants violated`);
  for (const { invariant, times } of failures) say(`  ${invariant}: ${times} runs`);
}

const hours = (ms: number): string => (ms / 3_600_000).toFixed(2);

/** Writes the files of failures, one after the other, while the exploration goes on. */
class FailureWriter {
  readonly #options: Pick<ExploreOptions, "from" | "shrinkMs" | "say">;
  #folder: string | null = null;
  #writing: Promise<void> = Promise.resolve();

  constructor(options: Pick<ExploreOptions, "from" | "shrinkMs" | "say">) {
    this.#options = options;
  }

  add({ number, plan, run }: ExploredFailure): void {
    const { from, say, shrinkMs } = this.#options;
    const folder = (this.#folder ??= mkdtempSync(join(tmpdir(), "muster-sim-")));
    const name = `plan-${number}`;
    const path = join(folder, `${name}.yaml`);
    const origin = `plan ${number} of the exploration from ${from}`;
    writeFileSync(path, scenarioText({ options: plan, violates: null }, [run.failure ?? "", origin]));
    say(`FAILED ${origin}: ${run.failure}`);
    say(`  again: npm run sim -- --scenario ${path}`);
    // A run that ended its process would end this one.
    if (run.steps === 0) return;
    this.#writing = this.#writing.then(async () => {
      const again = await runSeed(plan, filesKeep);
      const lines = await saveFailingRun({ folder, name, options: plan, origin, shrinkMs }, again);
      for (const line of lines) say(`  ${name}: ${line}`);
    });
  }

  async done(): Promise<void> {
    await this.#writing;
  }
}
