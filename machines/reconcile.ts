/**
 * The reconcile loop, which the charts of orchestration share: changes are gathered until the current commits are applied, then
 * a round compares the stored state with what is wanted, and the loop rests until something changes or a deadline has passed.
 *
 *   resting … ──work.arrived──▶ gathering ──round.due──▶ deciding ──round.done──▶ judged ──▶ resting … | gathering
 *       └─────────── nextRound ─────────────────────────▶   └─decision.made─▶ writing ──▲
 *
 * A chart has resting states of its own, as many as an operator should tell apart, and chooses one in `judged`. In a chart
 * without `writing`, rounds write in the background and the host excludes what is being written from the next round.
 *
 * O1: with `writing`, one decision is in flight at a time: the next sees the result of the last in the store.
 * O2: changes during a round or its write are not lost: another round follows.
 */
import { assign } from "xstate";
import { chart, effect } from "./chart.ts";

/** The result of a round. A chart's own verdict has the fields that it needs. */
export interface Verdict {
  /** The resting state that matches, if the chart has several for an operator to tell apart. */
  readonly phase?: string;
  /** Milliseconds until the next round if nothing changes; negative: none is needed. */
  readonly nextMs?: number;
  /** The round stopped at its limit: another follows at once. */
  readonly isPartial?: boolean;
}

export type ReconcileEvent<Of extends Verdict = Verdict> =
  /** Something that the loop depends on has changed. */
  | { readonly type: "work.arrived" }
  /** The current commits are applied. */
  | { readonly type: "round.due" }
  /** Nothing to write, or nothing to wait for. */
  | { readonly type: "round.done"; readonly verdict: Of }
  /** A decision is being written. */
  | { readonly type: "decision.made"; readonly verdict: Of }
  /** It is in the store, or could not be written and must be made again. */
  | { readonly type: "decision.written" };

export interface ReconcileContext<Of extends Verdict = Verdict> {
  /** The result of the last round. */
  readonly verdict: Of;
  /** Something changed during this round or its write (O2). */
  readonly isTouched: boolean;
}

/** A round a day costs nothing, and keeps timers below their maximum of 24 days. */
const nextRoundMsMax = 24 * 3_600_000;

/** `Verdict.nextMs` for a time to check again; null: none. */
export function msUntil(timeMs: number | null, nowMs: number): number {
  return timeMs === null ? -1 : Math.max(0, Math.ceil(timeMs - nowMs));
}

/** A chart with a reconcile loop; `extend` adds its own effects, actions, guards and delays. */
export function reconciling<
  Context extends ReconcileContext,
  Own extends { readonly type: string } = never,
  Input = void,
>() {
  return chart({
    types: { context: {} as Context, events: {} as Own | ReconcileEvent<Context["verdict"]>, input: {} as Input },
    effects: {
      /** Answered by `round.due` after the current commits are applied. */
      gather: effect(),
      /** One round; answered by `round.done`, or by `decision.made` and later `decision.written`. */
      decide: effect(),
    },
    actions: {
      rememberVerdict: assign((_, { verdict }: { verdict: Context["verdict"] }) => ({ verdict }) as Partial<Context>),
      rememberTouch: assign(() => ({ isTouched: true }) as Partial<Context>),
      forgetTouch: assign(() => ({ isTouched: false }) as Partial<Context>),
    },
    guards: {
      hasMore: ({ context }) => context.isTouched || context.verdict.isPartial === true,
      hasNext: ({ context }) => (context.verdict.nextMs ?? -1) >= 0,
      isPhase: ({ context }, { phase }: { phase: string }) => context.verdict.phase === phase,
    },
    delays: {
      nextRound({ context }) {
        const { nextMs = -1 } = context.verdict;
        return nextMs < 0 ? nextRoundMsMax : Math.min(nextMs, nextRoundMsMax);
      },
    },
    // Every chart with a loop has these fields; the type of its context is open here.
    shows: { context: ["verdict", "isTouched"], events: ["verdict"] } as object,
  }).extend({});
}

interface Judging<Of> {
  readonly event: { readonly verdict: Of };
}

const remembersVerdict = {
  type: "rememberVerdict",
  params: <Of>({ event }: Judging<Of>): { readonly verdict: Of } => event,
} as const;

const gatheringMeta = { waitingFor: "the rest of the current batch of commits", wokenBy: { "round.due": "its end" } };
const decidingMeta = { waitingFor: "the end of the round", wokenBy: { "round.done": "its last decision" } };
const writingMeta = {
  waitingFor: "the log, to accept the decision",
  wokenBy: { "decision.written": "the ledger's answer" },
};

/** The states of the loop. `own`: what the chart adds to one, such as its description. */

/** A state between two rounds; `after: { nextRound: "deciding" }` in `own` gives it a deadline. */
export function resting<const Own extends object>(own: Own) {
  return { ...own, on: { "work.arrived": "gathering" } } as const;
}

/** `on`: a condition for the round. */
export function gathering<const Own extends object, const On extends object = object>(own: Own, on: On = {} as On) {
  return {
    meta: gatheringMeta,
    ...own,
    entry: "gather",
    ignore: ["work.arrived"],
    on: { "round.due": "deciding", ...on },
  } as const;
}

/** A round of a chart without `writing`. */
export function deciding<const Own extends object>(own: Own) {
  return {
    meta: decidingMeta,
    ...own,
    entry: ["forgetTouch", "decide"],
    on: {
      "work.arrived": { actions: "rememberTouch" },
      "round.done": { target: "judged", actions: remembersVerdict },
    },
  } as const;
}

/** A round of a chart with `writing`. */
export function decidingToWrite<const Own extends object>(own: Own) {
  const state = deciding(own);
  return {
    ...state,
    on: { ...state.on, "decision.made": { target: "writing", actions: remembersVerdict } },
  } as const;
}

/** O1. `on`: further events, such as other ends of the write. */
export function writing<const Own extends object, const On extends object = object>(own: Own, on: On = {} as On) {
  return {
    meta: writingMeta,
    ...own,
    on: { "work.arrived": { actions: "rememberTouch" }, "decision.written": "judged", ...on },
  } as const;
}

/** O2. `rests`: transitions to the resting states, the last of which needs no guard. */
export function judged<const Rests extends readonly object[]>(rests: Rests) {
  return {
    description: "Choosing the state that matches the result, or another round if something has changed meanwhile.",
    always: [{ guard: "hasMore", target: "gathering" }, ...rests],
  } as const;
}

/** A transition of `judged` to the resting state with the name of the verdict's phase. */
export function rest<const Phase extends string>(phase: Phase) {
  return { guard: { type: "isPhase", params: { phase } }, target: phase } as const;
}
