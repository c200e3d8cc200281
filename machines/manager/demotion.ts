/**
 * One manager on its way to being a worker, as the leader sees it.
 *
 *   leaving ──▶ recording ⇄ retrying
 *      └────────────┴──▶ done
 *
 * The manager itself has seen that it is not wanted as one: it hands the lead over, sends its nodes elsewhere and ends. Only
 * then is it a worker for the cluster, so that nobody takes it for one while it still acts as a manager.
 *
 * D1: a manager that does not end, or is cut off, is a worker after the grace all the same; from then on no manager serves it
 *     as one of them.
 * D2: a leader never makes a worker of itself, and nobody but a leader makes one of a manager: it would write the log as a
 *     worker. One that is demoted while it leads and does not end gives up the lead, and the next leader records it.
 */
import { assign, setup } from "xstate";
import { effect } from "../effect.ts";

export const demotionTimes = {
  /** What a manager has for ending, in milliseconds: its goodbye to nodes takes 2 s, giving up the lead 6 s at most. D1 */
  graceMs: 10_000,
  /** Between two attempts to write it down, in milliseconds: SwarmKit's. */
  retryMs: 5_000,
} as const;

export type DemotionEvent =
  /** Its beats have stopped, or its record is gone. */
  | { readonly type: "manager.gone" }
  /** It is a worker in the log. */
  | { readonly type: "demotion.recorded" }
  | { readonly type: "write.failed"; readonly reason: string }
  /** It is wanted as a manager again, or the node was removed. */
  | { readonly type: "demotion.withdrawn" };

export const demotionMachine = setup({
  types: {
    context: {} as { readonly nodeId: string; readonly isGone: boolean; readonly reason: string },
    events: {} as DemotionEvent,
    input: {} as { readonly nodeId: string; readonly isGone: boolean },
  },
  actions: {
    /** Answered by `demotion.recorded` or `write.failed`; a leader's own ends its term instead. D2 */
    recordDemotion: effect<{ nodeId: string }>("recordDemotion"),
    reportUnexpected: effect("reportUnexpected"),
    rememberReason: assign((_, { reason }: { reason: string }) => ({ reason })),
  },
  guards: { isGone: ({ context }) => context.isGone },
  delays: { grace: demotionTimes.graceMs, retry: demotionTimes.retryMs },
}).createMachine({
  id: "demotion",
  context: ({ input }) => ({ ...input, reason: "" }),
  initial: "leaving",
  options: { maxIterations: 1_000 },
  on: {
    "demotion.withdrawn": ".done",
    "demotion.recorded": ".done",
    "manager.gone": {},
    "*": { actions: "reportUnexpected" },
  },
  states: {
    leaving: {
      description: "The manager was demoted and is ending by itself. D1",
      always: { guard: "isGone", target: "recording" },
      on: { "manager.gone": "recording" },
      after: { grace: "recording" },
    },
    recording: {
      description: "Writing its role and its record among the managers. D1",
      entry: { type: "recordDemotion", params: ({ context }) => ({ nodeId: context.nodeId }) },
      on: {
        "write.failed": {
          target: "retrying",
          actions: { type: "rememberReason", params: ({ event }) => ({ reason: event.reason }) },
        },
      },
    },
    retrying: { description: "The log write failed; retrying after a delay.", after: { retry: "recording" } },
    done: { type: "final", description: "It is a worker, or the demotion was withdrawn." },
  },
});
