/**
 * The mass-down breaker: decides whether a node that this manager misses may be declared DOWN now.
 *
 *   settling ──▶ watching ──▶ holding ──▶ releasing ──▶ watching        (back to settling from anywhere)
 *
 * D1: no verdict is granted unless this process's link and log were healthy for a whole grace period and the process was not
 *     paused meanwhile: otherwise it was this process that was away, not the nodes.
 * D2: when more than a share of the cluster's nodes is missing at once, no verdict is granted for `massDown.holdMs` from the
 *     moment at which one of them would have been declared DOWN: a fault that affects many nodes is more often one of ours (a
 *     switch, an overload) than many of theirs, and moving all their tasks makes such a fault worse. The return of some nodes,
 *     before or during the hold, changes nothing: a fault that releases nodes one by one is still the same fault. The hold
 *     ends early only when no node is missing any more.
 * D3: the hold ends. To hold until an operator comes would leave the tasks of a rack that burnt down at night not running
 *     until morning; after the hold, if this process was healthy throughout, the nodes are considered lost.
 * D4: after a hold, verdicts are granted only for nodes that were silent throughout (one that was heard is slow, not lost),
 *     and for each only once a hold has passed since its own wait.
 * D5: a wait for a node counts only time in which this process could have heard it: not time by which its own event loop was late,
 *     nor time in which nodes waited for it to accept their connections, to shake hands or to handle their first calls.
 * D6: a process to which that happened for much of the last grace period is overloaded: nodes find it too slow and move elsewhere,
 *     and it learns late of other managers' writes. It grants nothing for nodes that were silent for less than `overloadMs`.
 */
import { assign } from "xstate";
import { chart, effect } from "../chart.ts";

export const massDown = {
  /**
   * Share of the nodes that are up or were up in the window. SwarmKit has no such limit; two nodes of five may be missing
   * without a hold.
   */
  shareMax: 0.4,
  /** Fewer nodes never cause a hold: in a cluster of three, one or two dead nodes are an ordinary case. */
  nodesMin: 4,
  /** Nodes declared DOWN within this time, in milliseconds, still count as missing: twice the spread of 5 s heartbeats. */
  windowMs: 10_000,
  /**
   * Two grace periods of 15 s: an agent that lost its connection has made eight attempts by then (its back-off is at most 8
   * s).
   */
  holdMs: 30_000,
  /**
   * How long a node that is still missing counts as hit by the same fault, in milliseconds, after the first ones have
   * returned: the others follow within their back-off (8 s) and the time-outs of their calls (5 s), with some reserve.
   */
  sameFaultMs: 20_000,
  /**
   * How long verdicts are granted after a hold, in milliseconds: nodes affected by one fault fall silent within the spread of
   * their heartbeats (5 s) and grace periods (3 s), and those of a manager lost in the same fault when it is declared dead
   * (10 s).
   */
  releaseMs: 20_000,
  /** Milliseconds until a held verdict is asked for again, unless it cannot be granted before a later time. */
  recheckMs: 1_000,
  /**
   * A check that is late by more than this, in milliseconds, shows that the process was paused. Agents give each heartbeat 5
   * s before they rebuild their session: a shorter pause loses none, and everything in the sockets is read within the verdict
   * delay.
   */
  pauseMsMax: 4_000,
  /**
   * Time within a grace period for which it could not hear nodes, in milliseconds, above which the process is overloaded: as much as
   * one pause may last.
   */
  overloadDeafMsMax: 4_000,
  /**
   * How long a node must be silent before an overloaded process declares it DOWN, in milliseconds: ten holds. A longer
   * overload must not keep the tasks of a dead node from running elsewhere forever.
   */
  overloadMs: 300_000,
} as const;

type MassDownBreakerEvent = {
  /** Sent regularly, and before each verdict. */
  readonly type: "view.sampled";
  readonly at: number;
  /** This process's bus link and log are healthy. */
  readonly settled: boolean;
  /** This process holds sessions of nodes. */
  readonly serves: boolean;
  /** Milliseconds by which this check was late. */
  readonly lateMs: number;
  /** Nodes that managers miss, whose manager is gone, or that were declared DOWN within the window. */
  readonly missing: number;
  /** Nodes that are up, whose manager is gone, or that were declared DOWN within the window. */
  readonly nodes: number;
  /** A verdict is requested: a node is about to be declared DOWN. */
  readonly asked: boolean;
};

