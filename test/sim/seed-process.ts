/** Runs the seeds that its parent sends, one after another, and sends back each result: see seed-pool.ts. */
import { drawOptions } from "../../simulation/options.ts";
import type { SeedResult } from "./seed-pool.ts";
import { runSeed } from "../../simulation/world.ts";

process.on("message", (seed: number) => {
  void runSeed(drawOptions(seed), false).then(({ failure, marks, steps, versions, virtualMs }) => {
    const result: SeedResult = { failure, marks: [...marks], steps, versions, virtualMs };
    process.send?.(result);
  });
});
