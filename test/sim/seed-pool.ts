/**
 * Runs seeds in as many processes as there are processors. Each process runs one seed at a time, so that a crash or an
 * unhandled
 * rejection belongs to that seed.
 */
import { fork } from "node:child_process";
import { once } from "node:events";
import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import type { SimResult } from "../../simulation/world.ts";

/** The part of a run's result that crosses processes. */
export interface SeedResult extends Pick<SimResult, "failure" | "steps" | "versions" | "virtualMs"> {
  readonly marks: readonly (readonly [string, number])[];
}

const program = fileURLToPath(new URL("seed-process.ts", import.meta.url));

interface SeedRange {
  readonly from: number;
  readonly count: number;
  /** Default: the number of processors. */
  readonly processes?: number | undefined;
  /** Starts no further seed after a failure. */
  readonly untilFailed: boolean;
}

/** Runs seeds; reports each result in the order of the seeds, as soon as the earlier ones are available. */
export async function runSeeds(
  { from, count, processes, untilFailed }: SeedRange,
  onResult: (seed: number, result: SeedResult) => Promise<void>,
): Promise<void> {
  let end = from + count;
  let next = from;
  let told = from;
  let telling = Promise.resolve();
  const results = new Map<number, SeedResult>();
  const tell = (): void => {
    for (let result = results.get(told); result !== undefined; result = results.get((told += 1))) {
      const [seed, found] = [told, result];
      results.delete(seed);
      telling = telling.then(() => onResult(seed, found));
    }
  };
  const work = async (): Promise<void> => {
    while (next < end) {
      const child = fork(program);
      const exited = once(child, "exit").then(([code, signal]): SeedResult => {
        const failure = `the process of the simulation ended: ${String(signal ?? `exit code ${code}`)}`;
        return { failure, marks: [], steps: 0, versions: 0, virtualMs: 0 };
      });
      while (next < end && child.connected) {
        const seed = next++;
        child.send(seed);
        const result = await Promise.race([once(child, "message").then(([found]) => found as SeedResult), exited]);
        if (untilFailed && result.failure !== null) end = Math.min(end, next);
        results.set(seed, result);
        tell();
      }
      if (child.connected) child.disconnect();
    }
  };
  await Promise.all(Array.from({ length: Math.min(count, processes ?? availableParallelism()) }, work));
  await telling;
}
