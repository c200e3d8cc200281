/**
 * A rollout: updates the slots of a service, some at a time, from one spec to another, and rolls them back. One actor for each
 * service with slots of another spec. The chart has the phase, `machines/orchestration/rollout/tracker.ts` decides which slots
 * have their turn and what has failed, `machines/orchestration/rollout/status.ts` what is written, and the service's
 * orchestrator (`machines/orchestration/slots.ts`) creates and stops the tasks.
 *
 *   update:    beginning ──▶ moving ──▶ completing ──▶ over
 *                              │ failed, or a step is done: pausing ──▶ paused (⇄ moving, by an operator)
 *                              └ failed: startingRollback ──▶ rollback
 *   rollback:  beginning ──▶ moving ──▶ completing ──▶ over
 *                              └ failed, or a step is done: pausing ──▶ paused (⇄ moving, by an operator)
 *
 * R1: the phase is the stored one: every write of it, by an operator or this actor, comes back as `phase.is`. So a new
 *     leader's actor continues in the same phase, and of two simultaneous requests only one succeeds. A step is a phase of
 *     `moving`: the stored batch limits which slots have their turn.
 * R2: every wait has a deadline: for each new task, and for the whole rollout.
 * R3: a rollback that fails stays paused; it is never rolled back again.
 */
import { assign, raise } from "xstate";
import { UpdateConfig_FailureAction, type Rollout } from "../../proto/gen/messages.ts";
import { cannotRollBack, isMoving, isOver, notRolledBack, type RolloutPhase } from "./rollout/status.ts";
import type { Verdict } from "./rollout/verdict.ts";
import { chart, effect } from "../chart.ts";

/** Longest timer, in milliseconds; a later deadline is checked again then. */
const timerMsMax = 86_400_000;
/** Delay before a refused or unanswered write is decided again, in milliseconds. */
const retryMs = 100;

export type RolloutEvent =
  /** The stored phase. `mustBegin`: slots must change, and no record exists yet. `remainingMs`: until its deadline. */
  | {
      readonly type: "phase.is";
      readonly phase: RolloutPhase;
      readonly mustBegin: boolean;
      readonly remainingMs: number;
    }
  /** It has completed, and no slot has another spec; or the service is removed. */
  | { readonly type: "rollout.over" }
  /** Tasks of its slots, or a node, have changed. */
  | { readonly type: "slots.touched" }
  | { readonly type: "round.due" }
  /** New tasks are starting. `nextMs`: milliseconds until the next timed event; -1: none. */
  | { readonly type: "look.busy"; readonly nextMs: number }
  /** Only the delay between slots is waited for. */
  | { readonly type: "look.delayed"; readonly nextMs: number }
  /** Every slot, or every slot of a step's batch, is done; the last ones are still being monitored. */
  | { readonly type: "look.watching"; readonly nextMs: number }
  | { readonly type: "look.finished" }
  /** The batch of a step is done and was monitored. */
  | { readonly type: "look.stepped" }
  | { readonly type: "look.choose" }
  /**
   * Too many tasks failed, or the deadline has passed. `why`: continues `update paused`. `wantsRollback`: the failure action is
   * to roll back. `isLate`: no update was requested. D4
   */
  | { readonly type: "look.failed"; readonly why: string; readonly wantsRollback: boolean; readonly isLate: boolean }
  /** The ledger rejected the rollback: something that the previous spec needs is in use elsewhere or was removed. */
  | { readonly type: "rollback.rejected"; readonly reason: string }
  /** A write was refused, has no answer or no longer applies. */
  | { readonly type: "write.failed" }
  | { readonly type: "read.due" };

interface RolloutContext {
  readonly serviceId: string;
  readonly nextMs: number;
  readonly remainingMs: number;
  /** Why it is to be paused or rolled back; continues `update paused`. */
  readonly why: string;
}

/** Reports the stored phase. `outdated`: number of slots of another spec. `remainingMs`: until the rollout's deadline. */
export function phaseEvent(
  phase: RolloutPhase,
  { isRecorded, outdated, remainingMs }: { isRecorded: boolean; outdated: number; remainingMs: number },
): RolloutEvent {
  if (isOver(phase) && outdated === 0) return { type: "rollout.over" };
  return { type: "phase.is", phase, mustBegin: isOver(phase) || (isMoving(phase) && !isRecorded), remainingMs };
}

