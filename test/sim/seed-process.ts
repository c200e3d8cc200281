/** Runs the seeds of a pool: see seed-pool.ts. */
import { drawOptions } from "../../simulation/options.ts";
import { runSeedsOfPool } from "../../simulation/pool.ts";
import type { SeedResult } from "./seed-pool.ts";
import { runSeed } from "../../simulation/world.ts";

runSeedsOfPool(async (seed): Promise<SeedResult> => {
  const { failure, marks, steps, versions, virtualMs } = await runSeed(drawOptions(seed));
  return { failure, marks: [...marks], steps, versions, virtualMs };
});
