/**
 * The orchestrator of one job; one actor for each service in mode replicated-job or global-job, scheduled ones and their
 * runs included. The chart decides when it acts, by the reconcile loop (`machines/reconcile.ts`, with O1 and O2), and shows the
 * job's phase; `machines/orchestration/jobs/decide.ts` decides what it does.
 *
 *   gathering ──▶ deciding ──▶ writing ──▶ judged ──▶ working | paused | stopped | succeeded | failed | scheduled
 *       ▲                                                  └──────── work.arrived, nextRound ────────┘
 *
 * O3: there is no state outside the store, so a new leader's orchestrator continues where the last one stopped.
 */
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
import type { JobPhase } from "./jobs/progress.ts";

type JobEvent = { readonly type: "job.removed" };

export interface JobVerdict {
  readonly phase: JobPhase;
  readonly nextMs: number;
}

interface JobContext extends ReconcileContext<JobVerdict> {
  readonly serviceId: string;
}

/** Woken by changes of the service, of one of its tasks, or of a node. */
export const jobMachine = reconciling<JobContext, JobEvent, { readonly serviceId: string }>()
  .extend({ shows: { context: ["serviceId"] } })
  .createMachine({
    id: "job",
    context: ({ input }) => ({
      serviceId: input.serviceId,
      verdict: { phase: "working", nextMs: -1 },
      isTouched: false,
    }),
    initial: "gathering",
    on: {
      "job.removed": ".removed",
    },
    states: {
      gathering: gathering({ description: "Something changed; gathering more from the same commits." }),
      deciding: decidingToWrite({
        description: "Comparing the slots of the current iteration with the spec. O1, J1 to J7",
      }),
      writing: writing({ description: "Writing the decision to the log. O1, O2" }),
      judged: judged([
        rest("paused"),
        rest("stopped"),
        rest("succeeded"),
        rest("failed"),
        rest("scheduled"),
        { target: "working" },
      ]),
      working: resting({
        description: "Tasks are running or waiting; each exit is examined. J3",
        meta: {
          waitingFor: "its tasks",
          wokenBy: {
            "work.arrived": "the end of a task, or a change of the job or of a node",
            nextRound: "the end of a restart delay",
          },
        },
        after: { nextRound: "deciding" },
      }),
      paused: resting({
        description: "Paused: no new task is started until the job is resumed; running tasks continue. J6",
        meta: {
          waitingFor: "an operator to resume it",
          wokenBy: { "work.arrived": "its label muster.job.state", nextRound: "the daily check" },
        },
        after: { nextRound: "deciding" },
      }),
      stopped: resting({
        description: "Stopped: running tasks are stopped; completed ones stay completed if the job is resumed. J6",
        meta: {
          waitingFor: "an operator to resume it",
          wokenBy: { "work.arrived": "its label muster.job.state", nextRound: "the daily check" },
        },
        after: { nextRound: "deciding" },
      }),
      succeeded: resting({
        description: "Every slot is complete. A job with a time to live is removed when it expires. J1",
        meta: {
          waitingFor: "nothing: the job has succeeded",
          wokenBy: {
            "work.arrived": "an update of the service, which starts all the work again",
            nextRound: "the end of its time to live, if it has one, which removes it",
          },
        },
        after: { nextRound: "deciding" },
      }),
      failed: resting({
        description: "At least one slot has used up its attempts, and all others are complete. J2",
        meta: {
          waitingFor: "nothing: the job has failed",
          wokenBy: {
            "work.arrived": "an update of the service, which starts all the work again",
            nextRound: "the end of its time to live, if it has one, which removes it",
          },
        },
        after: { nextRound: "deciding" },
      }),
      scheduled: resting({
        description: "Runs no tasks itself: its schedule creates a job for each run.",
        meta: {
          waitingFor: "nothing: its runs have their own jobs",
          wokenBy: {
            "work.arrived": "a change of the job, of one of its tasks, or of a node",
            nextRound: "the daily check",
          },
        },
        after: { nextRound: "deciding" },
      }),
      removed: { description: "The service is removed; another orchestrator stops its tasks.", type: "final" },
    },
  });
