/**
 * A stream of what a manager computes for a node, on the agent's side: each session has one for network policy and one
 * for the networks of the node's tasks.
 *
 *   detached ──session──▶ asking ──whole──▶ following
 *      ▲                    ▲ │                │
 *      └── session's end    │ └──▶ waiting ◀───┘ the stream's end
 *          (from anywhere)  └─────────┘ └──▶ leaving
 *                             unsupported
 *
 * MS1: the last received state stays in force in every state of the chart: nothing is removed because no manager can be
 *      reached.
 * MS2: each answer begins with a complete state, so a broken stream is resumed by a new request.
 * MS3: the wait between two requests grows with each that returns nothing, and is reset by an answer. After `failuresMax`
 *      such requests the session is ended, to find another manager; a manager that fails later is asked again.
 */
import { assign } from "xstate";
import { backoffMs } from "../../lib/backoff.ts";
import { chart, effect } from "../chart.ts";

const managerStreamLimits = {
  /** The first wait is shorter than the agent's wait between two sessions. */
  backoff: { stepMs: 250, msMax: 8_000 },
  /** Requests to one manager that returned no complete state. */
  failuresMax: 4,
} as const;

type ManagerStreamEvent =
  /** There is a session with a manager that offers the stream. */
  | { readonly type: "session.opened" }
  | { readonly type: "session.closed" }
  /** A complete state, or a change to it, was applied. */
  | { readonly type: "state.taken" }
  | { readonly type: "stream.ended"; readonly reason: string }
  /** The manager is not Muster and does not offer this stream. */
  | { readonly type: "stream.unsupported" };

interface ManagerStreamContext {
  readonly failures: number;
  /** Why the last stream ended; for operators. */
  readonly reason: string;
}

type Ended = Extract<ManagerStreamEvent, { type: "stream.ended" }>;

export const managerStreamMachine = chart({
  types: { context: {} as ManagerStreamContext, events: {} as ManagerStreamEvent },
  effects: {
    /** Opens a stream; answered by `state.taken`, `stream.ended` or `stream.unsupported`. */
    ask: effect(),
    /** Abandons the requested stream. */
    hangUp: effect(),
    /** Ends the session, so that another manager is found; answered by `session.closed`. */
    leave: effect<{ readonly reason: string }>(),
  },
  actions: {
    countFailure: assign(({ context }, { reason }: { readonly reason: string }) => ({
      failures: context.failures + 1,
      reason,
    })),
    forgetFailures: assign({ failures: 0, reason: "" }),
  },
  guards: { hasFailedTooOften: ({ context }) => context.failures >= managerStreamLimits.failuresMax },
  drawnDelays: { backoff: ({ context }) => backoffMs(managerStreamLimits.backoff, context.failures) },
  shows: { context: ["failures"] },
}).createMachine({
  id: "managerStream",
  context: { failures: 0, reason: "" },
  initial: "detached",
  ignore: [
    // From a stream that was abandoned.
    "stream.ended",
    "state.taken",
    "stream.unsupported",
  ],
  on: {
    "session.closed": { target: ".detached", actions: "hangUp" },
  },
  states: {
    detached: {
      description: "There is no manager to ask. MS1",
      meta: { waitingFor: "a session with a manager", wokenBy: { "session.opened": "a registered session" } },
      entry: "forgetFailures",
      ignore: ["session.closed"],
      on: { "session.opened": "asking" },
    },
    asking: {
      description:
        "A manager was asked. One that cannot read the log yet is not abandoned: without the log no other could answer. MS2",
      meta: {
        waitingFor: "the manager's complete answer",
        wokenBy: { "state.taken": "the complete answer", "stream.*": "the end of the stream" },
      },
      entry: "ask",
      on: {
        "state.taken": "following",
        "stream.unsupported": "unsupported",
        "stream.ended": {
          target: "waiting",
          actions: { type: "countFailure", params: ({ event }: { event: Ended }) => ({ reason: event.reason }) },
        },
      },
    },
    following: {
      description: "The complete answer has arrived.",
      meta: {
        waitingFor: "a change",
        wokenBy: { "stream.ended": "the end of the stream", "session.closed": "the end of the session" },
      },
      tags: ["following"],
      entry: "forgetFailures",
      on: {
        "stream.ended": {
          target: "waiting",
          actions: { type: "countFailure", params: ({ event }: { event: Ended }) => ({ reason: event.reason }) },
        },
      },
    },
    waiting: {
      description: "The stream ended but the session goes on. MS3",
      meta: {
        waitingFor: "the next question to the manager",
        wokenBy: { backoff: "the end of the delay", "session.closed": "the end of the session" },
      },
      always: { guard: "hasFailedTooOften", target: "leaving" },
      after: { backoff: "asking" },
    },
    leaving: {
      description: "The manager sends nothing: the session ends, and the next one is with another manager. MS3",
      meta: { waitingFor: "the end of the session", wokenBy: { "session.closed": "its end" } },
      entry: {
        type: "leave",
        params: ({ context }: { context: ManagerStreamContext }) => ({ reason: context.reason }),
      },
    },
    unsupported: {
      description: "The manager does not offer this stream; the session goes on without it. MS1",
      meta: {
        waitingFor: "the next session, perhaps with a manager that offers this stream",
        wokenBy: { "session.closed": "the end of this session" },
      },
    },
  },
});
