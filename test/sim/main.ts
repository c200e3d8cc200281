/**
 * `npm run sim -- --seeds 200 [--from N] [--processes N] [--until-failed]`, or `--seed 8471` for one seed. When a seed fails,
 * its trace, its spans and a recording are written. Ends with `N passed, N failed`; exits with 1 if any seed failed, or if CI's seeds no longer reach a mark (marks.ts).
 */
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { judgeSeed, knownFailures } from "./known-failures.ts";
import { judgeMarks, knownMarks, unreachedMarks } from "./marks.ts";
import { describeOptions, drawOptions } from "../../simulation/options.ts";
import { runSeeds, type SeedResult } from "./seed-pool.ts";
import { orExit, scriptArguments, UsageError, wholeNumber } from "../support/script-arguments.ts";
import { otlpJson } from "./otlp.ts";
import { filesKeep, saveRun } from "./run-files.ts";
import { runSeed, type SimResult } from "../../simulation/world.ts";

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}

const usage = `usage: npm run sim -- [--seeds N] [--from N] [--processes N] [--until-failed]
       npm run sim -- --seed N [--trace] [--otlp FILE]

  --seeds N         Number of seeds to run (default 20)
  --from N          First seed (default 1)
  --processes N     Number of processes that run seeds (default: one per core)
  --until-failed    Stop at the first seed that fails
  --seed N          Run only this seed
  --trace           Write its trace, spans and recording even if it passes
  --otlp FILE       Write its spans to FILE, as OTLP in JSON for Jaeger, Tempo or any collector

The trace, spans and recording of seeds that fail are written to a new folder.`;

const { values, only, from, count, processes } = orExit(() => {
  const values = scriptArguments(usage, {
    seeds: { type: "string", default: "20" },
    from: { type: "string", default: "1" },
    seed: { type: "string" },
    trace: { type: "boolean", default: false },
    otlp: { type: "string" },
    processes: { type: "string" },
    "until-failed": { type: "boolean", default: false },
  });
  const only = values.seed === undefined ? null : wholeNumber("--seed", values.seed, usage);
  if (only === null && (values.trace || values.otlp !== undefined))
    throw new UsageError(`--trace and --otlp need --seed\n${usage}`);
  return {
    values,
    only,
    from: only ?? wholeNumber("--from", values.from, usage),
    count: only === null ? wholeNumber("--seeds", values.seeds, usage) : 1,
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

function save(seed: number, run: SimResult): void {
  folder ??= mkdtempSync(join(tmpdir(), "muster-sim-"));
  for (const line of saveRun(folder, seed, run)) say(`  ${line}`);
}

function isPassed(seed: number, result: SeedResult): boolean {
  for (const [mark, times] of result.marks) marks.set(mark, (marks.get(mark) ?? 0) + times);
  const summary = `${Math.round(result.virtualMs / 1000)} s virtual, ${result.steps} steps, ${result.versions} versions`;
  const { note, verdict } = judgeSeed(knownFailures.get(seed), result.failure);
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
  say(`  ${describeOptions(drawOptions(seed))}`);
  say(`  again: npm run sim -- --seed ${seed}`);
  return false;
}

if (only === null) {
  const untilFailed = values["until-failed"];
  await runSeeds({ from, count, processes, untilFailed }, async (seed, result) => {
    ran += 1;
    // Nothing is kept while many seeds run; the first few failing seeds run again, with the same result, to write their files.
    if (isPassed(seed, result) || failed > tracesMax || untilFailed) return;
    save(seed, await runSeed(drawOptions(seed), filesKeep));
  });
} else {
  const options = drawOptions(from);
  say(`seed ${from}: ${describeOptions(options)}`);
  const result = await runSeed(options, filesKeep);
  if (!isPassed(from, { ...result, marks: [...result.marks] }) || values.trace) save(from, result);
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
    unreached: unreachedMarks,
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
