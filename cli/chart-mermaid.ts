/**
 * A statechart as Mermaid state diagrams: states with their descriptions, and transitions with events, guards and delays. A state
 * that contains boxes which contain others has a picture of its own, so that each picture fits a page; and transitions from a
 * box into itself are listed rather than drawn, since their arrows would cross all that the box contains.
 */
import type { AnyStateMachine, StateNode } from "xstate";

type AnyStateNode = StateNode<never, never>;
interface Transition {
  readonly target: readonly { readonly path: readonly string[]; readonly type: string }[] | undefined;
  readonly guard?: unknown;
  readonly source: { readonly path: readonly string[] };
  readonly eventType: string;
  readonly delay?: number | string | undefined;
}

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
  readonly from: AnyStateNode;
  readonly to: readonly string[];
  readonly isLast: boolean;
  readonly label: string;
}

function* edgesOf(node: AnyStateNode): Iterable<Edge> {
  for (const transition of transitionsOf(node)) {
    const label = `${eventOf(transition)}${guardOf(transition.guard)}`;
    for (const { path, type } of transition.target ?? [])
      yield { from: node, to: path, isLast: type === "final", label };
  }
  for (const child of childrenOf(node)) yield* edgesOf(child);
}

function childrenOf({ states }: AnyStateNode): readonly AnyStateNode[] {
  return Object.values(states) as AnyStateNode[];
}

function isWithin(path: readonly string[], outer: readonly string[]): boolean {
  return outer.every((part, at) => part === path[at]);
}

/** From a box into itself. */
function isHandler({ from, to }: Edge): boolean {
  return childrenOf(from).length > 0 && isWithin(to, from.path);
}

/** It has a picture of its own. */
function isDeep(node: AnyStateNode): boolean {
  return childrenOf(node).some((child) => childrenOf(child).length > 0);
}

interface Arrow {
  /** The innermost state that contains both ends: Mermaid lays out an arrow inside the box that declares it. */
  readonly container: string;
  readonly from: readonly string[];
  readonly to: readonly string[];
  readonly label: string;
}

function containerOf(from: readonly string[], to: readonly string[]): string {
  const shared: string[] = [];
  for (const [at, part] of from.slice(0, -1).entries()) {
    if (to.slice(0, -1)[at] !== part) break;
    shared.push(part);
  }
  return idOf(shared);
}

/** The arrows in the picture of `node`, one for all transitions between two states. */
function arrowsOf(node: AnyStateNode, edges: readonly Edge[]): readonly Arrow[] {
  const depth = node.path.length;
  /** An end of a transition, or the closed box around it. */
  const shown = (path: readonly string[]): readonly string[] => {
    const child = isWithin(path, node.path) ? node.states[path[depth] ?? ""] : undefined;
    return child !== undefined && isDeep(child) ? child.path : path;
  };
  const ends = edges.flatMap(({ from, to, label }) => {
    const arrow = { from: shown(from.path), to: shown(to), label };
    const isInside = [arrow.from, arrow.to].some((path) => path.length > depth && isWithin(path, node.path));
    const isClosed = idOf(arrow.from) === idOf(arrow.to) && arrow.from.length < from.path.length;
    return isInside && !isClosed ? [arrow] : [];
  });
  return [...Map.groupBy(ends, ({ from, to }) => `${idOf(from)} ${idOf(to)}`).values()].map((parallel) => {
    const [{ from, to }] = parallel as [(typeof ends)[number]];
    // A guard has a line of its own, since wide labels push the boxes apart.
    const labels = new Set(parallel.map(({ label }) => plain(label).replace(" [", "<br/>[")));
    return { container: containerOf(from, to), from, to, label: [...labels].join("<br/>") };
  });
}

