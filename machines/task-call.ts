/**
 * One call of a running task (a command in it, a signal, its use of the node) at the manager that was asked.
 *
 *   asking ──▶ open ──▶ over
 *      └──────────────────▲
 *
 * C1: whoever asked is told the end, once, whatever dies on the way.
 * C2: nothing is left running on the node for somebody who has left, as far as it can be reached.
 */
import { assign, setup } from "xstate";
import { effect } from "./effect.ts";

/** Times in milliseconds. */
export const taskCallTimes = {
  /** For the manager that has the node to take the question. */
  askTimeoutMs: 5_000,
  /** Between two looks whether the call is still under way there. */
  pulseMs: 2_000,
  /** So many in a row that nobody confirmed end it: longer than a manager needs to be told of a lost bus. */
  missedMax: 3,
} as const;

/** Why a call ended before the node said so. */
export type TaskCallFailure = "unreachable" | "lost";

export type TaskCallEvent =
  /** The question is with the node. */
  | { readonly type: "node.asked" }
  /** Nobody has the node, or says so. */
  | { readonly type: "node.missing" }
  | { readonly type: "pulse.heard" }
  | { readonly type: "pulse.missed" }
  /** The node's last answer has been passed on. */
  | { readonly type: "answers.ended" }
  | { readonly type: "caller.left" };

export interface TaskCallContext {
  readonly callId: string;
  readonly missed: number;
}

export const taskCallMachine = setup({
  types: { context: {} as TaskCallContext, events: {} as TaskCallEvent, input: {} as { readonly callId: string } },
  actions: {
    /** Answered by `node.asked` or `node.missing`. */
    ask: effect("ask"),
    /** Answered by `pulse.heard` or `pulse.missed`. */
    lookForPulse: effect("lookForPulse"),
    cancel: effect("cancel"),
    fail: effect<{ failure: TaskCallFailure }>("fail"),
    forget: effect("forget"),
    reportUnexpected: effect("reportUnexpected"),
    countMissed: assign({ missed: ({ context }) => context.missed + 1 }),
    resetMissed: assign({ missed: 0 }),
  },
  guards: { isLost: ({ context }) => context.missed >= taskCallTimes.missedMax },
  delays: { askTimeout: taskCallTimes.askTimeoutMs, pulse: taskCallTimes.pulseMs },
}).createMachine({
  id: "taskCall",
  context: ({ input }) => ({ callId: input.callId, missed: 0 }),
  initial: "asking",
  options: { maxIterations: 1_000 },
  on: {
    "answers.ended": ".over",
    "caller.left": { target: ".over", actions: "cancel" },
    "*": { actions: "reportUnexpected" },
  },
  states: {
    asking: {
      description: "Asking the manager that serves the node.",
      entry: "ask",
      on: {
        "node.asked": "open",
        "node.missing": { target: "over", actions: { type: "fail", params: { failure: "unreachable" } } },
      },
      after: {
        askTimeout: { target: "over", actions: ["cancel", { type: "fail", params: { failure: "unreachable" } }] },
      },
    },
    open: {
      description: "The node answers; the manager is asked at intervals whether the call still runs. C1",
      after: { pulse: "pulsing" },
    },
    pulsing: {
      description: "Asking the node's manager whether the call is still running.",
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
      entry: "forget",
      on: { "node.*": {}, "pulse.*": {}, "answers.ended": {}, "caller.left": {} },
    },
  },
});
