/**
 * A rollout: updates the slots of a service, some at a time, from one spec to another, and rolls them back. One actor for each
 * service with slots of another spec. The chart has the phase, `machines/orchestration/rollout/tracker.ts` decides which slots
 * have their turn and what has failed, `machines/orchestration/rollout/status.ts` what is written, and the service's
 * orchestrator (`machines/orchestration/slots.ts`) creates and stops the tasks.
 *
 *   beginning ──▶ updating ──▶ completing ──▶ over          paused ⇄ updating ⇄ stepping, by an operator
 *                    │ failed: pausing ──▶ paused
 *                    └ failed: startingRollback ──▶ rollingBack ──▶ completing
 *                                                  └ failed, aborted: rollbackPaused (⇄ rollingBack ⇄ rollbackStepping)
 *
 * R1: the phase is the stored one: every write of it, by an operator or this actor, comes back as `phase.is`. So a new
 *     leader's actor continues in the same phase, and of two simultaneous requests only one succeeds.
 * R2: every wait has a deadline: for each new task, and for the whole rollout.
 * R3: a rollback that fails stays `rollback paused`.
 */
import { assign, setup } from "xstate";
import type { RolloutPhase } from "./rollout/status.ts";
import { effect } from "../effect.ts";

/** Longest timer, in milliseconds; a later deadline is checked again then. */
const timerMsMax = 86_400_000;

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
  /** Too many tasks failed, or the deadline has passed. `wantsRollback`: the failure action is to roll back. */
  | { readonly type: "look.failed"; readonly wantsRollback: boolean }
  /** The ledger rejected the rollback: something that the previous spec needs is in use elsewhere or was removed. */
  | { readonly type: "rollback.rejected" };

export interface RolloutContext {
  readonly serviceId: string;
  readonly nextMs: number;
  readonly remainingMs: number;
}

const machine = setup({
  types: {
    context: {} as RolloutContext,
    events: {} as RolloutEvent,
    input: {} as { readonly serviceId: string },
  },
  actions: {
    /** Answered by `phase.is`. */
    readPhase: effect("readPhase"),
    /** Answered by `round.due` after the current commits are applied. */
    gather: effect("gather"),
    /** Counts failures and gives slots their turn; answered by one of the `look` events. */
    look: effect("look"),
    /** Writes the failure counts and the blocking task to the store; has no answer. */
    note: effect("note"),
    /** Each is written conditionally on the state that it was decided from, and answered by `phase.is`. */
    begin: effect("begin"),
    pause: effect("pause"),
    startRollback: effect("startRollback"),
    complete: effect("complete"),
    chooseBatch: effect("chooseBatch"),
    reportUnexpected: effect("reportUnexpected"),
    rememberNext: assign((_, { nextMs }: { nextMs: number }) => ({ nextMs })),
    rememberRemaining: assign((_, { remainingMs }: { remainingMs: number }) => ({ remainingMs })),
  },
  guards: {
    hasNext: ({ context }) => context.nextMs >= 0,
    hasDeadline: ({ context }) => context.remainingMs >= 0,
    wantsRollback: (_, { wantsRollback }: { wantsRollback: boolean }) => wantsRollback,
    mustBegin: (_, { mustBegin }: { mustBegin: boolean }) => mustBegin,
    isPhase: (_, { is, phase }: { is: RolloutPhase; phase: RolloutPhase }) => is === phase,
  },
  delays: {
    nextLook: ({ context }) => Math.min(context.nextMs, timerMsMax),
    deadline: ({ context }) => Math.min(context.remainingMs, timerMsMax),
  },
});