function* linesOf(node: AnyStateNode, arrows: readonly Arrow[], picture: AnyStateNode): Iterable<string> {
  const isPicture = node === picture;
  const id = idOf(node.path);
  const children = isPicture || !isDeep(node) ? childrenOf(node) : [];
  if (!isPicture) {
    // The title of an open box is not wrapped.
    const text = children.length === 0 ? node.description : node.description?.split(/(?<=\.) /)[0];
    const label = plain(text === undefined ? node.key : `${node.key} — ${text}`);
    yield `state "${label.replaceAll('"', "'")}" as ${id}${children.length === 0 ? "" : " {"}`;
  }
  const inner = isPicture ? "" : "  ";
  if (node.type === "compound" && children.length > 0) {
    const [first] = node.initial.target as unknown as readonly AnyStateNode[];
    if (first !== undefined) yield `${inner}[*] --> ${idOf(first.path)}`;
  }
  for (const child of children) for (const line of linesOf(child, arrows, picture)) yield `${inner}${line}`;
  for (const { container, from, to, label } of arrows)
    if (isPicture ? !isInBox(container, picture) : children.length > 0 && container === id)
      yield `${inner}${idOf(from)} --> ${idOf(to)} : ${label}`;
  if (!isPicture && children.length > 0) yield "}";
  if (node.type === "final") yield `${id} --> [*]`;
}

/** Whether the container of an arrow is a box in the picture, rather than the picture or something around it. */
function isInBox(container: string, picture: AnyStateNode): boolean {
  return childrenOf(picture).some((child) => !isDeep(child) && idOf(child.path) === container);
}

interface Picture {
  /** The state whose inside it shows; empty: the whole chart. */
  readonly of: string;
  readonly mermaid: string;
}

function* picturesBelow(node: AnyStateNode, edges: readonly Edge[]): Iterable<Picture> {
  const arrows = arrowsOf(node, edges);
  const ends = new Map(arrows.flatMap(({ from, to }) => [from, to]).map((path) => [idOf(path), path]));
  const outside = [...ends].filter(([, path]) => path.length <= node.path.length || !isWithin(path, node.path));
  const lines = [
    ...linesOf(node, arrows, node),
    ...outside.map(([id, path]) => `state "${plain(path.join("."))} (outside)" as ${id}`),
  ];
  yield { of: node.path.join("."), mermaid: ["stateDiagram-v2", ...lines.map((line) => `  ${line}`)].join("\n") };
  for (const child of childrenOf(node)) if (isDeep(child)) yield* picturesBelow(child, edges);
}

/** An event that ends the chart in the same way from so many states is listed rather than drawn from each of them. */
const listedMin = 4;

/** Transitions that are drawn, and those that are listed, grouped by their event and target. */
function sorted(machine: AnyStateMachine): { drawn: readonly Edge[]; listed: readonly (readonly Edge[])[] } {
  const edges = [...edgesOf(machine.root as unknown as AnyStateNode)];
  const groups = [...Map.groupBy(edges, ({ label, to }) => `${label} ${idOf(to)}`).values()];
  const ends = new Set(
    groups.filter(([some, ...more]) => some?.isLast === true && more.length + 1 >= listedMin).flat(),
  );
  const isListed = (edge: Edge): boolean => ends.has(edge) || isHandler(edge);
  return {
    drawn: edges.filter((edge) => !isListed(edge)),
    listed: groups.map((group) => group.filter(isListed)).filter(({ length }) => length > 0),
  };
}

export function picturesOf(machine: AnyStateMachine): readonly Picture[] {
  return [...picturesBelow(machine.root as unknown as AnyStateNode, sorted(machine).drawn)];
}

/** A transition that is not drawn. */
interface Handler {
  /** The states in which it is taken, with those inside them; empty: all. */
  readonly within: readonly string[];
  /** With its guard. */
  readonly event: string;
  readonly to: string;
}

export function handlersOf(machine: AnyStateMachine): readonly Handler[] {
  return sorted(machine).listed.map((group) => {
    const [{ label, to }] = group as [Edge];
    const within = group.map(({ from }) => from.path.join("."));
    return { within: within.includes("") ? [] : within, event: label, to: to.join(".") };
  });
}
