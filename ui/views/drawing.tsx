/** The picture of a statechart, with pan and zoom. */
import { useEffect, useRef, useState } from "preact/hooks";
import { pathsAround, type Drawing, type Point } from "../model/graph.ts";

interface View {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

const zoomStep = 1.25;
const panShare = 0.1;
const margin = 16;
/** Pixels for each unit: below this, labels cannot be read, so a large chart begins at its active state. */
const scaleMin = 0.8;
/** Above this, a small chart on a large screen is only larger, not clearer. */
const scaleMax = 1.5;

/** Corners of orthogonal edges are rounded by this. */
const corner = 6;

function pathOf(points: readonly Point[]): string {
  const [first, ...rest] = points;
  if (first === undefined) return "";
  let path = `M${first.x} ${first.y}`;
  rest.forEach((point, index) => {
    const next = rest[index + 1];
    const before = points[index] as Point;
    if (next === undefined) {
      path += `L${point.x} ${point.y}`;
      return;
    }
    const near = towards(point, before);
    const far = towards(point, next);
    path += `L${near.x} ${near.y}Q${point.x} ${point.y} ${far.x} ${far.y}`;
  });
  return path;
}

function towards(from: Point, to: Point): Point {
  const length = Math.hypot(to.x - from.x, to.y - from.y);
  const share = length === 0 ? 0 : Math.min(corner, length / 2) / length;
  return { x: from.x + (to.x - from.x) * share, y: from.y + (to.y - from.y) * share };
}

function zoomed(view: View, factor: number, at: Point): View {
  return {
    x: at.x - (at.x - view.x) / factor,
    y: at.y - (at.y - view.y) / factor,
    width: view.width / factor,
    height: view.height / factor,
  };
}

const centre = ({ x, y, width, height }: View): Point => ({ x: x + width / 2, y: y + height / 2 });

/** What is shown at first of a `whole` chart, in a box of pixels: all of it, or as much as can be read, around `at`. */
function firstView(whole: View, box: { readonly width: number; readonly height: number }, at: Point): View {
  const fitting = Math.min(box.width / whole.width, box.height / whole.height);
  if (fitting === 0 || (fitting >= scaleMin && fitting <= scaleMax)) return whole;
  const scale = fitting < scaleMin ? scaleMin : scaleMax;
  // One that is too large fills the box, no further out than the chart's borders; a small one stands in its middle.
  const side = (pixels: number, middle: number, from: number, full: number): readonly [number, number] => {
    const size = pixels / scale;
    if (size >= full) return [from - (size - full) / 2, size];
    return [Math.max(from, Math.min(from + full - size, middle - size / 2)), size];
  };
  const [x, width] = side(box.width, at.x, whole.x, whole.width);
  const [y, height] = side(box.height, at.y, whole.y, whole.height);
  return { x, y, width, height };
}

/** A clicked state has the focus. Null: none has it. */
const focusedState = (): string | null =>
  document.activeElement?.closest("[data-state]")?.getAttribute("data-state") ?? null;

export function ChartDrawing({
  drawing,
  machine,
  states,
  transitions,
  steps,
  onLook,
}: {
  readonly drawing: Drawing;
  readonly machine: string;
  /** Paths of the active atomic states. */
  readonly states: readonly string[];
  /** Ids of those taken last. */
  readonly transitions: readonly string[];
  /** Number of the newest step. */
  readonly steps: number;
  /** The path of the state under the pointer or the focus. */
  readonly onLook: (path: string | null) => void;
}) {
  const whole: View = {
    x: -margin,
    y: -margin,
    width: drawing.width + 2 * margin,
    height: drawing.height + 2 * margin,
  };
  const [view, showView] = useState(whole);
  const svg = useRef<SVGSVGElement>(null);
  /** The reader has chosen what to see. */
  const isChosen = useRef(false);
  const setView = (next: View): void => {
    isChosen.current = true;
    showView(next);
  };
  useEffect(() => {
    const box = svg.current?.parentElement ?? null;
    if (box === null) return;
    isChosen.current = false;
    const active = drawing.states.find(({ state }) => state.path === states[0]);
    const at = centre(active ?? whole);
    const resizes = new ResizeObserver(() => {
      if (!isChosen.current) showView(firstView(whole, { width: box.clientWidth, height: box.clientHeight }, at));
    });
    resizes.observe(box);
    return () => resizes.disconnect();
  }, [drawing]);
  const dragged = useRef<Point | null>(null);

  /** Where an event of the pointer is in the drawing. */
  function pointOf(event: MouseEvent): Point {
    const matrix = svg.current?.getScreenCTM()?.inverse();
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix);
    return { x: point.x, y: point.y };
  }
  function onWheel(event: WheelEvent): void {
    event.preventDefault();
    setView(zoomed(view, event.deltaY < 0 ? zoomStep : 1 / zoomStep, pointOf(event)));
  }
  function onPointerMove(event: PointerEvent): void {
    if (dragged.current === null || event.buttons === 0) return;
    const at = pointOf(event);
    const { x, y } = dragged.current;
    setView({ ...view, x: view.x + x - at.x, y: view.y + y - at.y });
  }
  function onKeyDown(event: KeyboardEvent): void {
    const stepX = view.width * panShare;
    const stepY = view.height * panShare;
    const next: Record<string, View> = {
      "+": zoomed(view, zoomStep, centre(view)),
      "-": zoomed(view, 1 / zoomStep, centre(view)),
      "0": whole,
      ArrowLeft: { ...view, x: view.x - stepX },
      ArrowRight: { ...view, x: view.x + stepX },
      ArrowUp: { ...view, y: view.y - stepY },
      ArrowDown: { ...view, y: view.y + stepY },
    };
    const chosen = next[event.key];
    if (chosen === undefined) return;
    event.preventDefault();
    setView(chosen);
  }