/** The answer to `look`. `action`: the failure action of the rollout's settings. */
export function lookEvent(verdict: Verdict, { late }: Rollout, action: UpdateConfig_FailureAction): RolloutEvent {
  switch (verdict.kind) {
    case "busy":
    case "delayed":
    case "watching":
      return { type: `look.${verdict.kind}`, nextMs: verdict.nextMs };
    case "finished":
    case "stepped":
    case "choose":
      return { type: `look.${verdict.kind}` };
    case "failed":
    case "expired": {
      const wantsRollback = action === UpdateConfig_FailureAction.ROLLBACK;
      return { type: "look.failed", why: verdict.why, wantsRollback, isLate: late };
    }
  }
}

const machine = chart({
  types: {
    context: {} as RolloutContext,
    events: {} as RolloutEvent,
    input: {} as { readonly serviceId: string },
  },
  effects: {
    /** Answered by `phase.is`. */
    readPhase: effect(),
    /** Answered by `round.due` after the current commits are applied. */
    gather: effect(),
    /** Counts failures and gives slots their turn; answered by one of the `look` events. */
    look: effect(),
    /** Writes the failure counts and the blocking task to the store; answered only by `write.failed`. */
    note: effect(),
    /** Each is written conditionally on the state that it was decided from, and answered by `phase.is` or `write.failed`. */
    begin: effect(),
    pause: effect<{ why: string }>(),
    startRollback: effect<{ why: string }>(),
    complete: effect(),
    chooseBatch: effect(),
  },
  actions: {
    rememberNext: assign((_, { nextMs }: { nextMs: number }) => ({ nextMs })),
    rememberRemaining: assign(({ event }) => (event.type === "phase.is" ? { remainingMs: event.remainingMs } : {})),
    rememberWhy: assign((_, { why }: { why: string }) => ({ why })),
    readLater: raise({ type: "read.due" }, { delay: "retry", id: "read" }),
  },
  guards: {
    hasNext: ({ context }) => context.nextMs >= 0,
    hasDeadline: ({ context }) => context.remainingMs >= 0,
    mayRollBack: ({ event }) => event.type === "look.failed" && event.wantsRollback && !event.isLate,
    mustBegin: ({ event }) => event.type === "phase.is" && event.mustBegin && !isBack(event.phase),
    mustBeginRollback: ({ event }) => event.type === "phase.is" && event.mustBegin && isBack(event.phase),
    isUpdating: ({ event }) => isMovingIn(event, false),
    isPaused: ({ event }) => event.type === "phase.is" && event.phase === "paused",
    isRollingBack: ({ event }) => isMovingIn(event, true),
    isRollbackPaused: ({ event }) => event.type === "phase.is" && event.phase === "rollback paused",
  },
  delays: {
    nextLook: ({ context }) => Math.min(context.nextMs, timerMsMax),
    deadline: ({ context }) => Math.min(context.remainingMs, timerMsMax),
    retry: retryMs,
  },
  shows: {
    context: ["serviceId", "nextMs", "remainingMs"],
    events: ["phase", "mustBegin", "remainingMs", "nextMs", "wantsRollback", "isLate"],
  },
});

/** A rollback in progress: after a completed one, a new rollout is an update. */
function isBack(phase: RolloutPhase): boolean {
  return phase === "rolling back" || phase === "rollback stepping";
}

function isMovingIn(event: RolloutEvent, isRollback: boolean): boolean {
  return event.type === "phase.is" && !event.mustBegin && isMoving(event.phase) && isBack(event.phase) === isRollback;
}

