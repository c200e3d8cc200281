/** The statecharts as data (`proto/feed/chart-definition.ts`), for the web interface and `muster inspect`. */
import { allCharts, type Chart } from "./charts.ts";
import { filled, type WaitMeta } from "../machines/wait-meta.ts";
import type { ChartDefinition, StateDefinition, TransitionDefinition } from "../proto/feed/chart-definition.ts";
import { childrenOf, pathOf, rootOf, transitionsOf, type AnyNode } from "../runtime/observation/transition-ids.ts";

function definitionsOf(node: AnyNode): readonly TransitionDefinition[] {
  return transitionsOf(node).map(({ transition, ...named }) => ({
    ...named,
    targets: (transition.target ?? []).map((target) => pathOf(target as unknown as AnyNode)),
  }));
}

function stateOf(node: AnyNode): StateDefinition {
  const meta = node.meta as WaitMeta | undefined;
  return {
    path: pathOf(node),
    key: node.key,
    type: node.type,
    description: node.description ?? "",
    waitingFor: meta === undefined ? "" : filled(meta.waitingFor),
    wokenBy: Object.fromEntries(Object.entries(meta?.wokenBy ?? {}).map(([key, text]) => [key, filled(text)])),
    initial:
      node.type === "compound" ? (node.initial.target as readonly AnyNode[]).slice(0, 1).map(pathOf).join("") : "",
    transitions: definitionsOf(node),
    states: childrenOf(node).map(stateOf),
  };
}

/** Sentences with a label in the header comment, such as `S1: nothing is served before …`. */
export function invariantsIn(header: string): readonly string[] {
  return Array.from(header.matchAll(/^[A-Z]+\d+: .*(?:\n {2,}\S.*)*/gm), ([found]) => found.replaceAll(/\s+/g, " "));
}

function definitionOf({ header, summary, machine }: Chart): ChartDefinition {
  return {
    id: machine.id,
    summary,
    invariants: invariantsIn(header),
    root: stateOf(rootOf(machine)),
  };
}

export async function chartDefinitions(): Promise<readonly ChartDefinition[]> {
  return (await allCharts()).map(definitionOf);
}

/** The chart with this id of its machine; null if there is none. */
export async function chartDefinitionOf(id: string): Promise<ChartDefinition | null> {
  const chart = (await allCharts(id)).find(({ machine }) => machine.id === id);
  return chart === undefined ? null : definitionOf(chart);
}
