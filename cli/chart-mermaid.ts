/** A statechart as a Mermaid state diagram: states with their descriptions, events, guards, delays and entry actions. */
import type { AnyStateMachine, StateNode } from "xstate";

type AnyStateNode = StateNode<never, never>;
interface Transition {
  readonly target: readonly { readonly path: readonly string[] }[] | undefined;
  readonly guard?: unknown;
  readonly source: { readonly path: readonly string[] };
  readonly eventType: string;
  readonly delay?: number | string | undefined;
}

/** No state key starts with this. */
const anywhere = "_anywhere_";

function idOf(path: readonly string[]): string {
  return path.map((part) => part.replaceAll(/[^A-Za-z0-9]/g, "_")).join("__");
}

/** Escapes what is syntax in Mermaid: line ends, colons and semicolons. */
function plain(text: string): string {
  return text.replaceAll(/\s+/g, " ").replaceAll(/[:;]/g, (mark) => (mark === ":" ? "#58;" : "#59;"));
}

function guardOf(guard: unknown): string {
  const name = typeof guard === "string" ? guard : (guard as { type?: string } | null | undefined)?.type;
  return name === undefined ? "" : ` [${name}]`;
}

function eventOf({ eventType, delay }: Transition): string {
  if (delay !== undefined) return `after ${typeof delay === "number" ? `${delay} ms` : delay}`;
  const internal = /^xstate\.(done|error)\.(?:actor|state)\.(.*)$/.exec(eventType);
  return internal === null ? eventType : `${internal[1]} ${internal[2]}`;
}

function transitionsOf(node: AnyStateNode): readonly Transition[] {
  const delayed = new Map((node.after as unknown as Transition[]).map((each) => [each.eventType, each.delay]));
  const onEvents = [...(node.transitions as unknown as Map<string, Transition[]>).values()].flat();
  const always = (node.always ?? []) as unknown as Transition[];
  return [
    ...onEvents.map((each) => ({
      target: each.target,
      guard: each.guard,
      source: each.source,
      eventType: each.eventType,
      delay: delayed.get(each.eventType),
    })),
    ...always.map((each) => ({ target: each.target, guard: each.guard, source: each.source, eventType: "always" })),
  ];
}

interface Edge {
  /** The innermost state that contains both ends: Mermaid lays out an arrow inside the box that declares it. */
  readonly container: string;
  readonly line: string;
}

function containerOf(from: readonly string[], to: readonly string[]): string {
  const shared: string[] = [];
  for (const [at, part] of from.slice(0, -1).entries()) {
    if (to.slice(0, -1)[at] !== part) break;
    shared.push(part);
  }
  return idOf(shared);
}

function* edgesOf(node: AnyStateNode): Iterable<Edge> {
  for (const transition of transitionsOf(node)) {
    for (const target of transition.target ?? []) {
      // The root has no box: its transitions start at a separate "from any state" mark.
      const from = node.parent === undefined ? anywhere : idOf(node.path);
      const label = plain(`${eventOf(transition)}${guardOf(transition.guard)}`);
      const container = node.parent === undefined ? "" : containerOf(node.path, target.path);
      yield { container, line: `${from} --> ${idOf(target.path)} : ${label}` };
    }
  }
  for (const child of Object.values(node.states) as AnyStateNode[]) yield* edgesOf(child);
}

function* linesOf(node: AnyStateNode, edges: readonly Edge[], indent: string): Iterable<string> {
  const id = idOf(node.path);
  const children = Object.values(node.states) as AnyStateNode[];
  const isRoot = node.parent === undefined;
  if (!isRoot) {
    const label = plain(node.description === undefined ? node.key : `${node.key} — ${node.description}`);
    yield `${indent}state "${label.replaceAll('"', "'")}" as ${id}${children.length === 0 ? "" : " {"}`;
  }
  const inner = isRoot ? indent : `${indent}  `;
  if (node.type === "compound") {
    const [first] = node.initial.target as unknown as readonly AnyStateNode[];
    if (first !== undefined) yield `${inner}[*] --> ${idOf(first.path)}`;
  }
  for (const [at, child] of children.entries()) {
    // Separates the regions of a parallel state.
    if (node.type === "parallel" && at > 0) yield `${inner}--`;
    yield* linesOf(child, edges, inner);
  }
  for (const { container, line } of edges) if (children.length > 0 && container === id) yield `${inner}${line}`;
  if (!isRoot && children.length > 0) yield `${indent}}`;
  if (node.type === "final") yield `${indent}${id} --> [*]`;
}

export function toMermaid(machine: AnyStateMachine): string {
  const root = machine.root as unknown as AnyStateNode;
  const edges = [...edgesOf(root)];
  const isAnywhere = edges.some(({ line }) => line.startsWith(`${anywhere} `));
  return [
    "stateDiagram-v2",
    ...(isAnywhere ? [`  state "from any state" as ${anywhere}`] : []),
    ...linesOf(root, edges, "  "),
  ].join("\n");
}