/** The states of a phase in which slots change; the same on the way there and back, in one go or a step at a time. */
const moving = machine.createStateConfig({
  initial: "gathering",
  after: { deadline: { guard: "hasDeadline", target: ".looking" } },
  states: {
    gathering: {
      description: "Something changed; gathering more from the same commits.",
      meta: { waitingFor: "the rest of the current batch of commits", wokenBy: { "round.due": "its end" } },
      entry: "gather",
      ignore: ["slots.touched"],
      on: { "round.due": "looking" },
    },
    looking: {
      description: "Counting failures and updating as many slots at once as the parallelism allows. U1, U2",
      meta: { waitingFor: "the end of the round", wokenBy: { "look.*": "its result" } },
      entry: "look",
      on: {
        "look.busy": { target: "replacing", actions: { type: "rememberNext", params: ({ event }) => event } },
        "look.delayed": { target: "delaying", actions: { type: "rememberNext", params: ({ event }) => event } },
        "look.watching": { target: "watching", actions: { type: "rememberNext", params: ({ event }) => event } },
      },
    },
    replacing: {
      description: "New tasks are starting in some slots; each has its progress deadline. R2",
      meta: {
        waitingFor: "a new task to run",
        wokenBy: { "slots.touched": "that task, when it runs, fails or stops", nextLook: "its progress deadline" },
      },
      entry: "note",
      after: { nextLook: { guard: "hasNext", target: "looking" } },
    },
    delaying: {
      description: "Some slots have their new task; the next ones follow after the delay between slots.",
      meta: {
        waitingFor: "the delay between slots",
        wokenBy: { nextLook: "the end of the pause between tasks", "slots.touched": "a task that fails or stops" },
      },
      entry: "note",
      after: { nextLook: { guard: "hasNext", target: "looking" } },
    },
    watching: {
      description: "Every slot, or every slot of a step, has its new task; monitoring the last ones.",
      meta: {
        waitingFor: "the last new tasks to prove stable",
        wokenBy: { nextLook: "the end of the monitor period", "slots.touched": "a task that fails or stops" },
      },
      entry: "note",
      after: { nextLook: { guard: "hasNext", target: "looking" } },
    },
  },
});

