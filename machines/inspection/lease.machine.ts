/**
 * One listener's lease of another manager's feed, on the manager that the listener is connected to.
 *
 *   asking ⇄ held      asking ──▶ doubting ──▶ away ⇄ trying ──▶ held
 *
 * FL1: the listener learns once that a manager's feed is lost, and why; the feed resumes with a snapshot.
 * FL2: a manager that does not answer is asked again as long as the listener is there.
 *
 * Feed messages bypass the chart: an actor that moved with each of them would feed itself.
 */
import { assign } from "xstate";
import { chart, effect } from "../chart.ts";

/** Times in milliseconds. */
export const leaseTimes = {
  /** Between two renewals. */
  renewalMs: 2_000,
  /** For the answer to one. */
  askTimeoutMs: 2_000,
  /** This many unanswered questions in a row count as the manager's loss: longer than a reconnect to NATS takes. */
  missedMax: 2,
  /** Without a renewal in this time, the other manager forgets the listener: three were lost, or the listener has vanished. */
  lastsMs: 7_000,
} as const;

export type LeaseLoss = "absent" | "silent" | "refused";

export type LeaseEvent =
  | { readonly type: "manager.answered" }
  /** It serves as many listeners as it may. */
  | { readonly type: "manager.refused" }
  /** No process of it is on the bus, or one that has no feed. */
  | { readonly type: "manager.missing" }
  | { readonly type: "manager.silent" }
  /** Messages were lost. */
  | { readonly type: "snapshot.wanted" }
  | { readonly type: "listener.left" };

export interface LeaseContext {
  readonly managerId: string;
  readonly missed: number;
}

export const leaseMachine = chart({
  types: { context: {} as LeaseContext, events: {} as LeaseEvent, input: {} as { readonly managerId: string } },
  shows: { context: ["managerId", "missed"] },
  effects: {
    /** Answered by an event of `manager.*`. */
    ask: effect(),
    tellLost: effect<{ loss: LeaseLoss }>(),
    /** Tells the manager that the listener has left. */
    release: effect(),
  },
  actions: {
    countMissed: assign({ missed: ({ context }) => context.missed + 1 }),
    resetMissed: assign({ missed: 0 }),
  },
  guards: { isLost: ({ context }) => context.missed >= leaseTimes.missedMax },
  delays: { renewal: leaseTimes.renewalMs },
}).createMachine({
  id: "feedLease",
  context: ({ input }) => ({ managerId: input.managerId, missed: 0 }),
  initial: "asking",
  on: { "listener.left": ".over" },
  states: {
    asking: {
      description: "Asking the manager for its feed, or for more of it.",
      meta: {
        waitingFor: "the manager's answer",
        wokenBy: { "manager.*": "the answer, or that there is none", "listener.left": "the end of the listener" },
      },
      entry: "ask",
      // The wish is part of the next question.
      ignore: ["snapshot.wanted"],
      on: {
        "manager.answered": { target: "held", actions: "resetMissed" },
        "manager.missing": { target: "away", actions: { type: "tellLost", params: { loss: "absent" } } },
        "manager.refused": { target: "away", actions: { type: "tellLost", params: { loss: "refused" } } },
        "manager.silent": { target: "doubting", actions: "countMissed" },
      },
    },
    held: {
      description: "The manager publishes its feed for the listener.",
      meta: {
        waitingFor: "the next renewal",
        wokenBy: {
          renewal: "the end of the interval",
          "snapshot.wanted": "a gap in the feed",
          "listener.left": "the end of the listener",
        },
      },
      ignore: ["manager.*"],
      on: { "snapshot.wanted": "asking" },
      after: { renewal: "asking" },
    },
    doubting: {
      description: "The manager did not answer; after several tries its feed counts as lost. FL1",
      always: [
        { guard: "isLost", target: "away", actions: { type: "tellLost", params: { loss: "silent" } } },
        { target: "asking" },
      ],
    },
    away: {
      description: "The feed is lost, and the listener knows; trying again at intervals. FL2",
      meta: {
        waitingFor: "the next try",
        wokenBy: { renewal: "the end of the interval", "listener.left": "the end of the listener" },
      },
      ignore: ["manager.*", "snapshot.wanted"],
      after: { renewal: "trying" },
    },
    trying: {
      description: "Asking a manager whose feed is lost whether it is back.",
      meta: {
        waitingFor: "the manager's answer",
        wokenBy: { "manager.*": "the answer, or that there is none", "listener.left": "the end of the listener" },
      },
      entry: "ask",
      ignore: ["snapshot.wanted"],
      on: {
        "manager.answered": { target: "held", actions: "resetMissed" },
        "manager.missing": "away",
        "manager.refused": "away",
        "manager.silent": "away",
      },
    },
    over: {
      description: "The listener has left.",
      meta: { waitingFor: "nothing: the listener has left", wokenBy: {} },
      entry: "release",
      ignore: ["manager.*", "snapshot.wanted", "listener.left"],
    },
  },
});
