/**
 * The move of the log from one manager's own nats-server to a cluster of three managers' servers. It runs on the manager whose
 * server has the log, which is the only one that may decide about it.
 *
 *   alone ──▶ gathering ──▶ stopping ─(a start)─▶ copying ──▶ committing ──▶ moved
 *     ▲           │                                 │  ▲           │
 *     └── resting ◀─(the copy failed: a start)──────┘  └───── checking
 *
 * A process that is killed continues at its next start from the stage that it has saved: `moving` at copying, `committing` at
 * checking. Before a copy begins, every other manager has lost its connection to the old server, which then serves this chart's
 * effects alone; nobody uses the copy before it is committed.
 *
 * X1: the old log is written to only while no copy exists that may become valid: never from `stopping` on, until a copy has
 *     failed without an attempt to commit it.
 * X2: from the first attempt to commit on, the old log is never served again. If the outcome is unknown, this chart asks until
 *     the cluster answers; the operator's way out is a restored backup (docs/managers.md, when a majority is lost).
 * X3: a copy is committed only when it is complete, and complete again if it was lost in between.
 */
import { assign } from "xstate";
import { chart, effect } from "../chart.ts";

const natsMoveTimes = {
  /** After a failed attempt, in milliseconds: long enough not to disturb a cluster whose third manager cannot be reached. */
  restMs: 30_000,
  /** Between two questions to the cluster for the outcome of a commit, in milliseconds. */
  askAgainMs: 1_000,
} as const;

/** Managers whose servers form the cluster: with this one three, which tolerate the loss of one. */
export const othersNeeded = 2;

/** Saved before the step that it names. `none`: nothing was begun, or it was given up. */
export type NatsMoveStage = "none" | "moving" | "committing";

export type NatsMoveEvent =
  /** Number of other live managers. */
  | { readonly type: "others.counted"; readonly others: number }
  /** Two other managers run their servers of the new cluster, which has a leader. */
  | { readonly type: "cluster.gathered" }
  | { readonly type: "gathering.failed" }
  /** All streams have three current copies, which are marked as not committed. */
  | { readonly type: "copy.completed" }
  | { readonly type: "copy.failed"; readonly reason: string }
  | { readonly type: "commit.confirmed" }
  | { readonly type: "commit.unknown" }
  /** An answer of the new cluster about its copy. */
  | { readonly type: "target.read"; readonly found: "committed" | "not committed" };

export const natsMoveMachine = chart({
  types: {
    context: {} as {
      readonly stage: NatsMoveStage;
      readonly others: number;
      readonly hasTriedToCommit: boolean;
    },
    events: {} as NatsMoveEvent,
    input: {} as { readonly stage: NatsMoveStage },
  },
  effects: {
    /** Asks two other managers for servers, and starts all three; answered by `cluster.gathered` or `gathering.failed`. */
    gather: effect(),
    /** Saves `moving`, and restarts this manager, which disconnects everybody from the old server. X1 */
    stopServing: effect(),
    /** Copies all streams, replacing what an earlier attempt left; answered by `copy.completed` or `copy.failed`. */
    copy: effect(),
    /** Saves `committing`, then declares the copy valid; answered by `commit.confirmed` or `commit.unknown`. X2 */
    commit: effect(),
    /** Answered by `target.read`, or not at all. */
    readTarget: effect(),
    /** Saves `none`: the old server serves everybody again. */
    giveUp: effect<{ reason: string }>(),
    /** Saves that this manager belongs to the cluster. */
    finish: effect(),
  },
  actions: {
    count: assign((_, { others }: { others: number }) => ({ others })),
    rememberCommit: assign({ hasTriedToCommit: true }),
  },
  guards: {
    isEnough: ({ context }) => context.others >= othersNeeded,
    isMoving: ({ context }) => context.stage === "moving",
    isCommitting: ({ context }) => context.stage === "committing",
    mayGiveUp: ({ context }) => !context.hasTriedToCommit,
    isCommitted: (_, { found }: { found: string }) => found === "committed",
  },
  delays: { rest: natsMoveTimes.restMs, askAgain: natsMoveTimes.askAgainMs },
  shows: { context: ["stage", "others", "hasTriedToCommit"], events: ["others", "found"] },
}).createMachine({
  id: "nats-move",
  context: ({ input }) => ({ stage: input.stage, others: 0, hasTriedToCommit: input.stage === "committing" }),
  initial: "starting",
  on: { "others.counted": { actions: { type: "count", params: ({ event }) => event } } },
  states: {
    starting: {
      description: "Continuing from the saved stage.",
      always: [{ guard: "isMoving", target: "copying" }, { guard: "isCommitting", target: "checking" }, "alone"],
    },
    alone: {
      description: "The log is on this manager's nats-server, which serves all managers. X1",
      meta: {
        waitingFor: "two other managers, to move the log to a cluster of three nats-servers",
        wokenBy: { "others.counted": "a manager that joins or returns" },
      },
      always: { guard: "isEnough", target: "gathering" },
    },
    gathering: {
      description: "Starting a nats-server on this manager and on two others. X1",
      meta: {
        waitingFor: "two other managers to start nats-servers of the new cluster, and the servers to elect a leader",
        wokenBy: { "cluster.gathered": "that leader", "gathering.failed": "a manager that cannot start one" },
      },
      entry: "gather",
      on: { "cluster.gathered": "stopping", "gathering.failed": "resting" },
    },
    resting: {
      description: "The cluster could not be formed: trying again later. X1",
      meta: { waitingFor: "the next attempt to form a cluster", wokenBy: { rest: "the end of the delay" } },
      after: { rest: "alone" },
    },
    stopping: {
      type: "final",
      entry: "stopServing",
      description: "Disconnecting all managers from the log, to copy it: this manager restarts. X1",
    },
    copying: {
      description: "Copying the log to the cluster; writes wait. X1, X3",
      meta: {
        waitingFor: "the new cluster to have three copies of everything",
        wokenBy: { "copy.completed": "the last copy", "copy.failed": "an error, or a time limit" },
      },
      entry: "copy",
      on: {
        "copy.completed": "committing",
        "copy.failed": [
          { guard: "mayGiveUp", target: "givenUp", actions: { type: "giveUp", params: ({ event }) => event } },
          { target: "checking" },
        ],
      },
    },
    committing: {
      description: "Declaring the copy valid. X2, X3",
      meta: {
        waitingFor: "the new cluster to confirm that its copy is valid",
        wokenBy: { "commit.confirmed": "its confirmation", "commit.unknown": "its silence" },
      },
      entry: ["rememberCommit", "commit"],
      on: { "commit.confirmed": "moved", "commit.unknown": "checking" },
    },
    checking: {
      description: "The copy may be valid or not: asking the cluster. X2",
      meta: {
        waitingFor: "two nats-servers of the new cluster, to learn whether their copy is valid",
        wokenBy: { "target.read": "their answer", askAgain: "the next question" },
      },
      entry: "readTarget",
      on: {
        "target.read": [
          { guard: { type: "isCommitted", params: ({ event }) => event }, target: "moved" },
          // Copied again: it may have been lost in part. X3
          { target: "copying" },
        ],
      },
      after: { askAgain: { target: "checking", reenter: true } },
    },
    givenUp: {
      type: "final",
      description: "The copy failed before it could be valid: the old server serves everybody again. X1",
    },
    moved: {
      type: "final",
      entry: "finish",
      description: "The log is in the cluster of three nats-servers. X2",
    },
  },
});
