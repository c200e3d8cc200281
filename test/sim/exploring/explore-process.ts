/** Runs the plans of an exploration: see explore.ts. */
import type { SimOptions } from "../../../simulation/options.ts";
import { runSeedsOfPool } from "../../../simulation/pool.ts";
import { runSeed } from "../../../simulation/world.ts";
import type { ExploredRun } from "./exploration.ts";

runSeedsOfPool(async (_number, { job }: { readonly job: SimOptions }): Promise<ExploredRun> => {
  const before = process.cpuUsage();
  const { failure, marks, steps, strikes, transitions, versions, virtualMs } = await runSeed(job, {
    transitions: true,
  });
  const { system, user } = process.cpuUsage(before);
  const cpuMs = (user + system) / 1_000;
  return {
    failure,
    marks: [...marks],
    transitions: [...transitions.keys()],
    steps,
    strikes,
    versions,
    virtualMs,
    cpuMs,
  };
});
