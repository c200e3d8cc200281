/** A run that fails leaves files that other programs open, and the recording leads to the moment of the failure. */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { openFile } from "../../cli/replay/open.ts";
import { drawOptions } from "../../simulation/options.ts";
import { runSeed } from "../../simulation/world.ts";
import { spansOfJson } from "../support/otlp-schema.ts";
import { filesKeep, saveRun } from "./run-files.ts";
import { steadyTasks } from "./scripted.ts";

test("the trace, the spans and the recording of a run that fails end at the failure", async (t) => {
  t.timeout(120_000);
  const folder = mkdtempSync(join(tmpdir(), "muster-run-files-"));
  t.teardown(() => rmSync(folder, { recursive: true }));
  // Tasks that take an hour to start: the cluster cannot come to rest.
  const options = { ...drawOptions(1), trials: 0, tasks: { ...steadyTasks, startMsMax: 3_600_000 } };
  const run = await runSeed(options, filesKeep);
  t.regex(run.failure ?? "", /^L\d/);
  const lines = saveRun(folder, "seed-1", run);
  t.deepEqual(readdirSync(folder).sort(), ["seed-1.mrec", "seed-1.otlp.json", "seed-1.trace"]);
  for (const name of readdirSync(folder)) t.true(lines.some((line) => line.includes(join(folder, name))));
  t.true(readFileSync(join(folder, "seed-1.trace"), "utf8").includes(`world FAILED ${run.failure}`));
  t.is(spansOfJson(readFileSync(join(folder, "seed-1.otlp.json"))).length, run.spans.length);

  const recording = await openFile(join(folder, "seed-1.mrec"), false);
  const failure = recording.lines.find(({ process }) => process === "world");
  t.is(failure?.text, run.failure ?? "");
  const { fromMs, processes, stepsTotal, toMs } = recording.index;
  t.true(stepsTotal > 1_000);
  t.true(recording.spans > 50);
  t.true(processes.includes("manager-m1"));
  const atMs = failure?.atMs ?? 0;
  t.true(fromMs < atMs && atMs - toMs < 1_000, "the steps reach to the failure");
});
