/**
 * The mass-down breaker: decides whether a node that this manager misses may be declared DOWN now.
 *
 *   settling ──▶ watching ──▶ holding ──▶ releasing ──▶ watching        (back to settling from anywhere)
 *
 * D1: nothing is granted unless this process's own link and log were healthy for a whole grace period, and the process
 *     itself was not stopped meanwhile: then it is this process that was away, not the nodes.
 * D2: when more than a share of the cluster's nodes is missing at once, nothing is granted for `massDown.holdMs` from the
 *     moment in which one of them would have been declared DOWN: a fault that takes many nodes is more often one of ours (a
 *     switch, an overload) than many of theirs, and moving all their tasks makes such a fault worse. That some of them come
 *     back meanwhile ends the hold for nobody: a fault that lets go of nodes one by one is still the same fault. Only when
 *     nobody is missing any more is it over.
 * D3: the hold ends. Whoever argues for holding until an operator comes must also let a rack that burnt down at night stay
 *     without its tasks until morning; after the hold, with the own view proven healthy all along, the nodes are gone.
 * D4: what is granted after a hold is granted for nodes that were not heard all through it (one that was heard is slow, not
 *     gone), and for each no sooner than a hold after its own wait was over.
 * D5: a wait for a node counts the time in which this process could have heard it: what its own event loop was late by is
 *     no silence of the node's.
 * D6: a process that was late for much of the last grace period is overloaded: nodes find it too slow and turn elsewhere, and
 *     it learns late of what other managers write. It grants nothing for nodes that were silent for less than `overloadMs`.
 */
import { assign, setup } from "xstate";
import { effect } from "../effect.ts";

export const massDown = {
  /** Of the cluster's nodes that are up or were in the window. SwarmKit knows no such limit; two of five may go unnoticed. */
  shareMax: 0.4,
  /** Fewer never hold: in a cluster of three, one or two dead nodes are the ordinary case. */
  nodesMin: 4,
  /** Nodes declared DOWN this recently, in milliseconds, still count as missing: twice the spread of heartbeats of 5 s. */
  windowMs: 10_000,
  /** Two grace periods of 15 s: an agent that lost its way has tried eight times by then (back-off is at most 8 s). */
  holdMs: 30_000,
  /**
   * How long verdicts are given after a hold, in milliseconds: nodes of one fault fall silent within the spread of their
   * heartbeats (5 s) and graces (3 s), and those of a manager that it took when that is taken for dead (10 s).
   */
  releaseMs: 20_000,
  /** Milliseconds between two looks while verdicts are held. */
  recheckMs: 1_000,
  /**
   * A look that comes this many milliseconds late shows that the process was stopped. Agents give each heartbeat 5 s before
   * they rebuild their session: a shorter stop loses none, and all that lay in the sockets is read within the verdict delay.
   */
  pauseMsMax: 4_000,
  /** Lateness within a grace period, in milliseconds, above which the process is overloaded: as much as one stop may last. */
  overloadLateMsMax: 4_000,
  /**
   * How long a node must be silent before an overloaded process declares it DOWN, in milliseconds: ten holds. An overload that
   * lasts for longer must not keep the tasks of a dead node from running elsewhere for good.
   */
  overloadMs: 300_000,
} as const;

export type MassDownBreakerEvent = {
  /** Looked at regularly, and before each verdict. */
  readonly type: "looked";
  readonly at: number;
  /** Own bus link and log are healthy now. */
  readonly settled: boolean;
  /** Milliseconds by which this look came late. */
  readonly lateMs: number;
  /** Nodes that managers miss, whose manager went away, or that were declared DOWN within the window. */
  readonly missing: number;
  /** Nodes that are up, whose manager went away, or that were declared DOWN within the window. */
  readonly nodes: number;
  /** A verdict is wanted: a node is about to be declared DOWN. */
  readonly asked: boolean;
};

/** A wait for a node that is over: by the monotonic clock, in milliseconds. */
export interface Wait {
  /** When the node was last heard, or fell out of a manager's hands. */
  readonly since: number;
  /** How long it may be silent from then on. */
  readonly graceMs: number;
}

/** Why a node that was waited for in vain is not declared DOWN all the same; null: it is. D4, D5, D6 */
export function objection(
  { graceMs, since }: Wait,
  now: {
    readonly at: number;
    /** By how much this process was late since the wait began, in milliseconds. */
    readonly lateMs: number;
    /** The same within the last grace period. */
    readonly lateRecentlyMs: number;
    readonly isReleasing: boolean;
    readonly holdSince: number;
  },
): string | null {
  if (now.isReleasing && since > now.holdSince) return "it was heard while too many nodes were missing at once";
  if (now.isReleasing && now.at - since < graceMs + massDown.holdMs)
    return "it has not been missing for the whole hold";
  if (now.at - since - now.lateMs < graceMs)
    return `this manager itself was late by ${(now.lateMs / 1_000).toFixed(1)} s of that time`;
  if (now.lateRecentlyMs > massDown.overloadLateMsMax && now.at - since < massDown.overloadMs)
    return `this manager is overloaded: it was late by ${(now.lateRecentlyMs / 1_000).toFixed(1)} s lately`;
  return null;
}

