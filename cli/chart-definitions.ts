/** The statecharts as data (`proto/feed/chart-definition.ts`), for the web interface and `muster inspect`. */
import { readFileSync } from "node:fs";
import type { AnyStateMachine, StateNode } from "xstate";
import { allCharts } from "./charts.ts";
import { filled, type WaitMeta } from "../machines/wait-meta.ts";
import type { ChartDefinition, StateDefinition, TransitionDefinition } from "../proto/feed/chart-definition.ts";

type AnyNode = StateNode<never, never>;
type Named = string | { readonly type: string } | ((...args: never) => unknown);

const nameOf = (named: Named): string =>
  typeof named === "string" ? named : "type" in named ? named.type : named.name;

function transitionsOf(node: AnyNode): readonly TransitionDefinition[] {
  const path = node.path.join(".");
  const delays = new Map(node.after.map(({ eventType, delay }) => [eventType as string, String(delay)]));
  const listed = [...node.transitions].flatMap(([event, list]) => list.map((each, index) => ({ event, each, index })));
  const always = (node.always ?? []).map((each, index) => ({ event: "", each, index }));
  return [...always, ...listed]
    .filter(({ event }) => event !== "*")
    .map(({ event, each, index }) => ({
      id: `${path}#${delays.has(event) ? `after ${delays.get(event)}` : event === "" ? "always" : event}#${index}`,
      event: delays.has(event) ? "" : event,
      delay: delays.get(event) ?? "",
      guard: each.guard === undefined ? "" : nameOf(each.guard as Named),
      targets: (each.target ?? []).map((target) => (target as AnyNode).path.join(".")),
      actions: each.actions.map((action) => nameOf(action as Named)),
    }));
}

function stateOf(node: AnyNode): StateDefinition {
  const meta = node.meta as WaitMeta | undefined;
  const path = node.path.join(".");
  const states = Object.values<AnyNode>(node.states);
  return {
    path,
    key: node.key,
    type: node.type,
    description: node.description ?? "",
    waitingFor: meta === undefined ? "" : filled(meta.waitingFor),
    wokenBy: Object.fromEntries(Object.entries(meta?.wokenBy ?? {}).map(([key, text]) => [key, filled(text)])),
    initial: node.type === "compound" ? ((node.initial.target as readonly AnyNode[])[0]?.path.join(".") ?? "") : "",
    transitions: transitionsOf(node),
    states: states.map(stateOf),
  };
}

/** Sentences with a label in the header comment, such as `S1: nothing is served before …`. */
export function invariantsIn(source: string): readonly string[] {
  const header = /^\/\*\*([\s\S]*?)\*\//.exec(source)?.[1] ?? "";
  const text = header.replaceAll(/^\s*\* ?/gm, "");
  return Array.from(text.matchAll(/^[A-Z]+\d+: .*(?:\n {2,}\S.*)*/gm), ([found]) => found.replaceAll(/\s+/g, " "));
}

export async function chartDefinitions(): Promise<readonly ChartDefinition[]> {
  return (await allCharts()).map(
    ({ file, summary, machine }: { file: string; summary: string; machine: AnyStateMachine }) => ({
      id: machine.id,
      summary,
      invariants: invariantsIn(readFileSync(new URL(`../machines/${file}`, import.meta.url), "utf8")),
      root: stateOf(machine.root as unknown as AnyNode),
    }),
  );
}
