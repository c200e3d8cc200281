/**
 * Watches a node that is not READY, on the leader: one actor per such node.
 *
 *   unknown ──▶ checking ──▶ declaring ──▶ down ──▶ orphaning ──▶ orphaned          (ended when the node is READY again, or gone)
 *                                            ▲──────────┘ tasks.kept
 *
 * W1: an UNKNOWN node (its manager is gone) has six heartbeat periods to register elsewhere before it is DOWN, and is
 *     declared DOWN only after the mass-down breaker granted it, like a node with a session: the fault that took its manager
 *     may have taken more.
 * W3: after the cluster was restored from a backup, nodes without a session have `restoredGraceMs`: the managers may be at other
 *     addresses, and a node that is declared DOWN before it finds them would have its tasks replaced.
 * W2: the tasks of a node that was DOWN for 24 h become ORPHANED; no late report of the node can undo that. Those that their
 *     service keeps (K3 of orchestration/on-disconnect.ts) are left out, and checked again after as long.
 */
import { assign } from "xstate";
import { chart, effect } from "../chart.ts";
import { sessionTimes } from "./session.machine.ts";

export const nodeWatchTimes = {
  /** From SwarmKit (worker protocol §4.1), in milliseconds. */
  orphanDelayMs: 24 * 60 * 60 * 1_000,
  /** Between two attempts to write, in milliseconds, while the log is unavailable. */
  retryMs: 1_000,
  /** Time to give new machines the old addresses, in milliseconds. W3 */
  restoredGraceMs: 10 * 60 * 1_000,
} as const;

/**
 * How long an UNKNOWN node may take to register, in milliseconds (W1, W3). Only a restore leaves such a node without a session:
 * otherwise the session ends with DOWN.
 */
export function unknownGraceMs(heartbeatPeriodMs: number, hasSession: boolean): number {
  const graceMs = heartbeatPeriodMs * sessionTimes.unknownGraceFactor;
  return hasSession ? graceMs : Math.max(graceMs, nodeWatchTimes.restoredGraceMs);
}

type NodeWatchEvent =
  | { readonly type: "node.unknown"; readonly at: number }
  | { readonly type: "node.down"; readonly at: number }
  /** READY, or removed. */
  | { readonly type: "node.settled" }
  | { readonly type: "verdict.granted" }
  | { readonly type: "verdict.held" }
  | { readonly type: "write.failed" }
  | { readonly type: "tasks.orphaned" }
  | { readonly type: "tasks.kept" };

interface NodeWatchInput {
  readonly nodeId: string;
  readonly at: number;
  readonly isDown: boolean;
  /** Milliseconds that an UNKNOWN node has left. */
  readonly unknownGraceMs: number;
  /** Milliseconds that a DOWN node's tasks have left. */
  readonly orphanMs: number;
}

interface NodeWatchContext extends NodeWatchInput {
  /** When the current wait began. */
  readonly since: number;
}

