/** Rehearses a scenario with several seeds, in several processes. */
import { programStart } from "../../lib/installation.ts";
import { UserError } from "../../lib/user-error.ts";
import type { ChildProcess } from "node:child_process";
import { poolNodeFlags, runPool, startPoolProcess } from "../pool.ts";
import type { RefusedRun, RehearsalOutcome, RunOutcome } from "./outcome.ts";
import type { ClusterPlan, ScenarioPlan } from "./plan.ts";
import { packedPlans, type PackedPlans } from "./plan-wire.ts";

const program = () => programStart("simulation/rehearsal/process", poolNodeFlags);

/** Starts the first process, which takes as long to load its program as a command to read its files. It ends once it is disconnected. */
export const startRehearsing = (): ChildProcess => startPoolProcess(program());

interface RehearseAllOptions {
  /** The first process, if it was started already. */
  readonly started?: ChildProcess | undefined;
  /** Name of the cluster in the outcome. */
  readonly name: string;
  readonly cluster: ClusterPlan;
  readonly scenario: ScenarioPlan;
  /** The first seed, and the number of seeds. */
  readonly from: number;
  readonly seeds: number;
  /** Default: the number of processors. */
  readonly processes?: number | undefined;
  /** Called with the simulated milliseconds of a run so far; 0 while the cluster is being founded. */
  readonly onProgress?: (seed: number, ranMs: number) => void;
  readonly onRun?: (run: RunOutcome) => void;
  /** Aborts: the outcome then has what was run of the scenario, without seeds that had not begun with it. */
  readonly signal?: AbortSignal;
}

/** The runs are in the order of their seeds, and the same for any number of processes. Throws UserError if managers refuse the cluster. */
export async function rehearseAll(options: RehearseAllOptions): Promise<RehearsalOutcome> {
  const { cluster, from, name, onProgress, onRun, processes, scenario, seeds, signal, started } = options;
  const runs: RunOutcome[] = [];
  let refused: string | null = null;
  await runPool<PackedPlans, RunOutcome | RefusedRun>({
    program: program(),
    started,
    settings: packedPlans(cluster, scenario),
    from,
    count: seeds,
    processes,
    lost: (how) => lostRun(`the process of the simulation ended: ${how}`),
    // With another seed it would be refused as well.
    isLast: (run) => "refused" in run,
    onResult: (seed, run) => {
      if ("refused" in run) {
        refused ??= run.refused;
        return;
      }
      // Interrupted while its cluster was founded: nothing of the scenario was run.
      if (run.ranMs === 0 && run.violation === null) return;
      const result = { ...run, seed };
      runs.push(result);
      onRun?.(result);
    },
    ...(onProgress === undefined ? {} : { onProgress }),
    ...(signal === undefined ? {} : { signal }),
  });
  if (refused !== null) throw new UserError(refused);
  return { cluster: name, scenario: scenario.name, durationMs: scenario.durationMs, runs, seedsWanted: seeds };
}

function lostRun(violation: string): RunOutcome {
  return { seed: 0, ranMs: 0, violation, services: [], jobs: [], placement: [], refusals: [], requests: 0, events: [] };
}