/** Whether too many nodes are missing at once. D2 */
export function isMass({ missing, nodes }: { readonly missing: number; readonly nodes: number }): boolean {
  return missing >= massDown.nodesMin && missing > massDown.shareMax * nodes;
}

/** A wait for a node that is over: by the monotonic clock, in milliseconds. */
export interface Wait {
  /** When the node was last heard, or lost its manager. */
  readonly since: number;
  /** How long it may be silent after that. */
  readonly graceMs: number;
}

/** `forMs`: it holds for at least so many milliseconds. */
interface Objection {
  readonly reason: string;
  readonly forMs: number;
}

/** Why a node whose wait is over is not declared DOWN yet; null if it is. D4, D5, D6 */
export function objection(
  { graceMs, since }: Wait,
  now: {
    readonly at: number;
    /** For how long since the wait began this process was late or behind, in milliseconds. D5 */
    readonly deafMs: number;
    /** The same within the last grace period. */
    readonly deafRecentlyMs: number;
    readonly isReleasing: boolean;
    readonly holdSince: number;
  },
): Objection | null {
  const silentMs = now.at - since;
  if (now.isReleasing && since > now.holdSince)
    return { reason: "it was heard while too many nodes were missing at once", forMs: 0 };
  if (now.isReleasing && silentMs < graceMs + massDown.holdMs)
    return { reason: "it has not been missing for the whole hold", forMs: 0 };
  if (silentMs - now.deafMs < graceMs) {
    const reason = `this manager itself was behind for ${(now.deafMs / 1_000).toFixed(1)} s of that time`;
    return { reason, forMs: graceMs - (silentMs - now.deafMs) };
  }
  if (now.deafRecentlyMs > massDown.overloadDeafMsMax && silentMs < massDown.overloadMs) {
    const reason = `this manager is overloaded: it was behind for ${(now.deafRecentlyMs / 1_000).toFixed(1)} s recently`;
    // The time that counts as recent moves on by a millisecond in each.
    const forMs = Math.min(now.deafRecentlyMs - massDown.overloadDeafMsMax, massDown.overloadMs - silentMs);
    return { reason, forMs };
  }
  return null;
}

interface MassDownBreakerContext {
  /** No verdict before this time: after a pause of the process, or while its link or log is unavailable. */
  readonly settlingUntil: number;
  /**
   * Whether it was ever settled, or held a session. A manager that has just started need not distrust itself: it took over no
   * heartbeats.
   */
  readonly hasServed: boolean;
  readonly settleMs: number;
  readonly missing: number;
  readonly nodes: number;
  /** Time of the newest check. */
  readonly at: number;
  readonly asked: boolean;
  /** Time of the newest check that was late; null if none was. */
  readonly lateAt: number | null;
  /** When too many nodes were last missing at once; null if none has been missing since, or a hold is over since. D2 */
  readonly massAt: number | null;
  /** When the newest hold began. */
  readonly holdSince: number;
}

