/**
 * When the scheduler decides, and how many decisions may be in flight.
 *
 *   rounds:    idle ⇄ gathering ──▶ deciding | full                           one round after each batch of commits
 *   proposals: none ⇄ proposing                                               decisions in flight to the log
 *   later:     none ⇄ holding                                                 work that is held back for the retry delay
 *
 * S1: at most one round is requested at a time, however many commits need one.
 * S2: no round starts while proposalsMax proposals are in flight; the next starts when one settles.
 * S3: refused decisions are not retried before the retry delay, so a ledger that keeps refusing is not asked in a loop.
 */
import { assign } from "xstate";
import { effect } from "../chart.ts";
import { deciding, gathering, judged, reconciling, resting, type ReconcileContext } from "../reconcile.ts";

export const schedulerLimits = {
  /** Proposals in flight. At 2,000 operations each, some 20,000 decisions: enough to keep the log busy. */
  proposalsMax: 10,
  /** Milliseconds; a few round trips to the log, too short to notice. */
  retryMs: 200,
} as const;

type SchedulerEvent =
  | { readonly type: "proposal.sent" }
  /** `returned`: number of its tasks that still wait; they are held back for the retry delay. */
  | { readonly type: "proposal.settled"; readonly returned: number };

/** `isPartial`: a limit stopped the round. `hasStale`: explanations wait to be replaced. */
export interface SchedulerVerdict {
  readonly isPartial: boolean;
  readonly hasStale: boolean;
}

interface SchedulerInput {
  readonly proposalsMax: number;
  readonly retryMs: number;
}

interface SchedulerContext extends ReconcileContext<SchedulerVerdict>, SchedulerInput {
  /** Proposals in flight. */
  readonly proposals: number;
}

/** Woken by tasks that wait for a node, and by changes that may help a waiting one. */
export const schedulerMachine = reconciling<SchedulerContext, SchedulerEvent, SchedulerInput>()
  .extend({
    shows: { context: ["proposalsMax", "retryMs", "proposals"], events: ["returned"] },
    effects: {
      /** Returns held tasks to the rounds, and allows explanations to be replaced again. */
      releaseHeld: effect(),
    },
    actions: {
      countSent: assign(({ context }) => ({ proposals: context.proposals + 1 })),
      countSettled: assign(({ context }) => ({ proposals: context.proposals - 1 })),
    },
    guards: {
      hasReturned: (_, { returned }: { readonly returned: number }) => returned > 0,
      hasStale: (_, { hasStale }: { readonly hasStale: boolean }) => hasStale,
      hasCapacity: ({ context }) => context.proposals < context.proposalsMax,
      isLast: ({ context }) => context.proposals <= 1,
    },
    delays: { retry: ({ context }) => context.retryMs },
  })
  .createMachine({
    id: "scheduler",
    description: "Assigns waiting tasks to nodes, one round at a time.",
    context: ({ input }) => ({
      ...input,
      proposals: 0,
      verdict: { isPartial: false, hasStale: false },
      isTouched: false,
    }),
    type: "parallel",
    states: {
      rounds: {
        initial: "idle",
        states: {
          idle: resting({
            description: "Nothing is to be decided.",
            meta: {
              waitingFor: "a task to place, or a change that may help a waiting one",
              wokenBy: { "work.arrived": "that task or change" },
            },
          }),
          gathering: gathering(
            { description: "Work has arrived. S1" },
            { "round.due": [{ guard: "hasCapacity", target: "deciding" }, { target: "full" }] },
          ),
          deciding: deciding({ description: "Choosing nodes from the current replica, and proposing them." }),
          judged: judged([{ target: "idle" }]),
          full: {
            description: "The limit of proposals in flight is reached. S2",
            meta: { waitingFor: "an answer of the log", wokenBy: { "proposal.settled": "the ledger's answer" } },
            ignore: ["work.arrived"],
            on: { "proposal.settled": "gathering" },
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
              wokenBy: { "proposal.settled": "the ledger's refusal", "round.done": "an explanation that waits" },
            },
            on: {
              "proposal.settled": { guard: { type: "hasReturned", params: ({ event }) => event }, target: "holding" },
              "round.done": {
                guard: { type: "hasStale", params: ({ event }) => event.verdict },
                target: "holding",
              },
            },
          },
          holding: {
            description: "Refused tasks and explanations are held back. S3",
            meta: {
              waitingFor: "the scheduler, to retry what the ledger did not accept",
              wokenBy: { retry: "the retry delay" },
            },
            ignore: ["proposal.settled", "round.done"],
            after: { retry: { target: "none", actions: "releaseHeld" } },
          },
        },
      },
    },
  });
