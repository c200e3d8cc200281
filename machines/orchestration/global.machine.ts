/**
 * The orchestrator of one global service; one actor for each. The chart decides when it acts,
 * `machines/orchestration/global-nodes.ts` what it does.
 *
 *   settled ──▶ gathering ──▶ deciding ⇄ writing ──▶ settled           removed, after the service is removed
 *                   ▲             └──▶ waiting ──nextLook──┘
 *
 * O1: one decision is in flight at a time: the next sees the result of the last in the store.
 * O2: changes during a decision are not lost: they lead to another decision afterwards.
 * O3: there is no state outside the store, so a new leader's orchestrator continues where the last one stopped.
 */
import { assign, setup } from "xstate";
import { effect } from "../effect.ts";

export type GlobalEvent =
  /** The service, a node, or one of its tasks has changed. */
  | { readonly type: "nodes.touched" }
  | { readonly type: "service.removed" }
  | { readonly type: "round.due" }
  /** `nextMs`: milliseconds until it must decide again by itself; -1: never. */
  | { readonly type: "decision.empty"; readonly nextMs: number }
  | { readonly type: "decision.made"; readonly nextMs: number }
  /** The decision is in the store, or could not be written and must be made again. */
  | { readonly type: "decision.written" };

export interface GlobalContext {
  readonly serviceId: string;
  readonly nextMs: number;
  /** Something happened while a decision was being written (O2). */
  readonly isTouched: boolean;
}

export const globalMachine = setup({
  types: {
    context: {} as GlobalContext,
    events: {} as GlobalEvent,
    input: {} as { readonly serviceId: string },
  },
  actions: {
    /** Answered by `round.due` after the current commits are applied. */
    gather: effect("gather"),
    /** Answered by `decision.empty`, or by `decision.made` and later `decision.written`. */
    decide: effect("decide"),
    reportUnexpected: effect("reportUnexpected"),
    rememberNext: assign((_, { nextMs }: { nextMs: number }) => ({ nextMs })),
    rememberTouch: assign({ isTouched: true }),
    forgetTouch: assign({ isTouched: false }),
  },
  guards: {
    hasNext: (_, { nextMs }: { nextMs: number }) => nextMs >= 0,
    hasDeadline: ({ context }) => context.nextMs >= 0,
    isTouched: ({ context }) => context.isTouched,
  },
  delays: { nextLook: ({ context }) => context.nextMs },
}).createMachine({
  id: "global",
  context: ({ input }) => ({ serviceId: input.serviceId, nextMs: -1, isTouched: false }),
  initial: "gathering",
  options: { maxIterations: 1_000 },
  on: {
    "service.removed": ".removed",
    "*": { actions: "reportUnexpected" },
  },
  states: {
    settled: {
      description:
        "Each eligible node has its task and no other node has one, as far as the orchestrator can act on it. O3",
      on: { "nodes.touched": "gathering" },
    },
    waiting: {
      description: "Settled, but waiting for a known time: the end of a restart delay or of an update delay.",
      after: { nextLook: "deciding" },
      on: { "nodes.touched": "gathering" },
    },
    gathering: {
      description: "Nodes, tasks or the service changed; gathering more from the same commits.",
      entry: "gather",
      on: { "nodes.touched": {}, "round.due": "deciding" },
    },
    deciding: {
      description: "Comparing the tasks on the nodes with the spec. O1",
      entry: ["forgetTouch", "decide"],
      on: {
        "decision.empty": [
          {
            guard: { type: "hasNext", params: ({ event }) => event },
            target: "waiting",
            actions: { type: "rememberNext", params: ({ event }) => event },
          },
          { target: "settled" },
        ],
        "decision.made": { target: "writing", actions: { type: "rememberNext", params: ({ event }) => event } },
        "nodes.touched": { actions: "rememberTouch" },
      },
    },
    writing: {
      description: "Writing the decision to the log. O1, O2",
      on: {
        "nodes.touched": { actions: "rememberTouch" },
        "decision.written": [
          { guard: "isTouched", target: "gathering" },
          { guard: "hasDeadline", target: "waiting" },
          { target: "settled" },
        ],
      },
    },
    removed: {
      description: "The service is removed; another orchestrator stops its tasks.",
      type: "final",
    },
  },
});
