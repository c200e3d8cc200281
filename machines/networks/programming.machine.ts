/**
 * Keeps the kernel's network configuration equal to what the agent was sent: one update at a time, and one more for
 * everything that changed meanwhile. One instance for virtual IPs of services, one for the tunnel to other nodes.
 *
 *   current ──changed──▶ programming ──▶ current
 *                          ▲ │  ▲
 *                          │ │  └── (changed meanwhile)
 *                          │ └▶ waiting
 *                          └──────┘
 *
 * VB1: the last state programmed is the last one known; no two updates run at once.
 * VB2: a failed update is retried forever, each time complete; the kernel's previous state stays in force.
 */
import { assign } from "xstate";
import { backoffMs, type Backoff } from "../../lib/backoff.ts";
import { chart, effect } from "../chart.ts";

const programmingBackoff: Backoff = { stepMs: 500, msMax: 30_000 };

export type ProgrammingEvent =
  /** The wanted state may have changed. */
  | { readonly type: "facts.changed" }
  | { readonly type: "kernel.programmed" }
  | { readonly type: "kernel.refused"; readonly reason: string };

interface ProgrammingContext {
  readonly hasChanged: boolean;
  readonly failures: number;
  /** Reason of the last failure; empty if the known state is programmed or being programmed. */
  readonly reason: string;
}

type Refused = Extract<ProgrammingEvent, { type: "kernel.refused" }>;

export const programmingMachine = chart({
  types: { context: {} as ProgrammingContext, events: {} as ProgrammingEvent },
  effects: {
    /** Answered by `kernel.programmed` or `kernel.refused`. */
    program: effect(),
  },
  actions: {
    rememberChange: assign({ hasChanged: true }),
    forgetChange: assign({ hasChanged: false }),
    countFailure: assign(({ context }, { reason }: { readonly reason: string }) => ({
      failures: context.failures + 1,
      reason,
    })),
    forgetFailures: assign({ failures: 0, reason: "" }),
  },
  guards: { hasChanged: ({ context }) => context.hasChanged },
  drawnDelays: { backoff: ({ context }) => backoffMs(programmingBackoff, context.failures) },
  shows: { context: ["hasChanged", "failures"] },
}).createMachine({
  id: "programming",
  context: { hasChanged: false, failures: 0, reason: "" },
  initial: "current",
  states: {
    current: {
      description: "The kernel has everything that is known.",
      meta: { waitingFor: "a change of what the kernel must have", wokenBy: { "facts.changed": "that change" } },
      on: { "facts.changed": "programming" },
    },
    programming: {
      description: "Programming the kernel with what was known when this began. VB1",
      meta: { waitingFor: "the kernel, to accept the update", wokenBy: { "kernel.*": "the kernel's answer" } },
      entry: ["forgetChange", "program"],
      on: {
        "facts.changed": { actions: "rememberChange" },
        "kernel.programmed": [
          { guard: "hasChanged", target: "programming", reenter: true, actions: "forgetFailures" },
          { target: "current", actions: "forgetFailures" },
        ],
        "kernel.refused": {
          target: "waiting",
          actions: { type: "countFailure", params: ({ event }: { event: Refused }) => ({ reason: event.reason }) },
        },
      },
    },
    waiting: {
      description: "The kernel refused the update; the earlier state stays in force. VB2",
      meta: {
        waitingFor: "the next attempt to program the kernel",
        wokenBy: { backoff: "the end of the delay" },
      },
      ignore: ["facts.changed"],
      after: { backoff: "programming" },
    },
  },
});
