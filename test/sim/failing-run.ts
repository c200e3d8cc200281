/** The files of a run that failed, and of the smallest plan that fails likewise. */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { SimOptions } from "../../simulation/options.ts";
import { runSeed, type SimResult } from "../../simulation/world.ts";
import { filesKeep, saveRun } from "./run-files.ts";
import { scenarioText } from "./shrinking/scenario-file.ts";
import { shrink } from "./shrinking/shrink.ts";

interface FailingRun {
  readonly folder: string;
  /** Of the files, such as `seed-7`. */
  readonly name: string;
  readonly options: SimOptions;
  /** The command or plan that it comes from, for the comment of the scenario. */
  readonly origin: string;
  /** Maximum real time for shrinking; 0: it is not shrunk. */
  readonly shrinkMs: number;
}

/** Writes them. `run`: with `filesKeep`, and need not have failed. Returns lines that say which. */
export async function saveFailingRun(
  { folder, name, options, origin, shrinkMs }: FailingRun,
  run: SimResult,
): Promise<readonly string[]> {
  const lines = saveRun(folder, name, run);
  const { failure, marks, strikes } = run;
  if (failure === null || shrinkMs === 0) return lines;
  const how = { run: runSeed, limitMs: shrinkMs, now: () => performance.now() };
  const shrunk = await shrink(options, { failure, marks, strikes }, how);
  const path = join(folder, `${name}.shrunk.yaml`);
  const comment = [shrunk.failure, `Shrunk from ${origin}, in ${shrunk.runs} runs.`];
  writeFileSync(path, scenarioText({ options: shrunk.options, violates: shrunk.invariant }, comment));
  lines.push(`shrunk in ${shrunk.runs} runs${shrunk.isMinimal ? "" : " (stopped by --shrink)"}: ${shrunk.failure}`);
  lines.push(`scenario: ${path} (npm run sim -- --scenario ${path})`);
  const smallest = await runSeed(shrunk.options, filesKeep);
  return [...lines, ...saveRun(folder, `${name}.shrunk`, smallest)];
}