export const massDownBreakerMachine = chart({
  types: {
    context: {} as MassDownBreakerContext,
    events: {} as MassDownBreakerEvent,
    input: {} as { readonly settleMs: number },
    tags: {} as "granting",
  },
  effects: {
    reportPause: effect<{ lateMs: number }>(),
    reportHold: effect<{ missing: number; nodes: number }>(),
    reportRelease: effect<{ missing: number; nodes: number }>(),
  },
  actions: {
    count: assign(
      (
        { context },
        { asked, at, missing, nodes }: Pick<MassDownBreakerContext, "asked" | "at" | "missing" | "nodes">,
      ) => ({
        asked,
        at,
        missing,
        nodes,
        massAt: isMass({ missing, nodes }) ? at : missing === 0 ? null : context.massAt,
      }),
    ),
    forgetMass: assign({ massAt: null }),
    rememberHold: assign(({ context }) => ({ holdSince: context.at })),
    rememberPause: assign(({ context }, { at, serves }: { at: number; serves: boolean }) => {
      const hasServed = context.hasServed || serves;
      return { hasServed, settlingUntil: hasServed ? at + context.settleMs : 0 };
    }),
    rememberLate: assign((_, { at }: { at: number }) => ({ lateAt: at })),
    rememberServing: assign({ hasServed: true }),
  },
  guards: {
    isLate: (_, { lateMs }: { lateMs: number }) => lateMs > massDown.pauseMsMax,
    // Each verdict that is asked for during a pause is a check too.
    isLateStill: ({ context: { lateAt } }, { at, lateMs }: { at: number; lateMs: number }) =>
      lateMs > massDown.pauseMsMax && lateAt !== null && at - lateAt < massDown.pauseMsMax,
    isAway: (_, { settled }: { settled: boolean }) => !settled,
    isSettling: ({ context }, { at }: { at: number }) => at < context.settlingUntil,
    isOfMass: ({ context: { asked, at, massAt } }) => asked && massAt !== null && at - massAt <= massDown.sameFaultMs,
    isNone: (_, { missing }: { missing: number }) => missing === 0,
  },
  delays: { hold: massDown.holdMs, release: massDown.releaseMs },
  shows: {
    context: [
      "settlingUntil",
      "hasServed",
      "settleMs",
      "missing",
      "nodes",
      "at",
      "asked",
      "lateAt",
      "massAt",
      "holdSince",
    ],
    events: ["at", "settled", "serves", "lateMs", "missing", "nodes", "asked"],
  },
}).createMachine({
  id: "massDownBreaker",
  context: ({ input }) => ({
    settlingUntil: 0,
    hasServed: false,
    settleMs: input.settleMs,
    missing: 0,
    nodes: 0,
    at: 0,
    asked: false,
    lateAt: null,
    massAt: null,
    holdSince: 0,
  }),
  initial: "settling",
  on: {
    "view.sampled": [
      {
        guard: { type: "isLate", params: ({ event }) => event },
        target: ".settling",
        actions: [
          { type: "rememberPause", params: ({ event }) => event },
          { type: "rememberLate", params: ({ event }) => event },
          { type: "reportPause", params: ({ event }) => event },
        ],
      },
      {
        guard: { type: "isAway", params: ({ event }) => event },
        target: ".settling",
        actions: { type: "rememberPause", params: ({ event }) => event },
      },
      { actions: { type: "count", params: ({ event }) => event } },
    ],
  },
  states: {
    settling: {
      description:
        "This manager was cut off within the last grace period (its link, the log or the process): declaring no node DOWN. D1",
      meta: {
        waitingFor: "a whole grace period without a cut",
        wokenBy: { "view.sampled": "the next look, once a second" },
      },
      on: {
        "view.sampled": [
          {
            guard: { type: "isLateStill", params: ({ event }) => event },
            actions: [
              { type: "rememberPause", params: ({ event }) => event },
              { type: "rememberLate", params: ({ event }) => event },
            ],
          },
          {
            guard: { type: "isLate", params: ({ event }) => event },
            actions: [
              { type: "rememberPause", params: ({ event }) => event },
              { type: "rememberLate", params: ({ event }) => event },
              { type: "reportPause", params: ({ event }) => event },
            ],
          },
          {
            guard: { type: "isAway", params: ({ event }) => event },
            actions: { type: "rememberPause", params: ({ event }) => event },
          },
          {
            guard: { type: "isSettling", params: ({ event }) => event },
            actions: { type: "count", params: ({ event }) => event },
          },
          { target: "watching", actions: ["rememberServing", { type: "count", params: ({ event }) => event }] },
        ],
      },
    },
    watching: {
      description: "Declaring silent nodes DOWN, as long as few are missing at once.",
      meta: {
        waitingFor: "nothing: silent nodes may be declared DOWN",
        wokenBy: { "view.sampled": "the next look, once a second" },
      },
      tags: ["granting"],
      always: { guard: "isOfMass", target: "holding" },
    },
    holding: {
      description: "Too many nodes are missing, or were a moment ago: none is declared DOWN. D2",
      meta: {
        waitingFor: "the missing nodes to return",
        wokenBy: { "view.sampled": "the next look, if most have returned", hold: "the end of the hold" },
      },
      entry: [
        "rememberHold",
        { type: "reportHold", params: ({ context }) => ({ missing: context.missing, nodes: context.nodes }) },
      ],
      always: { guard: { type: "isNone", params: ({ context }) => context }, target: "watching" },
      after: { hold: "releasing" },
    },
    releasing: {
      description: "The hold is over: declaring every node DOWN that stayed silent through it, however many. D3, D4",
      meta: {
        waitingFor: "every node that stayed silent to be declared DOWN",
        wokenBy: { "view.sampled": "the next look, once a second", release: "the end of the release" },
      },
      tags: ["granting"],
      entry: { type: "reportRelease", params: ({ context }) => ({ missing: context.missing, nodes: context.nodes }) },
      after: { release: { target: "watching", actions: "forgetMass" } },
    },
  },
});
