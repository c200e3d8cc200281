/**
 * What is left of a wait that began at a time in the log, which another machine's clock may have given, or this one's before
 * somebody set it.
 */
import type { Node, Rollout, Service, Task } from "../proto/gen/messages.ts";
import { timeMs } from "../proto/time.ts";

/** Largest difference between two managers' clocks, in milliseconds. A time further ahead came from a wrong clock. */
export const managerSkewMsMax = 120_000;

/** Milliseconds, from 0 to `spanMs`: never more than the whole span, and nothing where the time cannot be right. */
export function leftOf(sinceMs: number, spanMs: number, nowMs: number): number {
  if (sinceMs - nowMs > managerSkewMsMax) return 0;
  return Math.max(0, Math.min(sinceMs + spanMs - nowMs, spanMs));
}

/**
 * When something in the log happened, in milliseconds since the epoch as this manager's clock is set now: only differences to
 * the present mean anything. `machines/manager/sightings.ts` measures them by the monotonic clock.
 */
export interface LogTimes {
  /** When the task was made. */
  madeMs(task: Task): number;
  /** When the task came into its present state. */
  reachedMs(task: Task): number;
  /** When the node's record changed last. */
  changedMs(node: Node): number;
  /** Since when the rollout's failures are counted: it began, or was resumed. */
  countedMs(rollout: Rollout): number;
  /** When the job's present iteration began. */
  executedMs(service: Service): number;
}

/** As the log says it, by the clocks of whoever wrote it. */
export const stampedTimes: LogTimes = {
  madeMs: ({ meta }) => timeMs(meta?.createdAt ?? null),
  reachedMs: ({ status }) => timeMs(status?.appliedAt ?? status?.timestamp ?? null),
  changedMs: ({ meta }) => timeMs(meta?.updatedAt ?? null),
  countedMs: ({ countedSince }) => timeMs(countedSince),
  executedMs: ({ jobStatus }) => timeMs(jobStatus?.lastExecution ?? null),
};
