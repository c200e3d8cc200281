/**
 * One stream of the Watch service: where it starts, how it catches up, and why it ends.
 *
 *   starting ──▶ live ──▶ ended
 *      ├──▶ ahead ──▶ replaying ──▶ live
 *      └──▶ replaying { recent { sending ⇄ waiting } ⇄ retained { queued → reading ⇄ held } } ──▶ live
 *
 * Only control events go through the chart; the changes themselves bypass it.
 *
 * W1: the first message is empty; every change committed after it is sent, in order.
 * W2: a stream that resumes gets each change after its version once: from the replica's memory of recent changes, else from
 *     the log, and then live, without gaps or overlaps.
 * W3: a watcher that does not read is disconnected; it can resume from the last version that it received.
 */
import { assign } from "xstate";
import { chart, effect } from "../chart.ts";

/** Why a stream ended. */
export type WatchEnding =
  /** The log does not have that version yet. */
  | "future"
  /** The changes after the version are no longer retained. */
  | "compacted"
  /** This manager's replica did not reach the version in time. */
  | "behind"
  /** The log or the snapshots cannot be read. */
  | "unreadable"
  | "slow"
  /** The replica continued from a snapshot and skipped the changes between. */
  | "jumped"
  | "stopped";

export type WatchEvent =
  /** The last version of the log, in answer to `askLog`. */
  | { readonly type: "log.answered"; readonly last: number }
  /** The replica has reached the watcher's version. */
  | { readonly type: "version.reached" }
  /** Everything up to the replica's version has been sent. */
  | { readonly type: "recent.sent" }
  /** The watcher has not yet read what was sent. */
  | { readonly type: "recent.held" }
  /** The next change is no longer in memory. */
  | { readonly type: "recent.outrun" }
  | { readonly type: "room.made" }
  | { readonly type: "history.begun" }
  /** Too much is buffered for the watcher. */
  | { readonly type: "history.held" }
  | { readonly type: "history.moved" }
  /** The remaining changes are in memory. */
  | { readonly type: "history.reached" }
  | { readonly type: "history.compacted" }
  | { readonly type: "history.unreadable" }
  | { readonly type: "watcher.slow" }
  | { readonly type: "replica.jumped" }
  | { readonly type: "caller.gone" }
  | { readonly type: "manager.stopped" };

interface WatchInput {
  /** The watcher's version; null: it wants only new changes. */
  readonly from: number | null;
  /** The replica's version. */
  readonly version: number;
  /** Whether the changes after the watcher's version are in memory. */
  readonly isRecent: boolean;
}

interface WatchContext extends WatchInput {
  readonly isGreeted: boolean;
}

export const watchTimes = {
  /** As long as a call searches for a leader; a replica that lags further cannot serve watches. */
  behindMs: 15_000,
  /** How long a watcher may read nothing of a replay: others wait for their turn at the log. */
  stallMs: 10_000,
} as const;

