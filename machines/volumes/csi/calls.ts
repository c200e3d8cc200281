/**
 * The steps of a cluster volume, in the charts `volume`, `publication` and `node-volume`: each step is a call to the storage plugin
 * or a write; one that fails is retried after a delay, and the next step is derived anew.
 */
import { backoffMs } from "../../../lib/backoff.ts";

export const csiTimes = {
  /** Timeout of a call in milliseconds (SwarmKit's). Calls are idempotent: the next attempt finds what was finished late. */
  callMs: 15_000,
  /** Retry delay; it doubles with each attempt, like that of SwarmKit's agent. */
  retry: { stepMs: 100, msMax: 60_000 },
  /** The same after a refusal that persists until somebody acts, such as no space. */
  refused: { stepMs: 5_000, msMax: 600_000 },
  /** How long a link to a plugin must hold to reset the retry delay, in milliseconds. */
  linkHeldMs: 10_000,
} as const;

/** How a call failed. `refused`: the plugin understood it, did nothing, and would refuse it again. `unclear`: anything else. */
export type Failing = "unclear" | "refused";

export interface StepFailure {
  readonly reason: string;
  readonly failing: Failing;
}

/** Part of a chart's context. */
export interface StepFailures extends StepFailure {
  /** Consecutive failures; `reason` and `failing` are those of the last one. */
  readonly attempts: number;
}

export const noFailures: StepFailures = { attempts: 0, failing: "unclear", reason: "" };

export function withFailure({ attempts }: StepFailures, { reason, failing }: StepFailure): StepFailures {
  return { attempts: attempts + 1, failing, reason };
}

export type CallOutcome = { readonly type: "call.answered" } | ({ readonly type: "call.failed" } & StepFailure);

/** `write.settled`: the write is in the store; `stage` is the new stage. */
export type WriteOutcome<Stage> =
  | { readonly type: "write.settled"; readonly stage: Stage }
  | ({ readonly type: "write.failed" } & StepFailure);

/** Events of a chart that takes its next step from the store. */
export type StoredStepEvent<Stage> =
  /** Sent whenever the object or its users change. */
  | { readonly type: "volume.changed"; readonly stage: Stage }
  | CallOutcome
  | WriteOutcome<Stage>
  /** The plugin is reachable (again), or has changed. */
  | { readonly type: "plugin.served" };

export function retryMs({ attempts, failing }: Pick<StepFailures, "attempts" | "failing">): number {
  return backoffMs(failing === "refused" ? csiTimes.refused : csiTimes.retry, attempts);
}
