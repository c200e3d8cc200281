/**
 * The rest of a wait that began at a time in the log. That time may come from another machine's clock, or from this one's
 * before it was set.
 */
import type { Node, Rollout, Service, Task } from "../proto/gen/messages.ts";
import { timeMs } from "../proto/time.ts";

/** Largest difference between two managers' clocks, in milliseconds. A time further ahead came from a wrong clock. */
const managerSkewMsMax = 120_000;

/** Milliseconds left, from 0 to `spanMs`; 0 if the start time cannot be right. */
export function leftOf(sinceMs: number, spanMs: number, nowMs: number): number {
  if (sinceMs - nowMs > managerSkewMsMax) return 0;
  return Math.max(0, Math.min(sinceMs + spanMs - nowMs, spanMs));
}

/**
 * When something in the log happened, in milliseconds since the epoch by this manager's current clock: only differences
 * to the current time are meaningful. `machines/manager/sightings.ts` measures them by the monotonic clock.
 */
export interface LogTimes {
  /** When the task was created. */
  madeMs(task: Task): number;
  /** When the task entered its current state. */
  reachedMs(task: Task): number;
  /** When the node's record last changed. */
  changedMs(node: Node): number;
  /** When counting of the rollout's failures began: at its start, or when it was resumed. */
  countedMs(rollout: Rollout): number;
  /** When the job's current iteration began. */
  executedMs(service: Service): number;
}

/** The timestamps in the log, by the clocks of their writers. */
export const stampedTimes: LogTimes = {
  madeMs: ({ meta }) => timeMs(meta?.createdAt ?? null),
  reachedMs: ({ status }) => timeMs(status?.appliedAt ?? status?.timestamp ?? null),
  changedMs: ({ meta }) => timeMs(meta?.updatedAt ?? null),
  countedMs: ({ countedSince }) => timeMs(countedSince),
  executedMs: ({ jobStatus }) => timeMs(jobStatus?.lastExecution ?? null),
};
