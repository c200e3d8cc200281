/**
 * The dispatcher's judgement: whether a node that this manager misses may be declared DOWN now.
 *
 *   settling ──▶ watching ──▶ holding ──▶ releasing ──▶ watching        (back to settling from anywhere)
 *
 * D1: nothing is granted unless this process's own link and log were healthy for a whole grace period, and the process
 *     itself was not stopped meanwhile: then it is this process that was away, not the nodes.
 * D2: when more than a share of the nodes is missing at once, nothing is granted for `massDownHoldMs`: a fault that takes
 *     many nodes is more often one of ours (a switch, a wrong clock, an overload) than many of theirs, and moving
 *     all their tasks makes such a fault worse.
 * D3: the hold ends. Whoever argues for holding until an operator comes must also let a rack that burnt down at night stay
 *     without its tasks until morning; after the hold, with the own view proven healthy all along, the nodes are gone.
 */
import { assign, setup } from "xstate";
import { effect } from "../effect.ts";

export const massDown = {
  /** Of the nodes that this manager served in the window. SwarmKit knows no such limit; two of five may go unnoticed. */
  shareMax: 0.4,
  /** Fewer never hold: in a cluster of three, one or two dead nodes are the ordinary case. */
  nodesMin: 4,
  /** Nodes declared DOWN this recently, in milliseconds, still count as missing: twice the spread of heartbeats of 5 s. */
  windowMs: 10_000,
  /** Two grace periods of 15 s: an agent that lost its way has tried eight times by then (back-off is at most 8 s). */
  holdMs: 30_000,
  /** Milliseconds between two looks while verdicts are held. */
  recheckMs: 1_000,
  /**
   * A look that comes this many milliseconds late shows that the process was stopped. Agents give each heartbeat 5 s before
   * they rebuild their session: a shorter stop loses none, and all that lay in the sockets is read within the verdict delay.
   */
  pauseMsMax: 4_000,
} as const;

export type DispatcherEvent = {
  /** Looked at regularly, and before each verdict. */
  readonly type: "looked";
  readonly at: number;
  /** Own bus link and log are healthy now. */
  readonly settled: boolean;
  /** Milliseconds by which this look came late. */
  readonly lateMs: number;
  /** Nodes that this manager misses, or declared DOWN within the window. */
  readonly missing: number;
  /** Nodes of this manager, with those declared DOWN within the window. */
  readonly nodes: number;
};

export interface DispatcherContext {
  /** After a pause of the process, or while its link or log are away: no verdict before this time. */
  readonly settlingUntil: number;
  /** Whether it was ever settled. A manager that just started has nothing to distrust: it took over no heartbeats. */
  readonly wasSettled: boolean;
  readonly settleMs: number;
  readonly missing: number;
  readonly nodes: number;
}

export const dispatcherMachine = setup({
  types: {
    context: {} as DispatcherContext,
    events: {} as DispatcherEvent,
    input: {} as { readonly settleMs: number },
    tags: {} as "granting",
  },
  actions: {
    reportPause: effect<{ lateMs: number }>("reportPause"),
    reportHold: effect<{ missing: number; nodes: number }>("reportHold"),
    reportRelease: effect<{ missing: number; nodes: number }>("reportRelease"),
    reportUnexpected: effect("reportUnexpected"),
    count: assign((_, { missing, nodes }: { missing: number; nodes: number }) => ({ missing, nodes })),
    rememberPause: assign(({ context }, { at }: { at: number }) => ({
      settlingUntil: context.wasSettled ? at + context.settleMs : 0,
    })),
    rememberSettled: assign({ wasSettled: true }),
  },
  guards: {
    isLate: (_, { lateMs }: { lateMs: number }) => lateMs > massDown.pauseMsMax,
    isAway: (_, { settled }: { settled: boolean }) => !settled,
    isSettling: ({ context }, { at }: { at: number }) => at < context.settlingUntil,
    isMass: (_, { missing, nodes }: { missing: number; nodes: number }) =>
      missing >= massDown.nodesMin && missing > massDown.shareMax * nodes,
    isFew: (_, { missing, nodes }: { missing: number; nodes: number }) =>
      missing < massDown.nodesMin || missing <= massDown.shareMax * nodes,
  },
  delays: { hold: massDown.holdMs, window: massDown.windowMs },
}).createMachine({
  id: "dispatcher",
  context: ({ input }) => ({ settlingUntil: 0, wasSettled: false, settleMs: input.settleMs, missing: 0, nodes: 0 }),
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
      description: "The own link, the log or the process was away less than a grace period ago: no verdict. D1",
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
      description: "Grants, as long as few are missing at once.",
      tags: ["granting"],
      always: { guard: { type: "isMass", params: ({ context }) => context }, target: "holding" },
    },
    holding: {
      description: "Too many are missing at once: waits whether they come back. D2, D3",
      entry: { type: "reportHold", params: ({ context }) => ({ missing: context.missing, nodes: context.nodes }) },
      always: { guard: { type: "isFew", params: ({ context }) => context }, target: "watching" },
      after: { hold: "releasing" },
    },
    releasing: {
      description:
        "The hold is over and they are still missing: grants whatever the share, until all of them had their verdict. D3",
      tags: ["granting"],
      entry: { type: "reportRelease", params: ({ context }) => ({ missing: context.missing, nodes: context.nodes }) },
      after: { window: "watching" },
    },
  },
});
