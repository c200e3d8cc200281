/** A rehearsal's results: plain data, which crosses processes as JSON. All times are in milliseconds since the scenario began. */

/** One run of a scenario with one seed. */
export interface RunOutcome {
  readonly seed: number;
  /** Simulated time that was run: the scenario's length, unless it was interrupted or failed. */
  readonly ranMs: number;
  /** Violated invariant, in one sentence; null if all held. */
  readonly violation: string | null;
  /** Without jobs. */
  readonly services: readonly ServiceOutcome[];
  readonly jobs: readonly JobOutcome[];
  readonly placement: readonly PlacementSample[];
  /** Requests of the scenario, and of the probe that asks managers all the time, that failed. */
  readonly refusals: readonly Refusal[];
  /** Requests of that probe. */
  readonly requests: number;
  /** In order of time: the scenario's steps, elections, nodes lost and back. */
  readonly events: readonly RunEvent[];
}

export interface JobOutcome {
  readonly name: string;
  /** One, and one more for each update that starts the work again; of a scheduled job, its runs. Oldest first. */
  readonly executions: readonly JobExecution[];
  readonly moves: readonly Move[];
}

export interface JobExecution {
  /** When it was created. */
  readonly beganMs: number;
  /** When its last task ended, or it was removed or replaced by an update; null: it did not end. */
  readonly endedMs: number | null;
  /** `succeeded`, `failed`, `removed` or `replaced`; if it did not end, `working`, `paused` or `stopped`. */
  readonly state: string;
  /** Tasks that have to complete, and those that have. */
  readonly total: number;
  readonly done: number;
  /** Tasks that failed, also if another one took their place. */
  readonly failedTasks: number;
}

/** Instead of an outcome: managers refused the plan's cluster, and say why. */
export interface RefusedRun {
  readonly refused: string;
}

export interface ServiceOutcome {
  readonly name: string;
  /** Changes of the number of wanted and of running (healthy, if it has a health check) tasks. */
  readonly replicas: readonly { readonly atMs: number; readonly wanted: number; readonly running: number }[];
  /**
   * Smallest share of wanted tasks that ran, from 0 to 1, after it first had all; those that were asked for since it last had all
   * do not count. 0 if it never had all, 1 if it never wanted any.
   */
  readonly availabilityMin: number;
  /** Share of time with all wanted tasks running, after it first had all. */
  readonly fullShare: number;
  readonly rollouts: readonly RolloutOutcome[];
  readonly moves: readonly Move[];
  /** Time from creation until all wanted tasks ran; null: never. */
  readonly firstFullMs: number | null;
}

export interface RolloutOutcome {
  readonly beganMs: number;
  /** Null: it did not end. */
  readonly endedMs: number | null;
  /** Its last state, in SwarmKit's words, such as `completed`, `rollback_completed`, `paused`. */
  readonly state: string;
  /** Reasons for which it waited, with the time spent on each, longest first. */
  readonly blocked: readonly { readonly reason: string; readonly ms: number }[];
}

/** A task that was replaced by one elsewhere, or restarted. */
export interface Move {
  readonly atMs: number;
  readonly from: string;
  /** Null: no node took it by the end. Empty: it was stopped or replaced, such as by a rollback, before a node took it. */
  readonly to: string | null;
  /** Such as `node worker-3 is down`, `task failed: exit code 1`, `drained`. */
  readonly reason: string;
}

export interface PlacementSample {
  readonly atMs: number;
  /** Running tasks of the node with the fewest and with the most, and the mean, over READY nodes. */
  readonly min: number;
  readonly max: number;
  readonly mean: number;
}

export interface Refusal {
  readonly atMs: number;
  readonly request: string;
  readonly reason: string;
}

export interface RunEvent {
  readonly atMs: number;
  readonly text: string;
}

/** All runs of one configuration: as many as were finished. */
export interface RehearsalOutcome {
  readonly cluster: string;
  readonly scenario: string;
  readonly durationMs: number;
  readonly runs: readonly RunOutcome[];
  /** Seeds that were asked for. */
  readonly seedsWanted: number;
}
