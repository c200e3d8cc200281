/** Runs the seeds that its parent names, one after another, and answers with what came of each: see seed-pool.ts. */
import { drawOptions } from "./options.ts";
import type { SeedResult } from "./seed-pool.ts";
import { runSeed } from "./world.ts";

process.on("message", (seed: number) => {
  void runSeed(drawOptions(seed), false).then(({ failure, marks, steps, versions, virtualMs }) => {
    const result: SeedResult = { failure, marks: [...marks], steps, versions, virtualMs };
    process.send?.(result);
  });
});