export const rolloutMachine = machine.createMachine({
  id: "rollout",
  context: ({ input }) => ({ serviceId: input.serviceId, nextMs: -1, remainingMs: -1, why: "" }),
  initial: "reading",
  ignore: ["slots.touched", "round.due", "rollback.rejected"],
  on: {
    "phase.is": [
      { guard: "mustBegin", target: ".update.beginning" },
      { guard: "isUpdating", target: ".update.moving", actions: "rememberRemaining" },
      { guard: "isPaused", target: ".update.paused" },
      { guard: "mustBeginRollback", target: ".rollback.beginning" },
      { guard: "isRollingBack", target: ".rollback.moving", actions: "rememberRemaining" },
      { guard: "isRollbackPaused", target: ".rollback.paused" },
    ],
    "rollout.over": ".over",
    "write.failed": { actions: "readLater" },
    "read.due": { actions: "readPhase" },
  },
  states: {
    reading: {
      description: "Starting with a new leader, possibly in the middle of an update.",
      meta: { waitingFor: "the stored phase of the rollout", wokenBy: { "phase.is": "the phase" } },
      entry: "readPhase",
      on: { "phase.is": { guard: "mustBegin", target: "update" } },
    },
    update: {
      description: "The slots get the service's spec.",
      initial: "beginning",
      states: {
        beginning: {
          description: "Slots differ from the service's spec: recording their number and the start of the update.",
          meta: { waitingFor: "the log, to record the start", wokenBy: { "phase.is": "the ledger's answer" } },
          entry: "begin",
          on: { "phase.is": { guard: "isUpdating", target: "moving", actions: "rememberRemaining" } },
        },
        moving: {
          ...moving,
          description: "Updating slots, some at a time, or those of one step.",
          on: {
            "slots.touched": ".gathering",
            "look.finished": "completing",
            "look.stepped": { target: "pausing", actions: { type: "rememberWhy", params: { why: " after one step" } } },
            "look.choose": "choosing",
            "look.failed": [
              {
                guard: "mayRollBack",
                target: "startingRollback",
                actions: { type: "rememberWhy", params: ({ event }) => event },
              },
              {
                target: "pausing",
                actions: { type: "rememberWhy", params: ({ event }) => ({ why: notRolledBack(event) }) },
              },
            ],
          },
        },
        choosing: {
          description:
            "An operator requested one step: recording its slots, so that no other leader picks different ones.",
          meta: {
            waitingFor: "the log, to record the slots of the step",
            wokenBy: { "phase.is": "the ledger's answer" },
          },
          entry: "chooseBatch",
          on: { "phase.is": { guard: "isUpdating", target: "moving", actions: "rememberRemaining" } },
        },
        pausing: {
          description: "Too much failed, or a step is done: recording the pause.",
          meta: { waitingFor: "the log, to record the pause", wokenBy: { "phase.is": "the ledger's answer" } },
          entry: { type: "pause", params: ({ context }) => ({ why: context.why }) },
          on: { "phase.is": { guard: "isPaused", target: "paused" } },
        },
        paused: {
          description:
            "No further slot is updated, and each keeps its spec. Continues on resume, step, abort or a new update.",
          meta: {
            waitingFor: "an operator",
            wokenBy: { "phase.is": "muster service rollout resume, step or abort, or an update of the service" },
          },
          on: { "phase.is": { guard: "isUpdating", target: "moving", actions: "rememberRemaining" } },
        },
        startingRollback: {
          description: "Too much failed: restoring the service's previous spec, or pausing if there is none. D2",
          meta: {
            waitingFor: "the log, to record the rollback",
            wokenBy: { "phase.is": "the ledger's answer", "rollback.rejected": "its refusal" },
          },
          entry: { type: "startRollback", params: ({ context }) => ({ why: context.why }) },
          on: {
            "phase.is": [
              { guard: "mustBeginRollback", target: "#rollout.rollback.beginning" },
              { guard: "isPaused", target: "paused" },
            ],
            "rollback.rejected": {
              target: "pausing",
              actions: {
                type: "rememberWhy",
                params: ({ context, event }) => ({ why: cannotRollBack(context.why, event.reason) }),
              },
            },
          },
        },
        completing: {
          description: "Nothing is left to do: recording the completion.",
          meta: { waitingFor: "the log, to record the completion", wokenBy: { "rollout.over": "the ledger's answer" } },
          entry: "complete",
          on: { "rollout.over": "#rollout.over" },
        },
      },
    },
    rollback: {
      description: "The slots get the previous spec again, by the rollback settings. R3",
      initial: "beginning",
      states: {
        beginning: {
          description: "The service has its previous spec: recording how many slots differ from it.",
          meta: { waitingFor: "the log, to record the start", wokenBy: { "phase.is": "the ledger's answer" } },
          entry: "begin",
          on: { "phase.is": { guard: "isRollingBack", target: "moving", actions: "rememberRemaining" } },
        },
        moving: {
          ...moving,
          description: "Rolling back slots, some at a time, or those of one step.",
          on: {
            "slots.touched": ".gathering",
            "look.finished": "completing",
            "look.stepped": { target: "pausing", actions: { type: "rememberWhy", params: { why: " after one step" } } },
            "look.choose": "choosing",
            "look.failed": { target: "pausing", actions: { type: "rememberWhy", params: ({ event }) => event } },
          },
        },
        choosing: {
          description: "An operator requested one step: recording its slots.",
          meta: {
            waitingFor: "the log, to record the slots of the step",
            wokenBy: { "phase.is": "the ledger's answer" },
          },
          entry: "chooseBatch",
          on: { "phase.is": { guard: "isRollingBack", target: "moving", actions: "rememberRemaining" } },
        },
        pausing: {
          description: "Too much failed, or a step is done: recording the pause.",
          meta: { waitingFor: "the log, to record the pause", wokenBy: { "phase.is": "the ledger's answer" } },
          entry: { type: "pause", params: ({ context }) => ({ why: context.why }) },
          on: { "phase.is": { guard: "isRollbackPaused", target: "paused" } },
        },
        paused: {
          description:
            "The rollback failed too, or an operator paused it. Continues on resume, step or a new update. R3",
          meta: {
            waitingFor: "an operator",
            wokenBy: { "phase.is": "muster service rollout resume or step, or an update of the service" },
          },
          on: { "phase.is": { guard: "isRollingBack", target: "moving", actions: "rememberRemaining" } },
        },
        completing: {
          description: "Nothing is left to do: recording the completion.",
          meta: { waitingFor: "the log, to record the completion", wokenBy: { "rollout.over": "the ledger's answer" } },
          entry: "complete",
          on: { "rollout.over": "#rollout.over" },
        },
      },
    },
    over: { description: "Every slot matches the service.", type: "final" },
  },
});
