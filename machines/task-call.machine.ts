/**
 * One call to a running task (a command in it, a signal, its resource usage), on the manager that received it.
 *
 *   asking ──▶ open ──▶ over
 *      └──────────────────▲
 *
 * C1: the caller learns the outcome exactly once, whatever dies meanwhile.
 * C2: nothing keeps running on the node for a caller that has left, if the node can be reached.
 */
import { assign } from "xstate";
import { chart, effect } from "./chart.ts";

/** Times in milliseconds. */
export const taskCallTimes = {
  /** For the manager that serves the node to accept the call. */
  askTimeoutMs: 5_000,
  /** Between two checks whether the call is still running there. */
  pulseMs: 2_000,
  /** This many unconfirmed checks in a row end the call: longer than a manager takes to detect a lost bus. */
  missedMax: 3,
} as const;

/** Why a call ended before the node ended it. */
export type TaskCallFailure = "unreachable" | "lost";

export type TaskCallEvent =
  /** The node has the call. */
  | { readonly type: "node.reached" }
  /** No manager serves the node, or none answers. */
  | { readonly type: "node.missing" }
  | { readonly type: "pulse.heard" }
  | { readonly type: "pulse.missed" }
  /** The node's last answer was forwarded. */
  | { readonly type: "answers.ended" }
  | { readonly type: "caller.left" };

interface TaskCallContext {
  readonly callId: string;
  readonly missed: number;
}

export const taskCallMachine = chart({
  types: { context: {} as TaskCallContext, events: {} as TaskCallEvent, input: {} as { readonly callId: string } },
  effects: {
    /** Answered by `node.reached` or `node.missing`. */
    ask: effect(),
    /** Answered by `pulse.heard` or `pulse.missed`. */
    lookForPulse: effect(),
    cancel: effect(),
    fail: effect<{ failure: TaskCallFailure }>(),
    forget: effect(),
  },
  actions: {
    countMissed: assign({ missed: ({ context }) => context.missed + 1 }),
    resetMissed: assign({ missed: 0 }),
  },
  guards: { isLost: ({ context }) => context.missed >= taskCallTimes.missedMax },
  delays: { askTimeout: taskCallTimes.askTimeoutMs, pulse: taskCallTimes.pulseMs },
  shows: { context: ["callId", "missed"] },
}).createMachine({
  id: "taskCall",
  context: ({ input }) => ({ callId: input.callId, missed: 0 }),
  initial: "asking",
  on: {
    "answers.ended": ".over",
    "caller.left": { target: ".over", actions: "cancel" },
  },
  states: {
    asking: {
      description: "Asking the manager that serves the node.",
      meta: {
        waitingFor: "the manager that serves the node",
        wokenBy: { "node.*": "its answer", "caller.left": "the end of the call", askTimeout: "the time limit" },
      },
      entry: "ask",
      on: {
        "node.reached": "open",
        "node.missing": { target: "over", actions: { type: "fail", params: { failure: "unreachable" } } },
      },
      after: {
        askTimeout: { target: "over", actions: ["cancel", { type: "fail", params: { failure: "unreachable" } }] },
      },
    },
    open: {
      description: "The node answers; the manager is asked at intervals whether the call still runs. C1",
      meta: {
        waitingFor: "the next question whether the call still runs",
        wokenBy: {
          "answers.ended": "the end of the node's answers",
          "caller.left": "the end of the call",
          pulse: "the end of the interval",
        },
      },
      after: { pulse: "pulsing" },
    },
    pulsing: {
      description: "Asking the node's manager whether the call is still running.",
      meta: {
        waitingFor: "the manager's answer",
        wokenBy: { "pulse.*": "the answer", "caller.left": "the end of the call" },
      },
      entry: "lookForPulse",
      on: {
        "pulse.heard": { target: "open", actions: "resetMissed" },
        "pulse.missed": { target: "doubting", actions: "countMissed" },
      },
    },
    doubting: {
      description: "No manager confirms the call; after several tries it counts as lost.",
      always: [
        { guard: "isLost", target: "over", actions: { type: "fail", params: { failure: "lost" } } },
        { target: "open" },
      ],
    },
    over: {
      description: "The call has ended. C2",
      meta: { waitingFor: "nothing: the call has ended", wokenBy: {} },
      entry: "forget",
      ignore: ["node.*", "pulse.*", "answers.ended", "caller.left"],
    },
  },
});