/** The states of a phase in which slots change; the same on the way there and back, in one go or a step at a time. */
const moving = machine.createStateConfig({
  initial: "gathering",
  after: { deadline: { guard: "hasDeadline", target: ".looking" } },
  on: {
    "look.finished": "#rollout.completing",
    "look.stepped": "#rollout.pausing",
    "look.choose": "#rollout.choosing",
    "look.failed": [
      { guard: { type: "wantsRollback", params: ({ event }) => event }, target: "#rollout.startingRollback" },
      { target: "#rollout.pausing" },
    ],
    "look.busy": { target: ".replacing", actions: { type: "rememberNext", params: ({ event }) => event } },
    "look.delayed": { target: ".delaying", actions: { type: "rememberNext", params: ({ event }) => event } },
    "look.watching": { target: ".watching", actions: { type: "rememberNext", params: ({ event }) => event } },
    "slots.touched": ".gathering",
    "round.due": ".looking",
  },
  states: {
    gathering: {
      description: "Something changed; gathering more from the same commits.",
      entry: "gather",
      on: { "slots.touched": {} },
    },
    looking: {
      description: "Counting failures and updating as many slots at once as the parallelism allows. U1, U2",
      entry: "look",
    },
    replacing: {
      description: "New tasks are starting in some slots; each has its progress deadline. R2",
      entry: "note",
      after: { nextLook: { guard: "hasNext", target: "looking" } },
    },
    delaying: {
      description: "Waiting for the update delay between slots.",
      entry: "note",
      after: { nextLook: { guard: "hasNext", target: "looking" } },
    },
    watching: {
      description:
        "Every slot of the update or of the step has its new task; monitoring the last ones for the monitor period.",
      entry: "note",
      after: { nextLook: { guard: "hasNext", target: "looking" } },
    },
  },
});

export const rolloutMachine = machine.createMachine({
  id: "rollout",
  context: ({ input }) => ({ serviceId: input.serviceId, nextMs: -1, remainingMs: -1 }),
  initial: "reading",
  options: { maxIterations: 1_000 },
  on: {
    "phase.is": [
      { guard: { type: "mustBegin", params: ({ event }) => event }, target: ".beginning" },
      ...(
        [
          ["updating", ".updating"],
          ["stepping", ".stepping"],
          ["paused", ".paused"],
          ["rolling back", ".rollingBack"],
          ["rollback stepping", ".rollbackStepping"],
          ["rollback paused", ".rollbackPaused"],
        ] as const
      ).map(([phase, target]) => ({
        guard: {
          type: "isPhase" as const,
          params: ({ event }: { event: { phase: RolloutPhase } }) => ({ is: phase, phase: event.phase }),
        },
        target,
        reenter: true,
        actions: {
          type: "rememberRemaining" as const,
          params: ({ event }: { event: { remainingMs: number } }) => event,
        },
      })),
    ],
    "rollout.over": ".over",
    "slots.touched": {},
    "round.due": {},
    "rollback.rejected": {},
    "*": { actions: "reportUnexpected" },
  },
  states: {
    reading: { description: "Starting with a new leader, possibly in the middle of an update.", entry: "readPhase" },
    beginning: {
      description: "Slots differ from the service's spec: recording their number and the start of the update.",
      entry: "begin",
    },
    updating: { ...moving, description: "Updating slots to the new spec, some at a time." },
    stepping: {
      ...moving,
      description: "Updating the slots of one step; pauses when they have been monitored.",
    },
    choosing: {
      description: "An operator requested one step: recording its slots, so that no other leader picks different ones.",
      entry: "chooseBatch",
    },
    pausing: { description: "Too much failed, or a step is done: recording the pause.", entry: "pause" },
    paused: {
      description:
        "Paused: no further slot is updated, and each keeps its spec. Continues on resume, step, abort or a new update.",
    },
    startingRollback: {
      description: "Too much failed: restoring the service's previous spec, or pausing if there is none. D2",
      entry: "startRollback",
      on: { "rollback.rejected": "pausing" },
    },
    rollingBack: { ...moving, description: "Rolling back slots to the previous spec, by the rollback settings." },
    rollbackStepping: {
      ...moving,
      description: "Rolling back the slots of one step; pauses when they have been monitored.",
    },
    rollbackPaused: {
      description: "The rollback failed too, or was paused by an operator. Continues like any paused update. R3",
    },
    completing: { description: "Nothing is left to do: recording the completion.", entry: "complete" },
    over: { description: "Every slot matches the service.", type: "final" },
  },
});
