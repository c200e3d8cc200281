/**
 * A statechart as Mermaid state diagrams: states with their descriptions, and transitions with events, guards and delays. A state
 * that contains boxes which contain others has a picture of its own, so that each picture fits a page; and transitions from a
 * box into itself are listed rather than drawn, since their arrows would cross all that the box contains.
 */
import type { AnyStateMachine } from "xstate";
import {
  allTransitionsOf,
  childrenOf,
  rootOf,
  type AnyNode,
  type IdentifiedTransition,
} from "../runtime/observation/transition-ids.ts";

function idOf(path: readonly string[]): string {
  return path.map((part) => part.replaceAll(/[^A-Za-z0-9]/g, "_")).join("__");
}

/** Escapes what is syntax in Mermaid: line ends, colons and semicolons. */
function plain(text: string): string {
  return text.replaceAll(/\s+/g, " ").replaceAll(/[:;]/g, (mark) => (mark === ":" ? "#58;" : "#59;"));
}

function labelOf({ event, delay, guard }: IdentifiedTransition): string {
  const internal = /^xstate\.(done|error)\.(?:actor|state)\.(.*)$/.exec(event);
  const cause =
    delay !== ""
      ? `after ${/^\d+$/.test(delay) ? `${delay} ms` : delay}`
      : event === ""
        ? "always"
        : internal === null
          ? event
          : `${internal[1]} ${internal[2]}`;
  return `${cause}${guard === "" ? "" : ` [${guard}]`}`;
}

interface Edge {
  readonly from: AnyNode;
  readonly to: readonly string[];
  readonly isLast: boolean;
  readonly label: string;
}

function* edgesOf(node: AnyNode): Iterable<Edge> {
  const isAlways = ({ event, delay }: IdentifiedTransition): boolean => event === "" && delay === "";
  const transitions = allTransitionsOf(node);
  // Those that are taken at once come last.
  for (const each of [...transitions.filter((one) => !isAlways(one)), ...transitions.filter(isAlways)])
    for (const { path, type } of each.transition.target ?? [])
      yield { from: node, to: path, isLast: type === "final", label: labelOf(each) };
  for (const child of childrenOf(node)) yield* edgesOf(child);
}

function isWithin(path: readonly string[], outer: readonly string[]): boolean {
  return outer.every((part, at) => part === path[at]);
}

/** From a box into itself. */
function isHandler({ from, to }: Edge): boolean {
  return childrenOf(from).length > 0 && isWithin(to, from.path);
}

/** It has a picture of its own. */
function isDeep(node: AnyNode): boolean {
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
function arrowsOf(node: AnyNode, edges: readonly Edge[]): readonly Arrow[] {
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

function* linesOf(node: AnyNode, arrows: readonly Arrow[], picture: AnyNode): Iterable<string> {
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
    const [first] = node.initial.target as unknown as readonly AnyNode[];
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
function isInBox(container: string, picture: AnyNode): boolean {
  return childrenOf(picture).some((child) => !isDeep(child) && idOf(child.path) === container);
}

interface Picture {
  /** The state whose inside it shows; empty: the whole chart. */
  readonly of: string;
  readonly mermaid: string;
}

function* picturesBelow(node: AnyNode, edges: readonly Edge[]): Iterable<Picture> {
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
  const edges = [...edgesOf(rootOf(machine))];
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
  return [...picturesBelow(rootOf(machine), sorted(machine).drawn)];
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