export const nodeWatchMachine = chart({
  types: { context: {} as NodeWatchContext, events: {} as NodeWatchEvent, input: {} as NodeWatchInput },
  effects: {
    /** Answered by `verdict.granted` or `verdict.held`. */
    requestVerdict: effect<{ since: number }>(),
    /** Proposes DOWN; answered by `node.down` through the store, or by `write.failed`. */
    declareDown: effect(),
    /** Proposes ORPHANED for the node's tasks; answered by `tasks.orphaned`, `tasks.kept` if some are kept, or `write.failed`. */
    orphanTasks: effect(),
  },
  actions: {
    rememberSince: assign((_, { at }: { at: number }) => ({ since: at, orphanMs: nodeWatchTimes.orphanDelayMs })),
    waitWhole: assign({ orphanMs: nodeWatchTimes.orphanDelayMs }),
  },
  guards: { isDown: ({ context }) => context.isDown },
  delays: {
    unknownGrace: ({ context }) => context.unknownGraceMs,
    orphanDelay: ({ context }) => context.orphanMs,
    retry: nodeWatchTimes.retryMs,
  },
  shows: { context: ["nodeId", "at", "isDown", "unknownGraceMs", "orphanMs", "since"], events: ["at"] },
}).createMachine({
  id: "nodeWatch",
  context: ({ input }) => ({ ...input, since: input.at }),
  initial: "starting",
  ignore: ["write.failed", "verdict.granted", "verdict.held", "tasks.orphaned", "tasks.kept"],
  on: {
    "node.unknown": { target: ".unknown", actions: { type: "rememberSince", params: ({ event }) => event } },
    "node.down": { target: ".down", actions: { type: "rememberSince", params: ({ event }) => event } },
    "node.settled": ".ended",
  },
  states: {
    starting: {
      description: "Choosing the first state from the stored node; never rests here.",
      always: [{ guard: "isDown", target: "down" }, { target: "unknown" }],
    },
    unknown: {
      description: "The node's manager is gone. W1",
      meta: {
        waitingFor: "the agent to register elsewhere: {its manager} is dead",
        wokenBy: {
          "node.settled": "a Session call to any manager",
          unknownGrace: "the end of the grace period, after which the node may be declared DOWN",
        },
      },
      ignore: ["node.unknown"],
      after: { unknownGrace: "checking" },
    },
    checking: {
      description:
        "Asking the mass-down breaker whether this manager's view can be trusted and how many nodes are missing at once. W1",
      meta: {
        waitingFor: "the mass-down breaker's verdict on whether the node is DOWN",
        wokenBy: { "verdict.*": "the verdict", "node.settled": "a Session call to any manager" },
      },
      entry: { type: "requestVerdict", params: ({ context }) => ({ since: context.since }) },
      ignore: ["node.unknown"],
      on: { "verdict.granted": "declaring", "verdict.held": "waiting" },
    },
    declaring: {
      description: "Writing DOWN to the log. W1",
      meta: {
        waitingFor: "the log, to record that the node is DOWN",
        wokenBy: { "node.down": "the ledger's answer", "write.failed": "a failed write" },
      },
      entry: "declareDown",
      ignore: ["node.unknown"],
      on: { "write.failed": "waiting" },
    },
    waiting: {
      description: "DOWN was not granted or not written. W1",
      meta: {
        waitingFor: "the next question whether the node is DOWN",
        wokenBy: { retry: "the end of the delay", "node.settled": "a Session call to any manager" },
      },
      ignore: ["node.unknown"],
      after: { retry: "checking" },
    },
    down: {
      description: "The node is DOWN; its tasks are kept in case it returns. W2",
      meta: {
        waitingFor: "the agent to register",
        wokenBy: {
          "node.settled": "a Session call to any manager",
          orphanDelay: "the end of the time after which its tasks are orphaned",
        },
      },
      ignore: ["node.down"],
      after: { orphanDelay: "orphaning" },
    },
    orphaning: {
      description: "Writing ORPHANED for the tasks that the node may still be running. W2",
      meta: {
        waitingFor: "the log, to record that the tasks are orphaned",
        wokenBy: { "tasks.*": "the ledger's answer", "write.failed": "a failed write" },
      },
      entry: "orphanTasks",
      ignore: ["node.down"],
      on: {
        "tasks.orphaned": "orphaned",
        "tasks.kept": { target: "down", actions: "waitWhole" },
        "write.failed": "resting",
      },
    },
    resting: {
      description: "The log write failed. W2",
      meta: {
        waitingFor: "the next attempt to write",
        wokenBy: { retry: "the end of the delay", "node.settled": "a Session call to any manager" },
      },
      ignore: ["node.down"],
      after: { retry: "orphaning" },
    },
    orphaned: {
      description: "Nothing is pending for the node.",
      meta: { waitingFor: "the agent to register", wokenBy: { "node.settled": "a Session call to any manager" } },
      ignore: ["node.down"],
    },
    ended: {
      description: "The node is READY again, or was removed.",
      type: "final",
    },
  },
});
