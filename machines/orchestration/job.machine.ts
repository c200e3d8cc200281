/**
 * The orchestrator of one job; one actor for each service in mode replicated-job or global-job, scheduled ones and their
 * runs included. The chart decides when it acts and shows the job's phase; `machines/orchestration/jobs/decide.ts` decides what
 * it does.
 *
 *   gathering ──▶ deciding ⇄ writing ──▶ judged ──▶ working | paused | stopped | succeeded | failed | scheduled
 *       ▲                                                └───────── job.touched, nextLook ─────────┘
 *
 * O1: one decision is in flight at a time: the next sees the result of the last in the store.
 * O2: changes during a decision are not lost: they lead to another decision afterwards.
 * O3: there is no state outside the store, so a new leader's orchestrator continues where the last one stopped.
 */
import { assign, setup } from "xstate";
import { effect } from "../effect.ts";
import type { JobPhase } from "./jobs/progress.ts";

type Judgement = {
  readonly phase: JobPhase;
  /** Milliseconds until it must decide again by itself; -1: never. */
  readonly nextMs: number;
};

export type JobEvent =
  /** The service, one of its tasks or a node has changed. */
  | { readonly type: "job.touched" }
  | { readonly type: "job.removed" }
  | { readonly type: "round.due" }
  | ({ readonly type: "decision.empty" } & Judgement)
  | ({ readonly type: "decision.made" } & Judgement)
  /** The decision is in the store, or could not be written and must be made again. */
  | { readonly type: "decision.written" };

export interface JobContext {
  readonly serviceId: string;
  readonly phase: JobPhase;
  readonly nextMs: number;
  /** Something happened while a decision was being written (O2). */
  readonly isTouched: boolean;
}

/** One decision a day costs nothing, and keeps timers below their maximum of 24 days. */
const lookMsMax = 24 * 3_600_000;

export const jobMachine = setup({
  types: { context: {} as JobContext, events: {} as JobEvent, input: {} as { readonly serviceId: string } },
  actions: {
    /** Answered by `round.due` after the current commits are applied. */
    gather: effect("gather"),
    /** Answered by `decision.empty`, or by `decision.made` and later `decision.written`. */
    decide: effect("decide"),
    reportUnexpected: effect("reportUnexpected"),
    remember: assign((_, { phase, nextMs }: Judgement) => ({ phase, nextMs })),
    rememberTouch: assign({ isTouched: true }),
    forgetTouch: assign({ isTouched: false }),
  },
  guards: {
    isTouched: ({ context }) => context.isTouched,
    isPhase: ({ context }, { phase }: { phase: JobPhase }) => context.phase === phase,
  },
  delays: {
    nextLook: ({ context: { nextMs } }) => (nextMs < 0 || nextMs > lookMsMax ? lookMsMax : nextMs),
  },
}).createMachine({
  id: "job",
  context: ({ input }) => ({ serviceId: input.serviceId, phase: "working", nextMs: -1, isTouched: false }),
  initial: "gathering",
  options: { maxIterations: 1_000 },
  on: {
    "job.removed": ".removed",
    "*": { actions: "reportUnexpected" },
  },
  states: {
    gathering: {
      description: "Something changed; gathering more from the same commits.",
      entry: "gather",
      on: { "job.touched": {}, "round.due": "deciding" },
    },
    deciding: {
      description: "Comparing the slots of the current iteration with the spec. O1, J1 to J7",
      entry: ["forgetTouch", "decide"],
      on: {
        "decision.empty": { target: "judged", actions: { type: "remember", params: ({ event }) => event } },
        "decision.made": { target: "writing", actions: { type: "remember", params: ({ event }) => event } },
        "job.touched": { actions: "rememberTouch" },
      },
    },
    writing: {
      description: "Writing the decision to the log. O1, O2",
      on: {
        "job.touched": { actions: "rememberTouch" },
        "decision.written": [{ guard: "isTouched", target: "gathering" }, { target: "judged" }],
      },
    },
    judged: {
      description: "Choosing the state that matches the job's progress.",
      always: [
        { guard: { type: "isPhase", params: { phase: "paused" } }, target: "paused" },
        { guard: { type: "isPhase", params: { phase: "stopped" } }, target: "stopped" },
        { guard: { type: "isPhase", params: { phase: "succeeded" } }, target: "succeeded" },
        { guard: { type: "isPhase", params: { phase: "failed" } }, target: "failed" },
        { guard: { type: "isPhase", params: { phase: "scheduled" } }, target: "scheduled" },
        { target: "working" },
      ],
    },
    working: {
      description: "Tasks are running or waiting; each exit is examined. J3",
      after: { nextLook: "deciding" },
      on: { "job.touched": "gathering" },
    },
    paused: {
      description: "Paused: no new task is started until the job is resumed; running tasks continue. J6",
      after: { nextLook: "deciding" },
      on: { "job.touched": "gathering" },
    },
    stopped: {
      description: "Stopped: running tasks are stopped; completed ones stay completed if the job is resumed. J6",
      after: { nextLook: "deciding" },
      on: { "job.touched": "gathering" },
    },
    succeeded: {
      description: "Every slot is complete. A job with a time to live is removed when it expires. J1",
      after: { nextLook: "deciding" },
      on: { "job.touched": "gathering" },
    },
    failed: {
      description: "At least one slot has used up its attempts, and all others are complete. J2",
      after: { nextLook: "deciding" },
      on: { "job.touched": "gathering" },
    },
    scheduled: {
      description: "Runs no tasks itself: its schedule creates a job for each run.",
      after: { nextLook: "deciding" },
      on: { "job.touched": "gathering" },
    },
    removed: { description: "The service is removed; another orchestrator stops its tasks.", type: "final" },
  },
});
