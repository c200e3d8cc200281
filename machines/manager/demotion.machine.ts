/**
 * The demotion of one manager to a worker, as seen by the leader.
 *
 *   leaving ──▶ recording ⇄ retrying
 *      └────────────┴──▶ done
 *
 * The manager notices its demotion itself: it hands over leadership, sends its nodes elsewhere and exits. Only then does the
 * cluster record it as a worker, so that nothing treats it as one while it still acts as a manager.
 *
 * D1: a manager that does not exit, or is cut off, becomes a worker after the grace period anyway; from then on no manager
 *     accepts it as one.
 * D2: a leader never demotes itself, and only a leader demotes a manager: otherwise it would write the log as a worker. A
 *     demoted leader that does not exit gives up leadership, and the next leader records the demotion.
 */
import { assign } from "xstate";
import { chart, effect } from "../chart.ts";

export const demotionTimes = {
  /**
   * How long a manager has to exit, in milliseconds: its goodbye to nodes takes 2 s, handing over leadership up to 6 s. D1
   */
  graceMs: 10_000,
  /** Between two attempts to write the demotion, in milliseconds: SwarmKit's. */
  retryMs: 5_000,
} as const;

export type DemotionEvent =
  /** Its heartbeats have stopped, or its record was removed. */
  | { readonly type: "manager.gone" }
  /** The log records it as a worker. */
  | { readonly type: "demotion.recorded" }
  | { readonly type: "write.failed"; readonly reason: string }
  /** It was promoted again, or the node was removed. */
  | { readonly type: "demotion.withdrawn" };

export const demotionMachine = chart({
  types: {
    context: {} as { readonly nodeId: string; readonly isGone: boolean; readonly reason: string },
    events: {} as DemotionEvent,
    input: {} as { readonly nodeId: string; readonly isGone: boolean },
  },
  effects: {
    /** Answered by `demotion.recorded` or `write.failed`; a leader that records its own demotion ends its term instead. D2 */
    recordDemotion: effect<{ nodeId: string }>(),
  },
  actions: {
    rememberReason: assign((_, { reason }: { reason: string }) => ({ reason })),
  },
  guards: { isGone: ({ context }) => context.isGone },
  delays: { grace: demotionTimes.graceMs, retry: demotionTimes.retryMs },
  shows: { context: ["nodeId", "isGone"] },
}).createMachine({
  id: "demotion",
  context: ({ input }) => ({ ...input, reason: "" }),
  initial: "leaving",
  ignore: ["manager.gone"],
  on: {
    "demotion.withdrawn": ".done",
    "demotion.recorded": ".done",
  },
  states: {
    leaving: {
      description: "The manager was demoted and is ending by itself. D1",
      meta: {
        waitingFor: "its manager process to exit after its demotion",
        wokenBy: { "manager.gone": "the end of its beats", grace: "{the grace period}" },
      },
      always: { guard: "isGone", target: "recording" },
      on: { "manager.gone": "recording" },
      after: { grace: "recording" },
    },
    recording: {
      description: "Writing its role and its record among the managers. D1",
      meta: {
        waitingFor: "the log, to record that it is a worker",
        wokenBy: { "demotion.recorded": "the ledger's answer", "write.failed": "a failed write" },
      },
      entry: { type: "recordDemotion", params: ({ context }) => ({ nodeId: context.nodeId }) },
      on: {
        "write.failed": {
          target: "retrying",
          actions: { type: "rememberReason", params: ({ event }) => ({ reason: event.reason }) },
        },
      },
    },
    retrying: {
      description: "The log write failed.",
      meta: { waitingFor: "the next attempt to write", wokenBy: { retry: "the end of the delay" } },
      after: { retry: "recording" },
    },
    done: { type: "final", description: "It is a worker, or the demotion was withdrawn." },
  },
});
