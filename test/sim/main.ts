/**
 * `npm run sim -- --seeds 200 [--from N] [--processes N] [--until-failed]`, or `--seed 8471` for one seed. When a seed fails,
 * its trace, its spans and a recording are written, and those of the smallest plan that fails likewise (shrinking/), with that plan as
 * a file for `--scenario`. Ends with `N passed, N failed`; exits with 1 if any seed failed, or if CI's seeds no longer reach a mark (marks.ts).
 * With `--hours H`, it explores plans instead (exploring/).
 */
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { judgeSeed, knownFailures } from "./known-failures.ts";
import { judgeMarks, knownMarks, rareMarks } from "./marks.ts";
import { describeOptions, drawOptions, type SimOptions } from "../../simulation/options.ts";
import { runSeeds, type SeedResult } from "./seed-pool.ts";
import { orExit, scriptArguments, UsageError, wholeNumber } from "../support/script-arguments.ts";
import { otlpJson } from "./otlp.ts";
import { filesKeep } from "./run-files.ts";
import { readScenario, type PlannedRun } from "./shrinking/scenario-file.ts";
import { shrinkMsMax } from "./shrinking/shrink.ts";
import { explore } from "./exploring/explore.ts";
import { saveFailingRun } from "./failing-run.ts";
import { runSeed, type SimResult } from "../../simulation/world.ts";

/** Longest exploration: timers of Node last at most 24.8 days. */
const hoursMax = 500;

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}

const usage = `usage: npm run sim -- [--seeds N] [--from N] [--processes N] [--until-failed]
       npm run sim -- --seed N [--trace] [--otlp FILE]
       npm run sim -- --scenario FILE [--trace] [--otlp FILE]
       npm run sim -- --hours H [-j N] [--from N] [--plans N] [--unguided]

  --seeds N         Number of seeds to run (default 20)
  --from N          First seed (default 1)
  -j, --processes N Number of processes that run seeds (default: one per core)
  --until-failed    Stop at the first seed that fails
  --seed N          Run only this seed
  --scenario FILE   Run this plan, such as one that a failing seed was shrunk to
  --shrink SECONDS  Maximum real time for shrinking each failing seed; 0: none (default ${shrinkMsMax / 1_000})
  --hours H         Explore for H hours: seeds, and mutations of those plans that reached new marks or transitions of charts
  --plans N         Explore at most N plans
  --unguided        Explore new seeds only, for comparison
  --trace           Write its trace, spans and recording even if it passes
  --otlp FILE       Write its spans to FILE, as OTLP in JSON for Jaeger, Tempo or any collector

The trace, spans and recording of seeds that fail, and the scenario that each was shrunk to, are written to a new folder.`;

const { values, only, planned, from, count, processes, shrinkMs, exploring } = orExit(() => {
  const values = scriptArguments(usage, {
    seeds: { type: "string", default: "20" },
    from: { type: "string", default: "1" },
    seed: { type: "string" },
    scenario: { type: "string" },
    shrink: { type: "string", default: String(shrinkMsMax / 1_000) },
    trace: { type: "boolean", default: false },
    otlp: { type: "string" },
    processes: { type: "string", short: "j" },
    "until-failed": { type: "boolean", default: false },
    hours: { type: "string" },
    plans: { type: "string" },
    unguided: { type: "boolean", default: false },
  });
  if (values.seed !== undefined && values.scenario !== undefined)
    throw new UsageError(`--seed and --scenario exclude each other\n${usage}`);
  const planned = values.scenario === undefined ? null : plannedRun(values.scenario);
  const seed = values.seed === undefined ? null : wholeNumber("--seed", values.seed, usage);
  const only = planned?.options ?? (seed === null ? null : drawOptions(seed));
  if (only === null && (values.trace || values.otlp !== undefined))
    throw new UsageError(`--trace and --otlp need --seed or --scenario\n${usage}`);
  const exploring = explored(values);
  if (exploring !== null && only !== null) throw new UsageError(`--hours excludes --seed and --scenario\n${usage}`);
  return {
    values,
    exploring,
    only,
    planned,
    from: only?.seed ?? wholeNumber("--from", values.from, usage),
    count: only === null ? wholeNumber("--seeds", values.seeds, usage) : 1,
    shrinkMs: 1_000 * wholeNumber("--shrink", values.shrink, usage),
    processes: values.processes === undefined ? undefined : wholeNumber("--processes", values.processes, usage, 1),
  };
});
/** Maximum number of failing seeds whose traces are written. */
const tracesMax = 5;
const marks = new Map<string, number>();
let folder: string | null = null;
let failed = 0;
/** Seeds that failed as listed in known-failures.ts. */
let knownToFail = 0;
let ran = only === null ? 0 : 1;

