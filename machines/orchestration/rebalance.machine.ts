/**
 * Rebalancing, on the leader: where enabled, moves tasks to better nodes after a node has joined or returned. The chart decides
 * when to check, `machines/orchestration/rebalancing/` whether to move, and `machines/scheduling/moves.ts` which tasks.
 *
 *   off ──▶ gathering ──pause──▶ deciding ──▶ judged ──▶ off | watching | settling | paused | watchingMoves ──▶ gathering …
 *                                   └──▶ writing ──▲
 *
 * B1: checks are separated by a pause that grows with their cost: a busy cluster is not checked after each report.
 * B2: at most one round of moves is in progress; no other starts before its end, or during an incident.
 * B3: there is no state outside the store, except the last incident, for which a new leader takes the last change of any node.
 */
import { decidingToWrite, judged, reconciling, rest, resting, writing, type ReconcileContext } from "../reconcile.ts";

export type RebalancePhase = "off" | "paused" | "settling" | "watching" | "watchingMoves";

export interface RebalanceVerdict {
  readonly phase: RebalancePhase;
  readonly nextMs: number;
  /** Pause before the next check, in milliseconds (B1). */
  readonly pauseMs: number;
  /** Moves were found, and are followed by another check. */
  readonly isPartial: boolean;
}

/** Minimum delay before a check, in milliseconds: collects commits with the same cause. */
export const pauseMsMin = 1_000;
/** A check is followed by a pause this many times as long: it takes at most a twentieth of the process's time. */
const pausePerCheck = 20;

/** B1. `tookMs`: duration of the check. */
export function pauseAfter(tookMs: number): number {
  return Math.max(pauseMsMin, pausePerCheck * tookMs);
}

/** The word that an operator is shown for a state of the chart: a passing state counts as the watching one. */
export function phaseOf(state: unknown): string {
  if (state === "writing") return "moving";
  return state === "gathering" || state === "deciding" ? "watching" : String(state);
}

/** Woken by changes of a node, a rebalanced service, one of its tasks, or a manager's report. */
export const rebalanceMachine = reconciling<ReconcileContext<RebalanceVerdict>, never, { readonly pauseMs: number }>()
  .extend({
    delays: { pause: ({ context }) => context.verdict.pauseMs },
  })
  .createMachine({
    id: "rebalance",
    description: "Moves tasks to better nodes where rebalancing is on.",
    context: ({ input: { pauseMs } }) => ({
      verdict: { phase: "off", nextMs: -1, pauseMs, isPartial: false },
      isTouched: false,
    }),
    initial: "off",
    states: {
      off: resting({
        description: "Rebalancing is on for no service.",
        meta: {
          waitingFor: "nothing: no service is rebalanced",
          wokenBy: { "work.arrived": "a service with rebalancing on" },
        },
      }),
      watching: resting({
        description: "Nothing can be placed better, or what could must wait.",
        meta: {
          waitingFor: "nothing: its tasks cannot be placed better",
          wokenBy: {
            "work.arrived": "a change of a node, of a rebalanced service or of its tasks",
            nextRound: "the time of the next check",
          },
        },
        after: { nextRound: "gathering" },
      }),
      settling: resting({
        description: "A node joined, returned or changed recently; others may follow.",
        meta: {
          waitingFor: "the nodes to settle",
          wokenBy: {
            "work.arrived": "a change of a node, of a rebalanced service or of its tasks",
            nextRound: "the end of the settling time",
          },
        },
        after: { nextRound: "gathering" },
      }),
      paused: resting({
        description: "An incident is going on or ended recently: nothing is moved. B2",
        meta: {
          waitingFor: "the end of the incident",
          wokenBy: {
            "work.arrived": "a change of a node, of a rebalanced service or of its tasks",
            nextRound: "the end of the quiet time",
          },
        },
        after: { nextRound: "gathering" },
      }),
      watchingMoves: resting({
        description: "Tasks were moved. B2",
        meta: {
          waitingFor: "the moved tasks to start and to prove stable",
          wokenBy: {
            "work.arrived": "a change of a node, of a rebalanced service or of its tasks",
            nextRound: "the end of their monitor period",
          },
        },
        after: { nextRound: "gathering" },
      }),
      gathering: {
        description: "Something changed or is due; gathering more. B1",
        meta: { waitingFor: "the end of the pause between checks", wokenBy: { pause: "its end" } },
        after: { pause: "deciding" },
        ignore: ["work.arrived"],
      },
      deciding: decidingToWrite({
        description: "Checking whether tasks may move, and which would be better elsewhere.",
      }),
      writing: writing({ description: "Writing a round of moves to the log. B2" }),
      judged: judged([rest("off"), rest("paused"), rest("settling"), rest("watchingMoves"), { target: "watching" }]),
    },
  });
