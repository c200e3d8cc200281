/**
 * The schedule of one job; one actor for each service with a cron expression. The chart decides when it acts,
 * by the reconcile loop (`machines/reconcile.ts`, with O1 and O2), and `machines/orchestration/jobs/due.ts` what it does.
 *
 *   gathering ──▶ deciding ──▶ writing ──▶ judged ──▶ waiting | paused | invalid        ending ──▶ ended, after its removal
 *       ▲             ▲          └─ write.failed ─▶ held      └─ work.arrived, nextDue ─┘
 *
 * O3: there is no state outside the store, except the log's refusal of a run (C5): a new leader's schedule continues where the
 *     last one stopped, and of two leaders that start the same run only one succeeds (C1).
 */
import { effect } from "../chart.ts";
import {
  decidingToWrite,
  gathering,
  judged,
  reconciling,
  rest,
  resting,
  writing,
  type ReconcileContext,
} from "../reconcile.ts";

type SchedulePhase = "waiting" | "paused" | "invalid";

type ScheduleEvent =
  /** The service is removed, or no longer has a schedule. */
  | { readonly type: "schedule.removed" }
  /** The write was refused because of a concurrent write, or no leader accepted it: decide again. */
  | { readonly type: "write.failed" }
  | { readonly type: "rest.gone" };

export interface ScheduleVerdict {
  readonly phase: SchedulePhase;
  /** -1: no run is due. */
  readonly nextMs: number;
}

interface ScheduleContext extends ReconcileContext<ScheduleVerdict> {
  readonly serviceId: string;
}

/** Longest timer in milliseconds: clocks are adjusted and machines sleep, so later due times are checked again before. */
const dueMsMax = 3_600_000;
/** Delay before a refused decision is made again, in milliseconds: the replica must first see the conflicting write. */
const retryMs = 200;

/** Woken by changes of the service, of one of its runs, or of their tasks. */
export const scheduleMachine = reconciling<ScheduleContext, ScheduleEvent, { readonly serviceId: string }>()
  .extend({
    shows: { context: ["serviceId"] },
    effects: {
      /** Removes the remains of a removed schedule; answered by `decision.made` and what follows it, or by `rest.gone`. */
      removeRest: effect(),
    },
    delays: {
      nextDue: ({ context: { verdict } }) => (verdict.nextMs < 0 ? dueMsMax : Math.min(verdict.nextMs, dueMsMax)),
      retry: retryMs,
    },
  })
  .createMachine({
    id: "schedule",
    context: ({ input }) => ({
      serviceId: input.serviceId,
      verdict: { phase: "waiting", nextMs: -1 },
      isTouched: false,
    }),
    initial: "gathering",
    on: {
      "schedule.removed": ".ending",
    },
    states: {
      gathering: gathering({ description: "Something changed; gathering more from the same commits." }),
      deciding: decidingToWrite({
        description: "Checking which runs are due, and the outcomes of earlier ones. O1, C1 to C6",
      }),
      writing: writing(
        { description: "Writing the run and its record to the log, in one transaction. C1, O2" },
        { "write.failed": "held" },
      ),
      held: {
        description:
          "The log refused the decision, or the outcome is unknown: deciding again shortly from the stored state. C1",
        meta: { waitingFor: "the end of the retry delay", wokenBy: { retry: "its end" } },
        after: { retry: "deciding" },
        ignore: ["work.arrived"],
      },
      judged: judged([rest("paused"), rest("invalid"), { target: "waiting" }]),
      waiting: resting({
        description: "The schedule is in force.",
        meta: {
          waitingFor: "its next run",
          wokenBy: { nextDue: "the clock", "work.arrived": "an update of the service, or the end of a run" },
        },
        after: { nextDue: "deciding" },
      }),
      paused: resting({
        description: "Paused; a stopped schedule also stops its runs. C3, C6",
        meta: {
          waitingFor: "an operator to resume its schedule",
          wokenBy: { "work.arrived": "its label muster.job.state" },
        },
      }),
      invalid: resting({
        description: "The stored cron expression is invalid.",
        meta: { waitingFor: "a valid schedule", wokenBy: { "work.arrived": "an update of the service" } },
      }),
      ending: {
        description: "The schedule is removed: removing its record and, if its service is removed, its runs.",
        meta: {
          waitingFor: "the log, to accept the removal",
          wokenBy: {
            "decision.written": "the ledger's answer",
            "write.failed": "the ledger's refusal",
            "rest.gone": "the end of the last one",
          },
        },
        entry: "removeRest",
        ignore: ["schedule.removed", "work.arrived", "round.due", "round.done", "decision.made"],
        on: {
          // Also for a decision that was in flight when the schedule was removed.
          "decision.written": { target: "ending", reenter: true },
          "write.failed": { target: "ending", reenter: true },
          "rest.gone": "ended",
        },
      },
      ended: { description: "Nothing is left of the schedule.", type: "final" },
    },
  });
