/** Rehearses the seeds of a pool: see rehearse-all.ts. */
import { runSeedsOfPool } from "../pool.ts";
import type { RefusedRun, RunOutcome } from "./outcome.ts";
import { unpackedPlans, type PackedPlans } from "./plan-wire.ts";
import { rehearse, SetUpRefused } from "./run.ts";

/** Interval between two reports of progress, in milliseconds of real time. */
const reportMs = 200;

runSeedsOfPool<PackedPlans, RunOutcome | RefusedRun>(async (seed, { isCancelled, onProgress, settings }) => {
  const { cluster, scenario } = unpackedPlans(settings);
  let reportedAt = 0;
  try {
    return await rehearse(cluster, scenario, seed, {
      isCancelled,
      onProgress: (ranMs) => {
        if (performance.now() - reportedAt < reportMs) return;
        reportedAt = performance.now();
        onProgress(ranMs);
      },
    });
  } catch (error) {
    if (error instanceof SetUpRefused) return { refused: error.message };
    throw error;
  }
});
