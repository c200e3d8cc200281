/**
 * When a manager backs up the cluster by itself.
 *
 *   looking ──▶ waiting ──▶ taking ──▶ waiting …
 *                 ▲           │ ▲
 *                 │           ▼ │
 *                 └──────── retrying
 *
 * BS1: a backup begins when the interval since the newest kept one has passed, by the wall clock at the start of the process, or at
 *      once if there is none: restarts of the manager neither skip nor repeat one.
 * BS2: older backups are removed only after a newer one is complete and on disk.
 * BS3: a failed backup is retried, and reported until one succeeds.
 */
import { assign } from "xstate";
import { chart, effect } from "../chart.ts";

const backupTimes = {
  /** Longest wait after a failure, in milliseconds: a full disk or a missing mount is noticed by people, not at once. */
  retryMsMax: 10 * 60_000,
} as const;

export type BackupScheduleEvent =
  /** `newestAgoMs`: milliseconds since the newest kept backup; null: there is none. Negative if a clock was set back. */
  | { readonly type: "folder.read"; readonly newestAgoMs: number | null }
  | { readonly type: "folder.failed"; readonly reason: string }
  | { readonly type: "backup.taken" }
  | { readonly type: "backup.failed"; readonly reason: string };

/** BS1 */
export function dueInMs(everyMs: number, newestAgoMs: number | null): number {
  if (newestAgoMs === null) return 0;
  return Math.min(everyMs, Math.max(0, everyMs - newestAgoMs));
}

export const backupScheduleMachine = chart({
  types: {
    context: {} as { readonly everyMs: number; readonly waitMs: number; readonly reason: string },
    events: {} as BackupScheduleEvent,
    input: {} as { readonly everyMs: number },
  },
  effects: {
    /** Answered by `folder.read` or `folder.failed`. */
    readFolder: effect(),
    /** Answered by `backup.taken` or `backup.failed`. */
    takeBackup: effect(),
    /** BS2 */
    removeOld: effect(),
    reportFailure: effect<{ reason: string }>(),
    reportSuccess: effect(),
  },
  actions: {
    rememberWait: assign(({ context }, { newestAgoMs }: { newestAgoMs: number | null }) => ({
      waitMs: dueInMs(context.everyMs, newestAgoMs),
    })),
    waitForInterval: assign(({ context }) => ({ waitMs: context.everyMs, reason: "" })),
    rememberReason: assign((_, { reason }: { reason: string }) => ({ reason })),
  },
  delays: {
    due: ({ context }) => context.waitMs,
    retry: ({ context }) => Math.min(context.everyMs, backupTimes.retryMsMax),
  },
  shows: { context: ["everyMs", "waitMs"], events: ["newestAgoMs"] },
}).createMachine({
  id: "backupSchedule",
  context: ({ input }) => ({ everyMs: input.everyMs, waitMs: 0, reason: "" }),
  initial: "looking",
  states: {
    looking: {
      description: "Reading which backups the folder has. BS1",
      meta: {
        waitingFor: "the folder of the backups",
        wokenBy: { "folder.read": "its list", "folder.failed": "an error of the disk" },
      },
      entry: "readFolder",
      on: {
        "folder.read": { target: "waiting", actions: { type: "rememberWait", params: ({ event }) => event } },
        "folder.failed": { target: "retrying", actions: { type: "rememberReason", params: ({ event }) => event } },
      },
    },
    waiting: {
      description: "The newest backup is recent enough. BS1",
      meta: { waitingFor: "the time of the next backup", wokenBy: { due: "the end of the interval" } },
      after: { due: "taking" },
    },
    taking: {
      description: "Writing a backup.",
      meta: {
        waitingFor: "the backup to be complete",
        wokenBy: { "backup.taken": "its end", "backup.failed": "an error of the log or the disk" },
      },
      entry: "takeBackup",
      on: {
        "backup.taken": { target: "waiting", actions: ["waitForInterval", "reportSuccess", "removeOld"] },
        "backup.failed": { target: "retrying", actions: { type: "rememberReason", params: ({ event }) => event } },
      },
    },
    retrying: {
      description: "The last backup failed. BS3",
      meta: { waitingFor: "the next attempt to write a backup", wokenBy: { retry: "the end of the delay" } },
      entry: { type: "reportFailure", params: ({ context }) => ({ reason: context.reason }) },
      after: { retry: "taking" },
    },
  },
});
