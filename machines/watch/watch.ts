/**
 * One stream of the Watch service: where it begins, how it catches up, and why it ends.
 *
 *   starting ──▶ live ──▶ ended
 *      ├──▶ ahead ──▶ replaying ──▶ live
 *      └──▶ replaying { recent { sending ⇄ waiting } ⇄ retained { queued → reading ⇄ held } } ──▶ live
 *
 * Only the turns of the stream go through the chart; the changes themselves pass beside it.
 *
 * W1: the first message is empty and comes before every other; what is committed after it is told complete and in order.
 * W2: a stream that resumes gets each change after its version once: from the replica's memory of what was last, else from
 *     the log, and then live, without a gap and without an overlap.
 * W3: who does not read is cut off; it can resume from the last version that it got.
 */
import { assign, setup } from "xstate";
import { effect } from "../effect.ts";

/** Why a stream ended. */
export type WatchEnding =
  /** The log does not have that version yet, and nobody has told of it. */
  | "future"
  /** What followed the version is no longer kept. */
  | "compacted"
  /** This manager's replica did not come to the version in time. */
  | "behind"
  /** The log or the snapshots cannot be read. */
  | "unreadable"
  | "slow"
  /** The replica went on from a snapshot: what came between was not seen here. */
  | "jumped"
  | "stopped";

export type WatchEvent =
  /** The last version of the log, in answer to `askLog`. */
  | { readonly type: "log.answered"; readonly last: number }
  /** The replica has come to the version that the watcher has. */
  | { readonly type: "version.reached" }
  /** Everything up to the replica's version has been handed over. */
  | { readonly type: "recent.sent" }
  /** The watcher has not taken what was handed over yet. */
  | { readonly type: "recent.held" }
  /** What comes next is no longer in memory. */
  | { readonly type: "recent.outrun" }
  | { readonly type: "room.made" }
  | { readonly type: "history.begun" }
  /** The watcher has too much before it. */
  | { readonly type: "history.held" }
  | { readonly type: "history.moved" }
  /** The rest is in memory. */
  | { readonly type: "history.reached" }
  | { readonly type: "history.compacted" }
  | { readonly type: "history.unreadable" }
  | { readonly type: "watcher.slow" }
  | { readonly type: "replica.jumped" }
  | { readonly type: "caller.gone" }
  | { readonly type: "manager.stopped" };

export interface WatchInput {
  /** The version that the watcher has; null: it wants only what comes. */
  readonly from: number | null;
  /** That of the replica. */
  readonly version: number;
  /** Whether what followed the watcher's version is in memory. */
  readonly isRecent: boolean;
}

export interface WatchContext extends WatchInput {
  readonly isGreeted: boolean;
}

export const watchTimes = {
  /** As long as a call looks for a leader; a replica that lags more than this is no place to watch at. */
  behindMs: 15_000,
  /** Nothing of a replay taken for so long: others wait for their turn at the log. */
  stallMs: 10_000,
} as const;

export const watchMachine = setup({
  types: { context: {} as WatchContext, events: {} as WatchEvent, input: {} as WatchInput },
  actions: {
    /** Sends the empty message. */
    sendGreeting: effect("sendGreeting"),
    /** Asks for the log's last version; answered by `log.answered`, or not at all. */
    askLog: effect("askLog"),
    awaitVersion: effect("awaitVersion"),
    stopAwaitingVersion: effect("stopAwaitingVersion"),
    /** Hands over what is in memory; answered by `recent.sent`, `recent.held` or `recent.outrun`. */
    sendRecent: effect("sendRecent"),
    awaitRoom: effect("awaitRoom"),
    stopAwaitingRoom: effect("stopAwaitingRoom"),
    joinReplay: effect("joinReplay"),
    leaveReplay: effect("leaveReplay"),
    joinLive: effect("joinLive"),
    leaveLive: effect("leaveLive"),
    endStream: effect<{ ending: WatchEnding }>("endStream"),
    release: effect("release"),
    reportUnexpected: effect("reportUnexpected"),

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
}).createMachine({
  id: "watch",
  context: ({ input }) => ({ ...input, isGreeted: false }),
  initial: "starting",
  options: { maxIterations: 1_000 },
  on: {
    "caller.gone": ".ended",
    "manager.stopped": { target: ".ended", actions: { type: "endStream", params: { ending: "stopped" } } },
    "watcher.slow": { target: ".ended", actions: { type: "endStream", params: { ending: "slow" } } },
    // It matters only to who is live: others read the log.
    "replica.jumped": {},
    "*": { actions: "reportUnexpected" },
  },
  states: {
    starting: {
      description: "Choosing where to begin; never rests here.",
      always: [
        { guard: "isFresh", target: "live", actions: ["rememberGreeting", "sendGreeting"] },
        { guard: "isAhead", target: "ahead" },
        { guard: "isRecent", target: "replaying", actions: ["rememberGreeting", "sendGreeting"] },
        { target: "replaying.retained" },
      ],
    },
    ahead: {
      description:
        "The watcher's version is newer than this replica: waiting for it, unless the log itself does not have it. W2",
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
      description: "Sending what happened since the watcher's version. W2",
      tags: "replaying",
      initial: "recent",
      states: {
        recent: {
          description: "Sending from this process's memory, at the watcher's pace.",
          initial: "sending",
          states: {
            sending: {
              description: "Handing over as many changes as may wait for the watcher.",
              entry: "sendRecent",
              on: {
                "recent.sent": "#watch.live",
                "recent.held": "waiting",
                "recent.outrun": "#watch.replaying.retained",
              },
            },
            waiting: {
              description: "Waiting for the watcher to take what it was handed. W3",
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
              description: "Waiting for the state at the watcher's version to be rebuilt.",
              on: {
                "history.begun": [
                  { guard: "isGreeted", target: "reading" },
                  { target: "reading", actions: ["rememberGreeting", "sendGreeting"] },
                ],
              },
            },
            reading: {
              description: "Applying each transaction of the log to the rebuilt state and sending it.",
              // Begun anew behind a gap.
              on: { "history.begun": {}, "history.held": "held" },
            },
            held: {
              description: "Waiting for the watcher to take what was sent before reading on. W3",
              on: { "history.moved": "reading", "history.begun": "reading" },
              after: { stall: { target: "#watch.ended", actions: { type: "endStream", params: { ending: "slow" } } } },
            },
          },
        },
      },
    },
    live: {
      description: "Live: sending each transaction as the replica applies it. W1",
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
