/** Shared by the models of charts with the reconcile loop (machines/reconcile.ts): its events, and the checks of O1 and O2. */
import type { Verdict } from "../../machines/reconcile.ts";
import { isAsked, isIn, type Claim } from "./chart-model.ts";
import type { Step } from "./paths.ts";

/** The loop's events, with each of these verdicts. `writes`: the chart has the state `writing`. */
export function loopEvents<Of extends Verdict>(verdicts: readonly Of[], { writes }: { readonly writes: boolean }) {
  const ends = verdicts.flatMap((verdict) => [
    { type: "round.done", verdict } as const,
    ...(writes ? [{ type: "decision.made", verdict } as const] : []),
  ]);
  const written = writes ? [{ type: "decision.written" } as const] : [];
  return [{ type: "work.arrived" } as const, { type: "round.due" } as const, ...ends, ...written];
}

/** Whether something has changed during the current round or its write. */
export interface LoopMemory {
  readonly isTouched: boolean;
}

export const loopMemory: LoopMemory = { isTouched: false };

/** `region`: path of the loop's region with a dot, if the chart is parallel. `ends`: states without a further round. */
export function checkLoop<Event extends { readonly type: string }>(
  { isTouched }: LoopMemory,
  step: Step<LoopMemory, Event>,
  claim: Claim,
  { region = "", ends = [] }: { readonly region?: string; readonly ends?: readonly string[] } = {},
): LoopMemory {
  const { asked, event, from } = step;
  const wasIn = (name: string): boolean => isIn(from, `${region}${name}`);
  const isNow = (name: string): boolean => isIn(step, `${region}${name}`);
  const wasBusy = wasIn("deciding") || wasIn("writing");
  const isBusy = isNow("deciding") || isNow("writing");
  claim("O1", !isAsked(asked, "decide") || !wasIn("writing"), "two decisions are in flight");
  const touched = wasBusy && (isTouched || event?.type === "work.arrived");
  const isOver = wasBusy && !isBusy && !ends.some(isNow);
  // A refused write is decided again from the stored state, which has the change.
  claim("O2", !(isOver && touched) || isNow("gathering") || isNow("held"), "a change during a round is lost");
  return { isTouched: isBusy && wasBusy && touched };
}
