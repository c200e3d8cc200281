/**
 * Whether a manager that makes no progress still serves nodes. Such a manager is cut off from the log: it can neither hear of
 * new assignments nor record what its nodes report, and the others declare it dead, and then its nodes DOWN.
 *
 *   following ──▶ asking ──▶ doubting ──▶ confirming ──▶ apart ──▶ following
 *                   ⇅                        │
 *                together ◀──────────────────┘
 *
 * I1: nodes are sent away only when no probe has returned for the whole time limit of `progress.machine.ts`, and when another
 *     manager may serve them: one that makes progress, or cannot be reached from here. While all others say that they make no
 *     progress either, it is the log that is away, and nodes that wandered between managers would only add to the load.
 *     Another manager notices the same silence of the log up to an interval of probes later than this one, so it is asked
 *     twice.
 * I2: as soon as a probe returns, this manager serves nodes again.
 */
import { chart, effect } from "../chart.ts";

const isolationTimes = {
  /**
   * Between two rounds of questions to the other managers, in milliseconds: that of probes, since their answers change no
   * faster.
   */
  askAgainMs: 3_000,
  /** From the first answer that another may serve to the second question, in milliseconds: an interval of probes, and half of one. */
  confirmMs: 4_500,
} as const;

export type IsolationEvent =
  /** No probe has returned for the time limit. */
  | { readonly type: "progress.lost" }
  | { readonly type: "progress.made" }
  | { readonly type: "peers.answered"; readonly mayServe: boolean };

/** The answer of another manager to the question for its health. */
export type PeerHealth = "serving" | "stuck" | "unreachable";

/** Whether one of the other managers may serve this one's nodes. I1 */
export function mayServe(peers: readonly PeerHealth[]): boolean {
  return peers.some((health) => health !== "stuck");
}

export const isolationMachine = chart({
  types: { events: {} as IsolationEvent },
  effects: {
    /** Asks every other manager that was alive; answered by `peers.answered`. */
    askPeers: effect(),
    /** Ends all sessions, and rejects new ones. */
    sendNodesAway: effect(),
    serveNodes: effect(),
  },
  guards: { mayServe: (_, { mayServe }: { mayServe: boolean }) => mayServe },
  delays: { askAgain: isolationTimes.askAgainMs, confirm: isolationTimes.confirmMs },
  shows: { events: ["mayServe"] },
}).createMachine({
  id: "isolation",
  initial: "following",
  ignore: ["progress.lost", "progress.made", "peers.answered"],
  states: {
    following: {
      description: "This manager makes progress, or has stopped only recently. I2",
      meta: {
        waitingFor: "nothing: this manager makes progress",
        wokenBy: { "progress.lost": "the time limit for its probes" },
      },
      on: { "progress.lost": "asking" },
    },
    asking: {
      description: "This manager makes no progress: asking the others whether they do. I1",
      meta: {
        waitingFor: "the other managers to say whether they make progress",
        wokenBy: { "peers.answered": "their answers", "progress.made": "a probe that returns" },
      },
      entry: "askPeers",
      on: {
        "progress.made": "following",
        "peers.answered": [
          { guard: { type: "mayServe", params: ({ event }) => event }, target: "doubting" },
          { target: "together" },
        ],
      },
    },
    doubting: {
      description: "Another manager may serve, or has not noticed yet that the log is away: asking again soon. I1",
      meta: {
        waitingFor: "the others to notice, if it is the log that is away",
        wokenBy: { confirm: "the second question to the other managers", "progress.made": "a probe that returns" },
      },
      on: { "progress.made": "following" },
      after: { confirm: "confirming" },
    },
    confirming: {
      description: "Asking the others once more whether they make progress. I1",
      meta: {
        waitingFor: "the other managers to say whether they make progress",
        wokenBy: { "peers.answered": "their answers", "progress.made": "a probe that returns" },
      },
      entry: "askPeers",
      on: {
        "progress.made": "following",
        "peers.answered": [
          { guard: { type: "mayServe", params: ({ event }) => event }, target: "apart" },
          { target: "together" },
        ],
      },
    },
    together: {
      description: "No manager makes progress: nodes stay, because no other could serve them better. I1",
      meta: {
        waitingFor: "the log to come back, for all managers",
        wokenBy: { "progress.made": "a probe that returns", askAgain: "the next question to the other managers" },
      },
      on: { "progress.made": "following" },
      after: { askAgain: "asking" },
    },
    apart: {
      description:
        "Only this manager is cut off from the log, as far as it knows: its nodes are sent to the others. I1",
      meta: {
        waitingFor: "this manager to reach the log again",
        wokenBy: { "progress.made": "a probe that returns" },
      },
      entry: "sendNodesAway",
      exit: "serveNodes",
      on: { "progress.made": "following" },
    },
  },
});
