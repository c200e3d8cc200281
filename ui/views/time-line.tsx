/** The time line under all views: what happened when, the moment that is shown, and the ways to another one. */
import { useSignal, useSignalEffect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { drawnGaps, type Gap } from "../model/gaps.ts";
import { momentAt, panned, placeOf, zoomed } from "../model/span.ts";
import { cursor, go, goLive, isSeeking, note, walk } from "../seeking.ts";
import { link, past, route } from "../state.ts";
import {
  columns,
  edgeMs,
  isRecording,
  known,
  losses,
  overview,
  overviewed,
  show,
  span,
  trouble,
  view,
  whole,
} from "../time-line.ts";
import { createDensity, type Density } from "./density.ts";
import { durationText, momentText, timeText } from "./texts.ts";

const zoomStep = 1.5;
/** Share of the part in view by which keys move the cursor, and the part itself. */
const moveShare = 0.01;
const pageShare = 0.1;
/** Share of the part in view below which two gaps look like one. */
const nearShare = 0.002;
/** Pixels. */
const barWidth = 3;
/** Share of the width by which the live edge can be missed and still be meant. */
const edgeShare = 0.004;

/** A place at the right edge is the present, if there is one. */
function goTo(place: number, isPassing: boolean): void {
  const { value } = span;
  if (!isRecording.value && place >= 1 - edgeShare && value.toMs >= edgeMs.value) goLive();
  else go({ atMs: momentAt(value, place), step: 0 }, isPassing);
}

/** Moves the cursor by a share of the part in view. */
function nudge(share: number): void {
  const { fromMs, toMs } = span.value;
  const next = (cursor.value?.atMs ?? edgeMs.value) + share * (toMs - fromMs);
  if (next >= edgeMs.value && !isRecording.value) goLive();
  else go({ atMs: Math.round(Math.max(whole.value.fromMs, Math.min(whole.value.toMs, next))), step: 0 });
}

function zoom(factor: number, aroundMs: number): void {
  const next = zoomed(span.value, factor, aroundMs, whole.value);
  const isAll = next.toMs - next.fromMs >= whole.value.toMs - whole.value.fromMs;
  show(isAll ? null : next);
}

function pan(share: number): void {
  if (view.value === null) return;
  const { fromMs, toMs } = view.value;
  show(panned(view.value, share * (toMs - fromMs), whole.value));
}

function onKeyDown(event: KeyboardEvent): void {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const around = cursor.value?.atMs ?? edgeMs.value;
  const actions: Readonly<Record<string, () => void>> = {
    ArrowLeft: () => (event.shiftKey ? pan(-pageShare) : nudge(-moveShare)),
    ArrowRight: () => (event.shiftKey ? pan(pageShare) : nudge(moveShare)),
    PageUp: () => nudge(-pageShare),
    PageDown: () => nudge(pageShare),
    Home: () => go({ atMs: whole.value.fromMs, step: 0 }),
    End: goLive,
    "+": () => zoom(zoomStep, around),
    "-": () => zoom(1 / zoomStep, around),
    "0": () => show(null),
  };
  const action = actions[event.key];
  if (action === undefined || known.value === null) return;
  event.preventDefault();
  event.stopPropagation();
  action();
}

/** Keys of the whole page: where a text is typed, they are text. */
function onPageKey(event: KeyboardEvent): void {
  const { target } = event;
  if (
    target instanceof HTMLElement &&
    (target.isContentEditable || /^(?:input|textarea|select)$/i.test(target.tagName))
  )
    return;
  const steps: Readonly<Record<string, readonly [number, boolean]>> = {
    "[": [-1, false],
    "]": [1, false],
    "{": [-1, true],
    "}": [1, true],
  };
  const step = steps[event.key];
  if (step !== undefined) {
    event.preventDefault();
    const [by, onlyChosen] = step;
    if (!onlyChosen || route.value.view === "actor") walk(by, onlyChosen);
  } else if (event.key === "t" && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    document.querySelector<HTMLElement>(".time-line [role=slider]")?.focus();
  }
}

function Where() {
  const at = past.value?.moment;
  const recording = isRecording.value ? "Recording" : "";
  if (at === undefined) {
    const text = recording === "" ? (link.value.state === "live" ? "Live" : "Last known") : recording;
    return <b class="where">{text}</b>;
  }
  const newest = past.value?.steps.at(-1);
  const ago = isRecording.value ? "" : `, ${durationText(edgeMs.value - at.atMs)} ago`;
  return (
    <>
      <b class="where past">{isRecording.value ? "Recording at" : "Past:"}</b> <time>{momentText(at.atMs)}</time>
      <span class="ago" aria-hidden="true">
        {ago}
      </span>
      {newest?.step != null && note.value === "" && (
        <span class="after">
          after <b>{newest.step.event}</b> of {newest.step.actor}
        </span>
      )}
    </>
  );
}

function Buttons() {
  const canWalk = known.value !== null;
  const hasActor = route.value.view === "actor";
  const isPast = cursor.value !== null;
  const step = (by: number, onlyChosen: boolean, text: string, label: string, keys: string) => (
    <button
      type="button"
      disabled={!canWalk || (by > 0 && !isPast)}
      onClick={() => walk(by, onlyChosen)}
      aria-label={label}
      title={`${label} ( ${keys} )`}
    >
      {text}
    </button>
  );
  return (
    <div class="ways">
      {hasActor && step(-1, true, "◂ actor", "Previous event of the chosen actor", "{")}
      {step(-1, false, "◂ event", "Previous event", "[")}
      {step(1, false, "event ▸", "Next event", "]")}
      {hasActor && step(1, true, "actor ▸", "Next event of the chosen actor", "}")}
      {isPast && (
        <button type="button" class="back" onClick={goLive}>
          {isRecording.value ? "To the end" : "Back to live"}
        </button>
      )}
    </div>
  );
}

function gapText({
  fromMs,
  toMs,
  who,
}: {
  readonly fromMs: number;
  readonly toMs: number;
  readonly who: readonly string[];
}) {
  return `Not known from ${timeText(fromMs)} to ${timeText(toMs)}: ${who.join(", ")}`;
}

function Gaps() {
  const shownSpan = span.value;
  const all: Gap[] = [
    ...losses.value,
    ...(overview.value?.gaps ?? []).map(({ process, fromMs, toMs }) => ({ who: process, fromMs, toMs })),
  ];
  const gaps = drawnGaps(all, shownSpan, (shownSpan.toMs - shownSpan.fromMs) * nearShare);
  return (
    <>
      {gaps.map((gap) => (
        <div
          key={`${gap.fromMs} ${gap.toMs}`}
          class="gap"
          role="img"
          aria-label={gapText(gap)}
          title={gapText(gap)}
          style={{
            left: `${placeOf(shownSpan, gap.fromMs) * 100}%`,
            width: `${(placeOf(shownSpan, gap.toMs) - placeOf(shownSpan, gap.fromMs)) * 100}%`,
          }}
        />
      ))}
    </>
  );
}

/** Where the present is, while the past is shown. */
function LiveEdge() {
  const place = placeOf(span.value, edgeMs.value);
  if (cursor.value === null || isRecording.value || place > 1) return null;
  return (
    <div class="edge" aria-hidden="true" style={{ left: `${place * 100}%` }}>
      <span>live</span>
    </div>
  );
}

function Cursor() {
  const at = cursor.value?.atMs ?? edgeMs.value;
  const place = placeOf(span.value, at);
  if (place < 0 || place > 1) return null;
  return <div class={cursor.value === null ? "cursor live" : "cursor"} style={{ left: `${place * 100}%` }} />;
}

function Plot() {
  const box = useRef<HTMLDivElement>(null);
  const track = useRef<HTMLDivElement>(null);
  const density = useRef<Density | null>(null);
  const hover = useSignal<number | null>(null);
  const dragged = useRef<{ readonly pointer: number; place: number; readonly isPan: boolean } | null>(null);
  useEffect(() => {
    const at = box.current;
    if (at === null) return;
    const colourOf = (name: string): string => {
      const probe = at.parentElement?.querySelector<HTMLElement>(`[data-colour=${name}]`);
      return probe == null ? "gray" : getComputedStyle(probe).color;
    };
    const made = createDensity(at, () => ({
      steps: colourOf("steps"),
      troubles: colourOf("troubles"),
      text: colourOf("text"),
      line: colourOf("line"),
    }));
    density.current = made;
    const resizes = new ResizeObserver(() => {
      columns.value = Math.floor(at.clientWidth / barWidth);
      made.resize();
    });
    resizes.observe(at);
    const redraw = (): void => made.draw(overview.peek(), overviewed.peek(), span.peek());
    const themes = new MutationObserver(redraw);
    themes.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    const scheme = window.matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", redraw);
    redraw();
    return () => {
      resizes.disconnect();
      themes.disconnect();
      scheme.removeEventListener("change", redraw);
      made.destroy();
    };
  }, []);
  useSignalEffect(() => density.current?.draw(overview.value, overviewed.value, span.value));

  const placeAt = (event: MouseEvent): number => {
    const { left = 0, width = 1 } = track.current?.getBoundingClientRect() ?? {};
    return (event.clientX - left) / width;
  };
  function onPointerDown(event: PointerEvent): void {
    if (event.button !== 0 || known.value === null) return;
    const isPan = event.shiftKey;
    dragged.current = { pointer: event.pointerId, place: placeAt(event), isPan };
    track.current?.setPointerCapture(event.pointerId);
    if (!isPan) goTo(placeAt(event), true);
  }
  function onPointerMove(event: PointerEvent): void {
    const place = placeAt(event);
    hover.value = place >= 0 && place <= 1 ? place : null;
    const drag = dragged.current;
    if (drag === null) return;
    if (drag.isPan) {
      pan(drag.place - place);
      drag.place = place;
    } else goTo(place, true);
  }
  function onPointerUp(event: PointerEvent): void {
    const drag = dragged.current;
    dragged.current = null;
    if (drag !== null && !drag.isPan) goTo(placeAt(event), false);
  }
  function onWheel(event: WheelEvent): void {
    if (known.value === null) return;
    event.preventDefault();
    const along = event.shiftKey && event.deltaX === 0 ? event.deltaY : event.deltaX;
    if (Math.abs(along) > Math.abs(event.shiftKey ? 0 : event.deltaY)) pan((along / 100) * pageShare);
    else zoom(event.deltaY < 0 ? zoomStep : 1 / zoomStep, momentAt(span.value, placeAt(event)));
  }

  const at = cursor.value?.atMs ?? edgeMs.value;
  const isLive = cursor.value === null && !isRecording.value;
  return (
    <div
      class="track"
      ref={track}
      role="slider"
      tabIndex={0}
      aria-label="Moment that is shown. Arrows move it, + and - zoom, Home and End go to the ends."
      aria-valuemin={whole.value.fromMs}
      aria-valuemax={whole.value.toMs}
      aria-valuenow={Math.max(whole.value.fromMs, Math.min(whole.value.toMs, at))}
      aria-valuetext={isLive ? "live" : momentText(at)}
      aria-disabled={known.value === null}
      onPointerDown={onPointerDown}
      onPointerMove={onPointerMove}
      onPointerUp={onPointerUp}
      onPointerCancel={() => (dragged.current = null)}
      onPointerLeave={() => (hover.value = null)}
      onWheel={onWheel}
      onKeyDown={onKeyDown}
    >
      <div class="density" ref={box} aria-hidden="true" />
      <Gaps />
      <p class="past-legend" data-colour="text">
        <span data-colour="steps">■</span> events <span data-colour="troubles">■</span> unexpected or failed{" "}
        <span class="hatched" data-colour="line" /> not known
      </p>
      <LiveEdge />
      <Cursor />
      {hover.value !== null && known.value !== null && (
        <div class="hover" aria-hidden="true" style={{ left: `${hover.value * 100}%` }}>
          <span class={hover.value > 0.5 ? "before" : ""}>{timeText(momentAt(span.value, hover.value))}</span>
        </div>
      )}
    </div>
  );
}

export function TimeLine() {
  useEffect(() => {
    window.addEventListener("keydown", onPageKey);
    return () => window.removeEventListener("keydown", onPageKey);
  }, []);
  const said = [trouble.value, note.value, isSeeking.value && past.value === null ? "loading …" : ""];
  return (
    <footer class={past.value === null ? "time-line" : "time-line past"} aria-label="Time line">
      <div class="bar">
        <p role="status" title={said.join(" ").trim()}>
          <Where />
          {said.filter(Boolean).map((text) => (
            <span key={text} class="note">
              {text}
            </span>
          ))}
        </p>
        <Buttons />
      </div>
      <Plot />
    </footer>
  );
}
