/**
 * Rebalancing, on the leader: where enabled, moves tasks to better nodes after a node has joined or returned. The chart decides
 * when to check, `machines/orchestration/rebalancing/` whether to move, and `machines/scheduling/moves.ts` which tasks.
 *
 *   off ──▶ gathering ──▶ looking ──▶ watching | settling | paused | watchingMoves ──touched, nextLook──▶ gathering …
 *                            └──▶ moving ──▶ gathering
 *
 * B1: checks are separated by a pause that grows with their cost: a busy cluster is not checked after each report.
 * B2: at most one round of moves is in progress; no other starts before its end, or during an incident.
 * B3: there is no state outside the store, except the last incident, for which a new leader takes the last change of any node.
 */
import { assign, setup } from "xstate";
import { effect } from "../effect.ts";

export type RebalanceEvent =
  /** A node, a rebalanced service, one of its tasks, or a manager's report has changed. */
  | { readonly type: "world.touched" }
  /** `nextMs`: milliseconds until the next check. */
  | { readonly type: "look.off"; readonly pauseMs: number }
  | { readonly type: "look.incident"; readonly nextMs: number; readonly pauseMs: number }
  | { readonly type: "look.unsettled"; readonly nextMs: number; readonly pauseMs: number }
  | { readonly type: "look.moving"; readonly nextMs: number; readonly pauseMs: number }
  | { readonly type: "look.balanced"; readonly nextMs: number; readonly pauseMs: number }
  | { readonly type: "look.unbalanced"; readonly pauseMs: number }
  /** The moves are in the store, or were refused. */
  | { readonly type: "moves.written" };

export interface RebalanceContext {
  readonly nextMs: number;
  /** Pause before the next check, in milliseconds (B1). */
  readonly pauseMs: number;
}

interface Look {
  readonly nextMs: number;
  readonly pauseMs: number;
}

export const rebalanceMachine = setup({
  types: {
    context: {} as RebalanceContext,
    events: {} as RebalanceEvent,
    input: {} as { readonly pauseMs: number },
  },
  actions: {
    /** Answered by one of `look.…`. */
    look: effect("look"),
    /** Writes the moves that the check has found; answered by `moves.written`. */
    move: effect("move"),
    reportUnexpected: effect("reportUnexpected"),
    rememberLook: assign((_, { nextMs, pauseMs }: Look) => ({ nextMs, pauseMs })),
    rememberPause: assign((_, { pauseMs }: { pauseMs: number }) => ({ nextMs: 0, pauseMs })),
  },
  delays: {
    pause: ({ context }) => context.pauseMs,
    nextLook: ({ context }) => context.nextMs,
  },
}).createMachine({
  id: "rebalance",
  description: "Moves tasks to better nodes where rebalancing is on.",
  context: ({ input }) => ({ nextMs: 0, pauseMs: input.pauseMs }),
  initial: "off",
  options: { maxIterations: 1_000 },
  on: { "*": { actions: "reportUnexpected" } },
  states: {
    off: {
      description: "Rebalancing is on for no service.",
      on: { "world.touched": "gathering" },
    },
    watching: {
      description: "Nothing can be placed better, or what could must wait; watching for changes.",
      after: { nextLook: "gathering" },
      on: { "world.touched": "gathering" },
    },
    settling: {
      description: "A node joined, returned or changed recently; waiting for others to follow.",
      after: { nextLook: "gathering" },
      on: { "world.touched": "gathering" },
    },
    paused: {
      description: "An incident is going on or ended recently: nothing is moved. B2",
      after: { nextLook: "gathering" },
      on: { "world.touched": "gathering" },
    },
    watchingMoves: {
      description: "Waiting for moved tasks to start and to prove stable. B2",
      after: { nextLook: "gathering" },
      on: { "world.touched": "gathering" },
    },
    gathering: {
      description: "Something changed or is due; gathering more. B1",
      after: { pause: "looking" },
      on: { "world.touched": {} },
    },
    looking: {
      description: "Checking whether tasks may move, and which would be better elsewhere.",
      entry: "look",
      on: {
        "look.off": { target: "off", actions: { type: "rememberPause", params: ({ event }) => event } },
        "look.incident": { target: "paused", actions: { type: "rememberLook", params: ({ event }) => event } },
        "look.unsettled": { target: "settling", actions: { type: "rememberLook", params: ({ event }) => event } },
        "look.moving": { target: "watchingMoves", actions: { type: "rememberLook", params: ({ event }) => event } },
        "look.balanced": { target: "watching", actions: { type: "rememberLook", params: ({ event }) => event } },
        "look.unbalanced": { target: "moving", actions: { type: "rememberPause", params: ({ event }) => event } },
        "world.touched": {},
      },
    },
    moving: {
      description: "Writing a round of moves to the log. B2",
      entry: "move",
      on: { "moves.written": "gathering", "world.touched": {} },
    },
  },
});
