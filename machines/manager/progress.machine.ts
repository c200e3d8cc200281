/**
 * Whether this manager makes progress: it is healthy if, within the last seconds, a probe returned after passing through the
 * ledger, the log and this replica.
 *
 * P1: health is evidence, never the absence of complaints: if no probe has returned for `staleMs`, the manager is stuck,
 *     whatever its heartbeats say.
 */
import { assign } from "xstate";
import { chart, effect } from "../chart.ts";

type ProgressEvent =
  | { readonly type: "probe.answered"; readonly at: number }
  | { readonly type: "probe.failed"; readonly at: number; readonly reason: string };

interface ProgressContext {
  readonly intervalMs: number;
  readonly staleMs: number;
  /** When the last probe returned (ms since the epoch); -1: never. */
  readonly answeredAt: number;
  /** Why the last failed probe failed; empty after a success. */
  readonly reason: string;
}

export const progressMachine = chart({
  types: {
    context: {} as ProgressContext,
    events: {} as ProgressEvent,
    input: {} as { readonly intervalMs: number; readonly staleMs: number },
  },
  effects: {
    probe: effect(),
    reportStuck: effect<{ readonly reason: string }>(),
    reportProgress: effect(),
  },
  actions: {
    rememberAnswer: assign((_, params: { readonly at: number }) => ({ answeredAt: params.at, reason: "" })),
    rememberFailure: assign((_, params: { readonly reason: string }) => ({ reason: params.reason })),
  },
  delays: {
    probeInterval: ({ context }) => context.intervalMs,
    staleAfter: ({ context }) => context.staleMs,
  },
  shows: { context: ["intervalMs", "staleMs", "answeredAt"], events: ["at"] },
}).createMachine({
  id: "progress",
  description: "Probing the path from the ledger through the log to this manager's replica.",
  context: ({ input }) => ({ ...input, answeredAt: -1, reason: "no probe has come back yet" }),
  type: "parallel",
  states: {
    probe: {
      initial: "asking",
      states: {
        asking: {
          description: "A probe is under way; it always returns, if only as failed.",
          meta: { waitingFor: "the outcome of a probe", wokenBy: { "probe.*": "the outcome" } },
          entry: "probe",
          on: { "probe.answered": "resting", "probe.failed": "resting" },
        },
        resting: {
          description: "The last probe has returned.",
          meta: { waitingFor: "the next probe", wokenBy: { probeInterval: "the end of the interval" } },
          after: { probeInterval: "asking" },
        },
      },
    },
    health: {
      initial: "stuck",
      on: {
        "probe.failed": { actions: { type: "rememberFailure", params: ({ event }) => ({ reason: event.reason }) } },
      },
      states: {
        healthy: {
          description: "A probe returned within staleMs.",
          meta: {
            waitingFor: "nothing: probes return",
            wokenBy: { "probe.answered": "the next answer", staleAfter: "the time limit for it" },
          },
          tags: "healthy",
          on: {
            "probe.answered": {
              target: "healthy",
              reenter: true,
              actions: { type: "rememberAnswer", params: ({ event }) => ({ at: event.at }) },
            },
          },
          after: {
            staleAfter: {
              target: "stuck",
              actions: { type: "reportStuck", params: ({ context }) => ({ reason: context.reason }) },
            },
          },
        },
        stuck: {
          description: "No probe has returned for staleMs.",
          meta: { waitingFor: "a probe to return", wokenBy: { "probe.answered": "an answer" } },
          on: {
            "probe.answered": {
              target: "healthy",
              actions: [{ type: "rememberAnswer", params: ({ event }) => ({ at: event.at }) }, "reportProgress"],
            },
          },
        },
      },
    },
  },
});
