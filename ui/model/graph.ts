/** A statechart as a graph for the layout by ELK, and the drawing that comes back. Lengths are in the units of the SVG. */
import type { ChartDefinition, StateDefinition, TransitionDefinition } from "../../proto/feed/chart-definition.ts";

/** The part of ELK's JSON that is used here. */
export interface Graph {
  id: string;
  x?: number;
  y?: number;
  width?: number;
  height?: number;
  children?: Graph[];
  edges?: GraphEdge[];
  layoutOptions?: Record<string, string>;
}

interface GraphEdge {
  id: string;
  sources: string[];
  targets: string[];
  labels?: { id: string; text: string; width: number; height: number; x?: number; y?: number }[];
  sections?: { startPoint: Point; endPoint: Point; bendPoints?: Point[] }[];
}

export interface Point {
  readonly x: number;
  readonly y: number;
}

interface DrawnState {
  readonly state: StateDefinition;
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
  /** Events that it handles without leaving, one a line. */
  readonly lines: readonly string[];
}

interface DrawnEdge {
  /** The transition's id; empty for the arrow to an initial state. */
  readonly id: string;
  readonly text: string;
  readonly points: readonly Point[];
  readonly label: Point | null;
}

export interface Drawing {
  readonly width: number;
  readonly height: number;
  /** Outer states before inner ones. */
  readonly states: readonly DrawnState[];
  readonly dots: readonly Point[];
  readonly edges: readonly DrawnEdge[];
}

/** Widths of the fonts in `style.css`, rounded up. */
const titleCharWidth = 8;
const textCharWidth = 6.7;
const titleHeight = 26;
const lineHeight = 16;
const padding = 12;
const dotSize = 10;
const nodePrefix = "state:";
const dotPrefix = "initial:";

/** Such as `heartbeat [isChanged]`. */
export function labelOf({ event, delay, guard }: TransitionDefinition): string {
  const cause = delay === "" ? event : `after ${/^\d+$/.test(delay) ? `${delay} ms` : delay}`;
  return `${cause}${guard === "" ? "" : `${cause === "" ? "" : " "}[${guard}]`}`;
}

/** Transitions that leave the state active. Events that it ignores are left out. */
export function linesOf({ transitions }: StateDefinition): readonly string[] {
  return transitions
    .filter(({ targets, actions }) => targets.length === 0 && actions.length > 0)
    .map((transition) => `${labelOf(transition)} / ${transition.actions.join(", ")}`);
}

export function graphOf({ root }: ChartDefinition): Graph {
  const edges: GraphEdge[] = [];
  const node = nodeOf(root, edges);
  return {
    id: "chart",
    layoutOptions: {
      "elk.algorithm": "layered",
      "elk.direction": "DOWN",
      "elk.hierarchyHandling": "INCLUDE_CHILDREN",
      "elk.edgeRouting": "ORTHOGONAL",
      "elk.json.shapeCoords": "ROOT",
      "elk.json.edgeCoords": "ROOT",
      "elk.spacing.nodeNode": "36",
      "elk.layered.spacing.nodeNodeBetweenLayers": "42",
      "elk.spacing.edgeNode": "16",
      "elk.spacing.edgeEdge": "12",
      "elk.spacing.edgeLabel": "4",
      "elk.layered.considerModelOrder.strategy": "NODES_AND_EDGES",
    },
    children: [node],
    edges,
  };
}

function nodeOf(state: StateDefinition, edges: GraphEdge[]): Graph {
  const lines = linesOf(state);
  const id = nodePrefix + state.path;
  const top = titleHeight + lines.length * lineHeight;
  const width = Math.max(state.key.length * titleCharWidth, ...lines.map((line) => line.length * textCharWidth), 48);
  for (const transition of state.transitions)
    for (const [index, target] of transition.targets.entries()) {
      const text = labelOf(transition);
      edges.push({
        id: `${index} ${transition.id}`,
        sources: [id],
        targets: [nodePrefix + target],
        labels:
          text === ""
            ? []
            : [{ id: `label ${index} ${transition.id}`, text, width: text.length * textCharWidth, height: lineHeight }],
      });
    }
  if (state.states.length === 0) return { id, width: width + 2 * padding, height: top + padding };
  const children = state.states.map((child) => nodeOf(child, edges));
  if (state.initial !== "") {
    const dot = dotPrefix + state.path;
    children.unshift({ id: dot, width: dotSize, height: dotSize });
    edges.push({ id: `initial ${state.path}`, sources: [dot], targets: [nodePrefix + state.initial] });
  }
  return {
    id,
    children,
    layoutOptions: {
      "elk.padding": `[top=${top + padding},left=${2 * padding},bottom=${2 * padding},right=${2 * padding}]`,
      "elk.nodeSize.constraints": "MINIMUM_SIZE",
      "elk.nodeSize.minimum": `(${width + 2 * padding},${top + padding})`,
    },
  };
}

/** `laid`: the graph with the places that ELK has found. */
export function drawingOf(laid: Graph, { root }: ChartDefinition): Drawing {
  const states: DrawnState[] = [];
  const dots: Point[] = [];
  const known = new Map<string, StateDefinition>();
  const learn = (state: StateDefinition): void => {
    known.set(nodePrefix + state.path, state);
    for (const child of state.states) learn(child);
  };
  learn(root);
  const visit = (node: Graph): void => {
    const { x = 0, y = 0, width = 0, height = 0 } = node;
    const state = known.get(node.id);
    if (state !== undefined) states.push({ state, x, y, width, height, lines: linesOf(state) });
    else if (node.id.startsWith(dotPrefix)) dots.push({ x: x + width / 2, y: y + height / 2 });
    for (const child of node.children ?? []) visit(child);
  };
  visit(laid);
  const edges = (laid.edges ?? []).map((edge): DrawnEdge => {
    const points = (edge.sections ?? []).flatMap(({ startPoint, bendPoints = [], endPoint }) => [
      startPoint,
      ...bendPoints,
      endPoint,
    ]);
    const [label] = edge.labels ?? [];
    return {
      id: edge.id.startsWith("initial ") ? "" : edge.id.slice(edge.id.indexOf(" ") + 1),
      text: label?.text ?? "",
      points,
      label: label?.x === undefined ? null : { x: label.x, y: (label.y ?? 0) + lineHeight - 4 },
    };
  });
  return { width: laid.width ?? 0, height: laid.height ?? 0, states, dots, edges };
}

/** The paths of a state and of all around it, down from the root. */
export function pathsAround(path: string): readonly string[] {
  const keys = path === "" ? [] : path.split(".");
  return ["", ...keys.map((_, index) => keys.slice(0, index + 1).join("."))];
}
