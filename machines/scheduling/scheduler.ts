/**
 * When the scheduler decides, and how much of it may be under way.
 *
 *   rounds:    idle ⇄ scheduled ──▶ deciding ──▶ idle | scheduled | full      a round for each end of a batch of commits
 *   proposals: none ⇄ proposing                                               decisions on their way to the log
 *   later:     none ⇄ holding                                                 what may, or must, wait a little
 *
 * S1: at most one round is asked for at a time, however many commits want one.
 * S2: no round begins while proposalsMax proposals are under way; the end of one makes room for the next.
 * S3: what came back undone is not decided again before the retry delay: a ledger that keeps saying no is not asked in a loop.
 */
import { assign, setup } from "xstate";
import { effect } from "../effect.ts";

export const schedulerLimits = {
  /** Under way at once. With 2,000 operations each, some 20,000 decisions: enough to keep the log busy while more are made. */
  proposalsMax: 10,
  /** Milliseconds; a few round trips to the log, and shorter than anybody notices. */
  retryMs: 200,
} as const;

export type SchedulerEvent =
  /** A task waits for a node, or something changed that may help one that does. */
  | { readonly type: "work.arrived" }
  /** The end of the batch that was asked for. */
  | { readonly type: "tick" }
  /** `hasMore`: a limit stopped the round. `hasStale`: explanations wait to be replaced. */
  | { readonly type: "round.decided"; readonly hasMore: boolean; readonly hasStale: boolean }
  | { readonly type: "proposal.sent" }
  /** `returned`: tasks of it that still wait, and are held back until the retry delay is over. */
  | { readonly type: "proposal.settled"; readonly returned: number };

export interface SchedulerContext {
  readonly proposalsMax: number;
  readonly retryMs: number;
  /** Proposals under way. */
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
    /** Gives held tasks back to the rounds, and lets explanations be replaced. */
    releaseHeld: effect("releaseHeld"),
    reportUnexpected: effect("reportUnexpected"),
    countSent: assign(({ context }) => ({ proposals: context.proposals + 1 })),
    countSettled: assign(({ context }) => ({ proposals: context.proposals - 1 })),
  },
  guards: {
    hasReturned: (_, { returned }: { readonly returned: number }) => returned > 0,
    hasStale: (_, { hasStale }: { readonly hasStale: boolean }) => hasStale,
    hasMore: (_, { hasMore }: { readonly hasMore: boolean }) => hasMore,
    hasRoom: ({ context }) => context.proposals < context.proposalsMax,
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
          description: "No waiting task can be helped by anything new.",
          on: { "work.arrived": "scheduled" },
        },
        scheduled: {
          description: "Waiting for the end of the commits that are being applied. S1",
          entry: "requestTick",
          on: {
            "work.arrived": {},
            "round.decided": {},
            tick: [{ guard: "hasRoom", target: "deciding" }, { target: "full" }],
          },
        },
        deciding: {
          description: "Choosing nodes from the current replica, and proposing them.",
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
          description: "The limit of proposals in flight is reached; waiting for one to settle. S2",
          on: { "work.arrived": {}, "proposal.settled": "scheduled" },
        },
      },
    },
    proposals: {
      initial: "none",
      states: {
        none: {
          description: "No decision is in flight.",
          on: { "proposal.sent": { target: "proposing", actions: "countSent" } },
        },
        proposing: {
          description: "Decisions are in flight; their tasks are not decided again until the log answers.",
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
          on: {
            "proposal.settled": { guard: { type: "hasReturned", params: ({ event }) => event }, target: "holding" },
            "round.decided": { guard: { type: "hasStale", params: ({ event }) => event }, target: "holding" },
          },
        },
        holding: {
          description:
            "Tasks that the ledger refused, and explanations to replace, are waiting for the retry delay. S3",
          on: { "proposal.settled": {}, "round.decided": {} },
          after: { retry: { target: "none", actions: "releaseHeld" } },
        },
      },
    },
  },
});