  const active = new Set(states.flatMap(pathsAround));
  const atomic = new Set(states);
  const taken = new Set(transitions);
  return (
    <div class="drawing">
      <div class="zoom">
        <button type="button" aria-label="Zoom in" onClick={() => setView(zoomed(view, zoomStep, centre(view)))}>
          +
        </button>
        <button type="button" aria-label="Zoom out" onClick={() => setView(zoomed(view, 1 / zoomStep, centre(view)))}>
          −
        </button>
        <button type="button" aria-label="Show the whole chart" onClick={() => setView(whole)}>
          ⤢
        </button>
      </div>
      <svg
        ref={svg}
        viewBox={`${view.x} ${view.y} ${view.width} ${view.height}`}
        role="group"
        aria-label={`Statechart ${machine}, in ${states.join(" and ")}. Arrow keys pan, + and - zoom, 0 shows all.`}
        tabIndex={0}
        onWheel={onWheel}
        onPointerDown={(event) => (dragged.current = pointOf(event))}
        onPointerMove={onPointerMove}
        onPointerUp={() => (dragged.current = null)}
        onPointerLeave={() => onLook(focusedState())}
        onKeyDown={onKeyDown}
      >
        <defs>
          <marker
            id="arrow"
            viewBox="0 0 8 8"
            refX="7"
            refY="4"
            markerWidth="8"
            markerHeight="8"
            markerUnits="userSpaceOnUse"
            orient="auto"
          >
            <path d="M0 0L8 4L0 8z" />
          </marker>
        </defs>
        {drawing.states.map(({ state, x, y, width, height, lines }) => (
          <g
            key={state.path}
            class={`state ${state.type}${active.has(state.path) ? " active" : ""}${atomic.has(state.path) ? " here" : ""}`}
            data-state={state.path}
            role="img"
            aria-label={`${state.path || state.key}${active.has(state.path) ? ", active" : ""}. ${state.description}`}
            tabIndex={0}
            onFocus={() => onLook(state.path)}
            onPointerEnter={() => onLook(state.path)}
          >
            <rect x={x} y={y} width={width} height={height} rx={8} />
            {state.type === "final" && <rect x={x + 3} y={y + 3} width={width - 6} height={height - 6} rx={6} />}
            <text class="title" x={x + 12} y={y + 18}>
              {state.key}
            </text>
            {lines.map((line, index) => (
              <text key={line} class="line" x={x + 12} y={y + 36 + index * 16}>
                {line}
              </text>
            ))}
          </g>
        ))}
        {drawing.dots.map(({ x, y }) => (
          <circle key={`${x} ${y}`} class="initial" cx={x} cy={y} r={5} />
        ))}
        {drawing.edges.map(({ id, text, points, label }, index) => {
          const isTaken = id !== "" && taken.has(id);
          // Another key for each step starts the animation again.
          return (
            <g key={isTaken ? `${index} ${steps}` : index} class={isTaken ? "edge taken" : "edge"} aria-hidden="true">
              <path d={pathOf(points)} pathLength={100} marker-end="url(#arrow)" />
              {label !== null && (
                <text x={label.x} y={label.y}>
                  {text}
                </text>
              )}
            </g>
          );
        })}
      </svg>
    </div>
  );
}