export interface MassDownBreakerContext {
  /** After a pause of the process, or while its link or log are away: no verdict before this time. */
  readonly settlingUntil: number;
  /** Whether it was ever settled. A manager that just started has nothing to distrust: it took over no heartbeats. */
  readonly wasSettled: boolean;
  readonly settleMs: number;
  readonly missing: number;
  readonly nodes: number;
  /** Of the newest look. */
  readonly at: number;
  readonly asked: boolean;
  /** When the newest hold began. */
  readonly holdSince: number;
}

export const massDownBreakerMachine = setup({
  types: {
    context: {} as MassDownBreakerContext,
    events: {} as MassDownBreakerEvent,
    input: {} as { readonly settleMs: number },
    tags: {} as "granting",
  },
  actions: {
    reportPause: effect<{ lateMs: number }>("reportPause"),
    reportHold: effect<{ missing: number; nodes: number }>("reportHold"),
    reportRelease: effect<{ missing: number; nodes: number }>("reportRelease"),
    reportUnexpected: effect("reportUnexpected"),
    count: assign(
      (_, { asked, at, missing, nodes }: Pick<MassDownBreakerContext, "asked" | "at" | "missing" | "nodes">) => ({
        asked,
        at,
        missing,
        nodes,
      }),
    ),
    rememberHold: assign(({ context }) => ({ holdSince: context.at })),
    rememberPause: assign(({ context }, { at }: { at: number }) => ({
      settlingUntil: context.wasSettled ? at + context.settleMs : 0,
    })),
    rememberSettled: assign({ wasSettled: true }),
  },
  guards: {
    isLate: (_, { lateMs }: { lateMs: number }) => lateMs > massDown.pauseMsMax,
    isAway: (_, { settled }: { settled: boolean }) => !settled,
    isSettling: ({ context }, { at }: { at: number }) => at < context.settlingUntil,
    isMass: (_, { asked, missing, nodes }: { asked: boolean; missing: number; nodes: number }) =>
      asked && missing >= massDown.nodesMin && missing > massDown.shareMax * nodes,
    isNone: (_, { missing }: { missing: number }) => missing === 0,
  },
  delays: { hold: massDown.holdMs, release: massDown.releaseMs },
}).createMachine({
  id: "massDownBreaker",
  context: ({ input }) => ({
    settlingUntil: 0,
    wasSettled: false,
    settleMs: input.settleMs,
    missing: 0,
    nodes: 0,
    at: 0,
    asked: false,
    holdSince: 0,
  }),
  options: { maxIterations: 1_000 },
  initial: "settling",
  on: {
    looked: [
      {
        guard: { type: "isLate", params: ({ event }) => event },
        target: ".settling",
        actions: [
          { type: "rememberPause", params: ({ event }) => event },
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
    "*": { actions: "reportUnexpected" },
  },
  states: {
    settling: {
      description:
        "This manager was cut off within the last grace period (its link, the log or the process): declaring no node DOWN. D1",
      on: {
        looked: [
          {
            guard: { type: "isLate", params: ({ event }) => event },
            actions: [
              { type: "rememberPause", params: ({ event }) => event },
              { type: "reportPause", params: ({ event }) => event },
            ],
          },
          {
            guard: { type: "isAway", params: ({ event }) => event },
            actions: { type: "rememberPause", params: ({ event }) => event },
          },
          { guard: { type: "isSettling", params: ({ event }) => event } },
          { target: "watching", actions: ["rememberSettled", { type: "count", params: ({ event }) => event }] },
        ],
      },
    },
    watching: {
      description: "Declaring silent nodes DOWN, as long as few are missing at once.",
      tags: ["granting"],
      always: { guard: { type: "isMass", params: ({ context }) => context }, target: "holding" },
    },
    holding: {
      description: "Too many nodes are missing at once: waiting for them to return. D2",
      entry: [
        "rememberHold",
        { type: "reportHold", params: ({ context }) => ({ missing: context.missing, nodes: context.nodes }) },
      ],
      always: { guard: { type: "isNone", params: ({ context }) => context }, target: "watching" },
      after: { hold: "releasing" },
    },
    releasing: {
      description: "The hold is over: declaring every node DOWN that stayed silent through it, however many. D3, D4",
      tags: ["granting"],
      entry: { type: "reportRelease", params: ({ context }) => ({ missing: context.missing, nodes: context.nodes }) },
      after: { release: "watching" },
    },
  },
});
