/** Runs seeds of the simulation in as many processes as there are processors. */
import { fileURLToPath } from "node:url";
import { poolNodeFlags, runPool } from "../../simulation/pool.ts";
import type { SimResult } from "../../simulation/world.ts";

/** The part of a run's result that crosses processes. */
export interface SeedResult extends Pick<SimResult, "failure" | "steps" | "versions" | "virtualMs"> {
  readonly marks: readonly (readonly [string, number])[];
}

interface SeedRange {
  readonly from: number;
  readonly count: number;
  /** Default: the number of processors. */
  readonly processes?: number | undefined;
  /** Starts no further seed after a failure. */
  readonly untilFailed: boolean;
}

const seedProcess = fileURLToPath(new URL("seed-process.ts", import.meta.url));

/** Runs seeds; reports each result in the order of the seeds, as soon as the earlier ones are available. */
export function runSeeds(
  { untilFailed, ...range }: SeedRange,
  onResult: (seed: number, result: SeedResult) => Promise<void>,
): Promise<void> {
  return runPool<null, SeedResult>({
    ...range,
    program: { command: process.execPath, args: [...poolNodeFlags, seedProcess] },
    settings: null,
    lost: (how) => {
      const failure = `the process of the simulation ended: ${how}`;
      return { failure, marks: [], steps: 0, versions: 0, virtualMs: 0 };
    },
    isLast: ({ failure }) => untilFailed && failure !== null,
    onResult,
  });
}