async function save(options: SimOptions, run: SimResult): Promise<void> {
  folder ??= mkdtempSync(join(tmpdir(), "muster-sim-"));
  const origin = planned === null ? `npm run sim -- --seed ${options.seed}` : `${values.scenario}`;
  const name = `seed-${options.seed}`;
  for (const line of await saveFailingRun({ folder, name, options, origin, shrinkMs }, run)) say(`  ${line}`);
}

interface ExploreArguments {
  readonly hours?: string;
  readonly plans?: string;
  readonly unguided: boolean;
}

/** Null: no exploration. Throws UsageError. */
function explored({ hours, plans, unguided }: ExploreArguments) {
  if (hours === undefined) {
    if (plans === undefined && !unguided) return null;
    throw new UsageError(`--plans and --unguided need --hours\n${usage}`);
  }
  const number = Number(hours);
  if (!(number > 0 && number <= hoursMax))
    throw new UsageError(`--hours: expected a number above 0, up to ${hoursMax}, got "${hours}"\n${usage}`);
  const plansMax = plans === undefined ? Number.MAX_SAFE_INTEGER / 2 : wholeNumber("--plans", plans, usage, 1);
  return { limitMs: number * 3_600_000, plansMax, isGuided: !unguided };
}

/** Throws UsageError. */
function plannedRun(path: string): PlannedRun {
  try {
    return readScenario(readFileSync(path, "utf8"), path);
  } catch (error) {
    throw new UsageError((error as Error).message);
  }
}

function isPassed(seed: number, result: SeedResult): boolean {
  for (const [mark, times] of result.marks) marks.set(mark, (marks.get(mark) ?? 0) + times);
  const summary = `${Math.round(result.virtualMs / 1000)} s virtual, ${result.steps} steps, ${result.versions} versions`;
  const { note, verdict } = judgeSeed(planned === null ? knownFailures.get(seed) : undefined, result.failure);
  if (verdict === "passed") {
    say(`seed ${seed}: passed (${summary})`);
    return true;
  }
  if (verdict === "known") knownToFail += 1;
  else failed += 1;
  const failure = result.failure === null ? "" : ` ${result.failure}`;
  say(`seed ${seed}: ${verdict === "known" ? "known to fail:" : "FAILED"}${failure} (${summary})`);
  if (note !== "") say(`  ${note}`);
  if (verdict === "known") return true;
  if (planned === null) say(`  ${describeOptions(drawOptions(seed))}`);
  say(`  again: npm run sim -- ${planned === null ? `--seed ${seed}` : `--scenario ${values.scenario}`}`);
  return false;
}

if (exploring !== null) {
  const stop = new AbortController();
  process.once("SIGINT", () => stop.abort());
  const violated = await explore({ ...exploring, from, processes, shrinkMs, say, signal: stop.signal });
  // A pipe takes the report in pieces, and an exit would drop those that it has not taken yet.
  await new Promise((resolve) => process.stdout.write("", resolve));
  process.exit(violated === 0 ? 0 : 1);
}

if (only === null) {
  const untilFailed = values["until-failed"];
  await runSeeds({ from, count, processes, untilFailed }, async (seed, result) => {
    ran += 1;
    // Nothing is kept while many seeds run; the first few failing seeds run again, with the same result, to write their files.
    if (isPassed(seed, result) || failed > tracesMax || untilFailed) return;
    const options = drawOptions(seed);
    await save(options, await runSeed(options, filesKeep));
  });
} else {
  say(`seed ${from}: ${describeOptions(only)}`);
  const result = await runSeed(only, filesKeep);
  if (planned !== null)
    say(`  the file says: ${planned.violates === null ? "passes" : `violates ${planned.violates}`}`);
  if (!isPassed(from, { ...result, marks: [...result.marks] }) || values.trace) await save(only, result);
  if (values.otlp !== undefined) {
    writeFileSync(values.otlp, otlpJson(result.spans));
    say(`  ${result.spans.length} spans: ${values.otlp}`);
  }
}

let isRotten = false;
if (only === null) {
  say("branches reached:");
  for (const [mark, times] of [...marks].sort(([a], [b]) => (a < b ? -1 : 1)))
    say(`  ${String(times).padStart(7)}  ${mark}`);
  const { notes, problems } = judgeMarks({
    reached: new Set(marks.keys()),
    known: knownMarks,
    rare: rareMarks,
    from,
    passed: ran - failed - knownToFail,
    failed,
  });
  for (const note of notes) say(`note: ${note}`);
  for (const problem of problems) say(`FAILED ${problem}`);
  isRotten = problems.length > 0;
}
if (knownToFail > 0) say(`${knownToFail} failed as they are known to (test/sim/known-failures.ts)`);
say(`${ran - failed - knownToFail} passed, ${failed} failed`);
process.exitCode = failed === 0 && !isRotten ? 0 : 1;