export const watchMachine = chart({
  types: { context: {} as WatchContext, events: {} as WatchEvent, input: {} as WatchInput },
  effects: {
    /** Sends the empty message. */
    sendGreeting: effect(),
    /** Requests the log's last version; answered by `log.answered`, or not at all. */
    askLog: effect(),
    awaitVersion: effect(),
    stopAwaitingVersion: effect(),
    /** Sends the changes in memory; answered by `recent.sent`, `recent.held` or `recent.outrun`. */
    sendRecent: effect(),
    awaitRoom: effect(),
    stopAwaitingRoom: effect(),
    joinReplay: effect(),
    leaveReplay: effect(),
    joinLive: effect(),
    leaveLive: effect(),
    endStream: effect<{ ending: WatchEnding }>(),
    release: effect(),
  },
  actions: {
    rememberGreeting: assign({ isGreeted: true }),
  },
  guards: {
    isFresh: ({ context }) => context.from === null || context.from === context.version,
    isAhead: ({ context }) => (context.from ?? 0) > context.version,
    isFuture: ({ context }, { last }: { last: number }) => (context.from ?? 0) > last,
    isRecent: ({ context }) => context.isRecent,
    isGreeted: ({ context }) => context.isGreeted,
  },
  delays: { behind: watchTimes.behindMs, stall: watchTimes.stallMs },
  shows: { context: ["from", "version", "isRecent", "isGreeted"], events: ["last"] },
}).createMachine({
  id: "watch",
  context: ({ input }) => ({ ...input, isGreeted: false }),
  initial: "starting",
  ignore: [
    // Concerns only live streams: the others read the log.
    "replica.jumped",
  ],
  on: {
    "caller.gone": ".ended",
    "manager.stopped": { target: ".ended", actions: { type: "endStream", params: { ending: "stopped" } } },
    "watcher.slow": { target: ".ended", actions: { type: "endStream", params: { ending: "slow" } } },
  },
  states: {
    starting: {
      description: "Choosing where to start; never stays here.",
      always: [
        { guard: "isFresh", target: "live", actions: ["rememberGreeting", "sendGreeting"] },
        { guard: "isAhead", target: "ahead" },
        { guard: "isRecent", target: "replaying", actions: ["rememberGreeting", "sendGreeting"] },
        { target: "replaying.retained" },
      ],
    },
    ahead: {
      description: "The watcher's version is newer than this replica; the log is asked whether it has that version. W2",
      meta: {
        waitingFor: "this replica to reach the watcher's version",
        wokenBy: {
          "version.reached": "that version",
          "log.answered": "the log's answer, if it lacks that version",
          behind: "the time limit",
        },
      },
      entry: ["awaitVersion", "askLog"],
      exit: "stopAwaitingVersion",
      on: {
        "log.answered": {
          guard: { type: "isFuture", params: ({ event }) => ({ last: event.last }) },
          target: "ended",
          actions: { type: "endStream", params: { ending: "future" } },
        },
        "version.reached": { target: "replaying", actions: ["rememberGreeting", "sendGreeting"] },
      },
      after: { behind: { target: "ended", actions: { type: "endStream", params: { ending: "behind" } } } },
    },
    replaying: {
      description: "Sending the changes since the watcher's version. W2",
      tags: "replaying",
      initial: "recent",
      states: {
        recent: {
          description: "Sending from this process's memory, at the watcher's pace.",
          initial: "sending",
          states: {
            sending: {
              description: "Sending as many changes as may be buffered for the watcher.",
              meta: {
                waitingFor: "the next changes from memory",
                wokenBy: { "recent.*": "the outcome of the sending" },
              },
              entry: "sendRecent",
              on: {
                "recent.sent": "#watch.live",
                "recent.held": "waiting",
                "recent.outrun": "#watch.replaying.retained",
              },
            },
            waiting: {
              description: "The buffer for the watcher is full. W3",
              meta: {
                waitingFor: "the watcher to read what was sent",
                wokenBy: { "room.made": "room in the buffer", stall: "the time limit" },
              },
              entry: "awaitRoom",
              exit: "stopAwaitingRoom",
              on: { "room.made": "sending" },
              after: { stall: { target: "#watch.ended", actions: { type: "endStream", params: { ending: "slow" } } } },
            },
          },
        },
        retained: {
          description: "Sending from a snapshot and the log, together with other resuming watchers.",
          initial: "queued",
          entry: "joinReplay",
          exit: "leaveReplay",
          on: {
            "history.reached": "recent",
            "history.compacted": {
              target: "#watch.ended",
              actions: { type: "endStream", params: { ending: "compacted" } },
            },
            "history.unreadable": {
              target: "#watch.ended",
              actions: { type: "endStream", params: { ending: "unreadable" } },
            },
          },
          states: {
            queued: {
              description: "Other rebuilds may come first.",
              meta: {
                waitingFor: "the state at the watcher's version to be rebuilt",
                wokenBy: { "history.begun": "the rebuilt state" },
              },
              on: {
                "history.begun": [
                  { guard: "isGreeted", target: "reading" },
                  { target: "reading", actions: ["rememberGreeting", "sendGreeting"] },
                ],
              },
            },
            reading: {
              description: "Applying each transaction of the log to the rebuilt state and sending it.",
              meta: {
                waitingFor: "the rest of the log",
                wokenBy: { "history.reached": "the end of the log", "history.held": "a full buffer" },
              },
              // Restarted after a gap.
              ignore: ["history.begun"],
              on: { "history.held": "held" },
            },
            held: {
              description: "The buffer for the watcher is full; no more of the log is read. W3",
              meta: {
                waitingFor: "the watcher to read what was sent",
                wokenBy: { "history.moved": "room in the buffer", stall: "the time limit" },
              },
              on: { "history.moved": "reading", "history.begun": "reading" },
              after: { stall: { target: "#watch.ended", actions: { type: "endStream", params: { ending: "slow" } } } },
            },
          },
        },
      },
    },
    live: {
      description: "Sending each transaction as the replica applies it. W1",
      meta: {
        waitingFor: "the next transaction",
        wokenBy: {
          "replica.jumped": "a replica that skips a part of the log",
          "watcher.slow": "a full buffer",
          "caller.gone": "the end of the call",
        },
      },
      tags: "live",
      entry: "joinLive",
      exit: "leaveLive",
      on: {
        "replica.jumped": { target: "ended", actions: { type: "endStream", params: { ending: "jumped" } } },
      },
    },
    ended: {
      description: "Nothing more is sent.",
      type: "final",
      entry: "release",
    },
  },
});
