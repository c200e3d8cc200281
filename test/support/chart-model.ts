/**
 * Models of charts: paths through a chart are generated from its inputs and events, and on every step a model checks each
 * invariant that the chart's header labels. A state or transition that no path reaches, or an invariant that no step checks, fails
 * the test unless the model lists it with its reason.
 */
import { readFileSync } from "node:fs";
import type { ExecutionContext } from "ava";
import type { AnyStateMachine } from "xstate";
import { invariantsIn } from "../../cli/chart-definitions.ts";
import { headerOf } from "../../cli/chart-files.ts";
import { allCharts } from "../../cli/charts.ts";
import { coverageLine } from "./chart-coverage.ts";
import { allStates, allTransitions, explore, stuck, type Asked, type Exploration, type Step } from "./paths.ts";

/** Fails the test if the invariant with this label does not hold, and counts it as checked. */
export type Claim = (label: string, holds: boolean, text: string) => void;

export interface ChartModel<Memory, Event extends { readonly type: string }> extends Omit<
  Exploration<Memory, Event>,
  "remember"
> {
  readonly machine: AnyStateMachine;
  /** The memory after a step, with its checks. Keep the memory small: paths to one state with one memory are merged. */
  readonly check: (memory: Memory, step: Step<Memory, Event>, claim: Claim) => Memory;
  /** Reasons by path of a state, or id of a transition, that no path reaches. */
  readonly unreached?: Readonly<Record<string, string>>;
  /** Where an invariant is checked, by label, if a step of this chart alone cannot show it. */
  readonly elsewhere?: Readonly<Record<string, string>>;
  /** The chart has an end, which is reachable from everywhere. */
  readonly ends?: boolean;
}

export const isAsked = (asked: readonly Asked[], type: string): boolean => asked.some((each) => each.type === type);

/** Params of each effect of that type. */
export function paramsOf<Params>(asked: readonly Asked[], type: string): readonly Params[] {
  return asked.filter((each) => each.type === type).map(({ params }) => params as Params);
}

/** Whether the event is the end of that delay of the chart. */
export const isDue = (event: { readonly type: string } | null, delay: string): boolean =>
  event?.type.startsWith(`xstate.after.${delay}.`) ?? false;

/** Whether any of the active states has this path. */
export const isIn = (step: { readonly states: readonly string[] } | null, path: string): boolean =>
  step?.states.includes(path) ?? false;

const sourceOf = (file: string): string => readFileSync(new URL(`../../machines/${file}`, import.meta.url), "utf8");

/** Labels of the invariants in the header of the chart's file, such as `FL1`, and of the reconcile loop, if it has one. */
async function labelsOf(machine: AnyStateMachine): Promise<readonly string[]> {
  const chart = (await allCharts(machine.id)).find((each) => each.machine.id === machine.id);
  if (chart === undefined) throw new Error(`no file in machines/ has the chart ${machine.id}`);
  const source = sourceOf(chart.file);
  const sources = source.includes('/reconcile.ts"') ? [source, sourceOf("reconcile.ts")] : [source];
  return sources
    .flatMap((source) => invariantsIn(headerOf(source)))
    .map((sentence) => sentence.slice(0, sentence.indexOf(":")));
}

/** Walks the chart and checks the model. */
export async function walkChart<Memory, Event extends { readonly type: string }>(
  t: ExecutionContext,
  model: ChartModel<Memory, Event>,
): Promise<void> {
  const { machine, check, unreached = {}, elsewhere = {} } = model;
  const checked = new Set<string>();
  const claim: Claim = (label, holds, text) => {
    checked.add(label);
    if (!holds) throw new Error(`${label}: ${text}`);
  };
  const explored = explore(machine, { ...model, remember: (memory, step) => check(memory, step, claim) });
  const states = allStates(machine);
  const transitions = [...allTransitions(machine).values()];
  const missed = [
    ...states.filter((state) => !explored.states.has(state)),
    ...transitions.filter((id) => !explored.transitions.has(id)),
  ];
  t.deepEqual(missed.toSorted(), Object.keys(unreached).toSorted(), "each state and transition is reached, or listed");
  const labels = await labelsOf(machine);
  const unchecked = labels.filter((label) => !checked.has(label));
  t.deepEqual(unchecked.toSorted(), Object.keys(elsewhere).toSorted(), "each invariant is checked, or says where");
  t.deepEqual(
    [...checked].filter((label) => !labels.includes(label)),
    [],
    "the chart's header has each label",
  );
  if (model.ends === true) {
    const lost = stuck(explored.places, ({ snapshot }) => snapshot.status === "done");
    t.deepEqual(lost[0]?.events, undefined, "its end is reachable from everywhere");
  }
  const missing = new Set(missed);
  const share = (all: readonly string[]) => ({
    reached: all.filter((each) => !missing.has(each)).length,
    all: all.length,
  });
  t.log(coverageLine(machine.id, { states: share(states), transitions: share(transitions) }));
}
