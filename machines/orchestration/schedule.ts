/**
 * The schedule of one job; one actor for each service with a cron expression. The chart says when it decides;
 * `machines/orchestration/jobs/due.ts` says what is to be done.
 *
 *   gathering ──▶ deciding ⇄ writing ──▶ judged ──▶ waiting | paused | invalid        ending ──▶ ended, once it is gone
 *       ▲              └─ write.failed ─▶ held          └─ schedule.touched, nextDue ─┘
 *
 * O1: one decision is under way at a time: the next is made from a store that shows what came of the last.
 * O2: what happens meanwhile is not forgotten: it leads to another look afterwards.
 * O3: nothing is remembered that the store does not say, but what the log said against a run (C5): a new leader's schedule goes on where the last one stopped, and
 *     of two leaders that start the same run only one can (C1).
 */
import { assign, setup } from "xstate";
import { effect } from "../effect.ts";

export type SchedulePhase = "waiting" | "paused" | "invalid";

type Judgement = {
  readonly phase: SchedulePhase;
  /** Milliseconds until the next run is due; -1: none is. */
  readonly nextMs: number;
};

export type ScheduleEvent =
  /** The service, one of its runs or their tasks have changed. */
  | { readonly type: "schedule.touched" }
  /** The service is gone, or has no schedule any more. */
  | { readonly type: "schedule.removed" }
  | { readonly type: "round.due" }
  | ({ readonly type: "decision.empty" } & Judgement)
  | ({ readonly type: "decision.made" } & Judgement)
  | { readonly type: "decision.written" }
  /** It was refused, because somebody else wrote in between, or nobody took it: it is decided anew. */
  | { readonly type: "write.failed" }
  | { readonly type: "rest.gone" };

export interface ScheduleContext {
  readonly serviceId: string;
  readonly phase: SchedulePhase;
  readonly nextMs: number;
  /** Something happened while a decision was being written (O2). */
  readonly isTouched: boolean;
}

/** Clocks are set, and machines sleep: a due time farther off is looked at again before. */
const dueMsMax = 3_600_000;
/** Before a decision that was not taken is made anew: the replica must see first what stood in its way. */
const retryMs = 200;

export const scheduleMachine = setup({
  types: {
    context: {} as ScheduleContext,
    events: {} as ScheduleEvent,
    input: {} as { readonly serviceId: string },
  },
  actions: {
    /** Answered by `round.due` once the commits under way have been seen. */
    gather: effect("gather"),
    /** Answered by `decision.empty`, or by `decision.made` and later `decision.written` or `write.failed`. */
    decide: effect("decide"),
    /** Has what is left of a schedule that is gone removed; answered by `decision.made` and its sequel, or by `rest.gone`. */
    removeRest: effect("removeRest"),
    reportUnexpected: effect("reportUnexpected"),
    remember: assign((_, { phase, nextMs }: Judgement) => ({ phase, nextMs })),
    rememberTouch: assign({ isTouched: true }),
    forgetTouch: assign({ isTouched: false }),
  },
  guards: {
    isTouched: ({ context }) => context.isTouched,
    isPhase: ({ context }, { phase }: { phase: SchedulePhase }) => context.phase === phase,
  },
  delays: {
    nextDue: ({ context: { nextMs } }) => (nextMs < 0 || nextMs > dueMsMax ? dueMsMax : nextMs),
    retry: retryMs,
  },
}).createMachine({
  id: "schedule",
  context: ({ input }) => ({ serviceId: input.serviceId, phase: "waiting", nextMs: -1, isTouched: false }),
  initial: "gathering",
  options: { maxIterations: 1_000 },
  on: {
    "schedule.removed": ".ending",
    "*": { actions: "reportUnexpected" },
  },
  states: {
    gathering: {
      description: "Something changed; gathering more from the same commits.",
      entry: "gather",
      on: { "schedule.touched": {}, "round.due": "deciding" },
    },
    deciding: {
      description: "Checking which runs are due and what became of earlier ones. O1, C1 to C6",
      entry: ["forgetTouch", "decide"],
      on: {
        "decision.empty": { target: "judged", actions: { type: "remember", params: ({ event }) => event } },
        "decision.made": { target: "writing", actions: { type: "remember", params: ({ event }) => event } },
        "schedule.touched": { actions: "rememberTouch" },
      },
    },
    writing: {
      description: "Writing the run and its record to the log, in one transaction. C1, O2",
      on: {
        "schedule.touched": { actions: "rememberTouch" },
        "decision.written": [{ guard: "isTouched", target: "gathering" }, { target: "judged" }],
        "write.failed": "held",
      },
    },
    held: {
      description:
        "The log refused the decision, or the outcome is unknown: deciding again shortly from the stored state. C1",
      after: { retry: "deciding" },
      on: { "schedule.touched": {} },
    },
    judged: {
      description: "Choosing the state that matches the schedule.",
      always: [
        { guard: { type: "isPhase", params: { phase: "paused" } }, target: "paused" },
        { guard: { type: "isPhase", params: { phase: "invalid" } }, target: "invalid" },
        { target: "waiting" },
      ],
    },
    waiting: {
      description: "Waiting for the time of the next run.",
      after: { nextDue: "deciding" },
      on: { "schedule.touched": "gathering" },
    },
    paused: {
      description: "Suspended until somebody resumes it; a stopped schedule also stops its runs. C3, C6",
      on: { "schedule.touched": "gathering" },
    },
    invalid: {
      description: "The cron expression cannot be parsed, although Control refuses such: waiting for a valid one.",
      on: { "schedule.touched": "gathering" },
    },
    ending: {
      description: "The schedule is gone: removing its record and, with its service, its runs.",
      entry: "removeRest",
      on: {
        "schedule.removed": {},
        "schedule.touched": {},
        "round.due": {},
        "decision.empty": {},
        "decision.made": {},
        // Also of a decision that was under way when the schedule went.
        "decision.written": { target: "ending", reenter: true },
        "write.failed": { target: "ending", reenter: true },
        "rest.gone": "ended",
      },
    },
    ended: { description: "Nothing is left of the schedule.", type: "final" },
  },
});
