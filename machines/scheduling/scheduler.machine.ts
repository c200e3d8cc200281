/**
 * When the scheduler decides, and how many decisions may be in flight.
 *
 *   rounds:    idle ⇄ scheduled ──▶ deciding ──▶ idle | scheduled | full      one round after each batch of commits
 *   proposals: none ⇄ proposing                                               decisions in flight to the log
 *   later:     none ⇄ holding                                                 work that is held back for the retry delay
 *
 * S1: at most one round is requested at a time, however many commits need one.
 * S2: no round starts while proposalsMax proposals are in flight; the next starts when one settles.
 * S3: refused decisions are not retried before the retry delay, so a ledger that keeps refusing is not asked in a loop.
 */
import { assign, setup } from "xstate";
import { effect } from "../effect.ts";

export const schedulerLimits = {
  /** Proposals in flight. At 2,000 operations each, some 20,000 decisions: enough to keep the log busy. */
  proposalsMax: 10,
  /** Milliseconds; a few round trips to the log, too short to notice. */
  retryMs: 200,
} as const;

export type SchedulerEvent =
  /** A task waits for a node, or a change may help a waiting one. */
  | { readonly type: "work.arrived" }
  /** The requested end of the batch. */
  | { readonly type: "tick" }
  /** `hasMore`: a limit stopped the round. `hasStale`: explanations wait to be replaced. */
  | { readonly type: "round.decided"; readonly hasMore: boolean; readonly hasStale: boolean }
  | { readonly type: "proposal.sent" }
  /** `returned`: number of its tasks that still wait; they are held back for the retry delay. */
  | { readonly type: "proposal.settled"; readonly returned: number };

export interface SchedulerContext {
  readonly proposalsMax: number;
  readonly retryMs: number;
  /** Proposals in flight. */
  readonly proposals: number;
}

export const schedulerMachine = setup({
  types: {
    context: {} as SchedulerContext,
    events: {} as SchedulerEvent,
    input: {} as { readonly proposalsMax: number; readonly retryMs: number },
  },
  actions: {
    /** Answered by `tick`. */
    requestTick: effect("requestTick"),
    /** Answered by `round.decided`, after a `proposal.sent` for each proposal. */
    decide: effect("decide"),
    /** Returns held tasks to the rounds, and allows explanations to be replaced again. */
    releaseHeld: effect("releaseHeld"),
    reportUnexpected: effect("reportUnexpected"),
    countSent: assign(({ context }) => ({ proposals: context.proposals + 1 })),
    countSettled: assign(({ context }) => ({ proposals: context.proposals - 1 })),
  },
  guards: {
    hasReturned: (_, { returned }: { readonly returned: number }) => returned > 0,
    hasStale: (_, { hasStale }: { readonly hasStale: boolean }) => hasStale,
    hasMore: (_, { hasMore }: { readonly hasMore: boolean }) => hasMore,
    hasCapacity: ({ context }) => context.proposals < context.proposalsMax,
    isLast: ({ context }) => context.proposals <= 1,
  },
  delays: { retry: ({ context }) => context.retryMs },
}).createMachine({
  id: "scheduler",
  description: "Assigns waiting tasks to nodes, one round at a time.",
  context: ({ input }) => ({ ...input, proposals: 0 }),
  options: { maxIterations: 1_000 },
  type: "parallel",
  on: { "*": { actions: "reportUnexpected" } },
  states: {
    rounds: {
      initial: "idle",
      states: {
        idle: {
          description: "Nothing is to be decided.",
          meta: {
            waitingFor: "a task to place, or a change that may help a waiting one",
            wokenBy: { "work.arrived": "that task or change" },
          },
          on: { "work.arrived": "scheduled" },
        },
        scheduled: {
          description: "Work has arrived. S1",
          meta: { waitingFor: "the rest of the current batch of commits", wokenBy: { tick: "its end" } },
          entry: "requestTick",
          on: {
            "work.arrived": {},
            "round.decided": {},
            tick: [{ guard: "hasCapacity", target: "deciding" }, { target: "full" }],
          },
        },
        deciding: {
          description: "Choosing nodes from the current replica, and proposing them.",
          meta: { waitingFor: "the end of the round", wokenBy: { "round.decided": "the last decision of the round" } },
          entry: "decide",
          on: {
            "work.arrived": "scheduled",
            "round.decided": [
              { guard: { type: "hasMore", params: ({ event }) => event }, target: "scheduled" },
              { target: "idle" },
            ],
          },
        },
        full: {
          description: "The limit of proposals in flight is reached. S2",
          meta: { waitingFor: "an answer of the log", wokenBy: { "proposal.settled": "the ledger's answer" } },
          on: { "work.arrived": {}, "proposal.settled": "scheduled" },
        },
      },
    },
    proposals: {
      initial: "none",
      states: {
        none: {
          description: "No decision is in flight.",
          meta: { waitingFor: "a decision", wokenBy: { "proposal.sent": "a decision" } },
          on: { "proposal.sent": { target: "proposing", actions: "countSent" } },
        },
        proposing: {
          description: "Decisions are in flight; their tasks are not decided again until the log answers.",
          meta: {
            waitingFor: "the log, to accept its assignment to {a node}",
            wokenBy: { "proposal.settled": "the ledger's answer" },
          },
          on: {
            "proposal.sent": { actions: "countSent" },
            "proposal.settled": [
              { guard: "isLast", target: "none", actions: "countSettled" },
              { actions: "countSettled" },
            ],
          },
        },
      },
    },
    later: {
      initial: "none",
      states: {
        none: {
          description: "Nothing is held back.",
          meta: {
            waitingFor: "a refused decision",
            wokenBy: { "proposal.settled": "the ledger's refusal", "round.decided": "an explanation that waits" },
          },
          on: {
            "proposal.settled": { guard: { type: "hasReturned", params: ({ event }) => event }, target: "holding" },
            "round.decided": { guard: { type: "hasStale", params: ({ event }) => event }, target: "holding" },
          },
        },
        holding: {
          description: "Refused tasks and explanations are held back. S3",
          meta: {
            waitingFor: "the scheduler, to retry what the ledger did not accept",
            wokenBy: { retry: "the retry delay" },
          },
          on: { "proposal.settled": {}, "round.decided": {} },
          after: { retry: { target: "none", actions: "releaseHeld" } },
        },
      },
    },
  },
});
