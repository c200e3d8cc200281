/**
 * The schedule of one job; one actor for each service with a cron expression. The chart decides when it acts,
 * `machines/orchestration/jobs/due.ts` what it does.
 *
 *   gathering ──▶ deciding ⇄ writing ──▶ judged ──▶ waiting | paused | invalid        ending ──▶ ended, after its removal
 *       ▲              └─ write.failed ─▶ held          └─ schedule.touched, nextDue ─┘
 *
 * O1: one decision is in flight at a time: the next sees the result of the last in the store.
 * O2: changes during a decision are not lost: they lead to another decision afterwards.
 * O3: there is no state outside the store, except the log's refusal of a run (C5): a new leader's schedule continues where the
 *     last one stopped, and of two leaders that start the same run only one succeeds (C1).
 */
import { assign, setup } from "xstate";
import { effect } from "../effect.ts";

export type SchedulePhase = "waiting" | "paused" | "invalid";

type Judgement = {
  readonly phase: SchedulePhase;
  /** Milliseconds until the next run is due; -1: none. */
  readonly nextMs: number;
};

export type ScheduleEvent =
  /** The service, one of its runs or their tasks have changed. */
  | { readonly type: "schedule.touched" }
  /** The service is removed, or no longer has a schedule. */
  | { readonly type: "schedule.removed" }
  | { readonly type: "round.due" }
  | ({ readonly type: "decision.empty" } & Judgement)
  | ({ readonly type: "decision.made" } & Judgement)
  | { readonly type: "decision.written" }
  /** The write was refused because of a concurrent write, or no leader accepted it: decide again. */
  | { readonly type: "write.failed" }
  | { readonly type: "rest.gone" };

export interface ScheduleContext {
  readonly serviceId: string;
  readonly phase: SchedulePhase;
  readonly nextMs: number;
  /** Something happened while a decision was being written (O2). */
  readonly isTouched: boolean;
}

/** Longest timer in milliseconds: clocks are adjusted and machines sleep, so later due times are checked again before. */
const dueMsMax = 3_600_000;
/** Delay before a refused decision is made again, in milliseconds: the replica must first see the conflicting write. */
const retryMs = 200;

export const scheduleMachine = setup({
  types: {
    context: {} as ScheduleContext,
    events: {} as ScheduleEvent,
    input: {} as { readonly serviceId: string },
  },
  actions: {
    /** Answered by `round.due` after the current commits are applied. */
    gather: effect("gather"),
    /** Answered by `decision.empty`, or by `decision.made` and later `decision.written` or `write.failed`. */
    decide: effect("decide"),
    /** Removes the remains of a removed schedule; answered by `decision.made` and what follows it, or by `rest.gone`. */
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
      description: "Checking which runs are due, and the outcomes of earlier ones. O1, C1 to C6",
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
      description: "Paused until an operator resumes it; a stopped schedule also stops its runs. C3, C6",
      on: { "schedule.touched": "gathering" },
    },
    invalid: {
      description: "The stored cron expression is invalid: waiting for a valid one.",
      on: { "schedule.touched": "gathering" },
    },
    ending: {
      description: "The schedule is removed: removing its record and, if its service is removed, its runs.",
      entry: "removeRest",
      on: {
        "schedule.removed": {},
        "schedule.touched": {},
        "round.due": {},
        "decision.empty": {},
        "decision.made": {},
        // Also for a decision that was in flight when the schedule was removed.
        "decision.written": { target: "ending", reenter: true },
        "write.failed": { target: "ending", reenter: true },
        "rest.gone": "ended",
      },
    },
    ended: { description: "Nothing is left of the schedule.", type: "final" },
  },
});
