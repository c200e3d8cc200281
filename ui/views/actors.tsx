/** The tree of actors: by process and kind, with what is stuck on top. */
import { signal, useComputed } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { statesText, type Process } from "../../proto/feed/actors.ts";
import { overdueMs } from "../../proto/feed/stuck.ts";
import { rowsOf, type Row } from "../model/tree.ts";
import { addressOf, clock, frame, membership, moment, now, route, shown, stuck } from "../state.ts";
import { durationText } from "./texts.ts";
import { useList } from "./list.ts";

/** Pixels, as in the style sheet. */
const rowHeight = 26;
/** States named in a row of a kind; the rest are summed up. */
const countedStatesMax = 4;

const text = signal("");
const onlyStuck = signal(false);
const closed = signal<ReadonlySet<string>>(new Set());
const selected = signal("");

function toggle(key: string, open: boolean): void {
  const next = new Set(closed.value);
  if (open) next.delete(key);
  else next.add(key);
  closed.value = next;
}

function choose(row: Row): void {
  selected.value = row.key;
  if (row.type === "actor")
    window.location.hash = addressOf({ view: "actor", process: row.actor.process, actor: row.actor.id });
  else toggle(row.key, !row.open);
}

function countsText(process: Process, kind: string): string {
  const counts = [...(process.counts.get(kind) ?? [])].toSorted(([, a], [, b]) => b - a);
  const named = counts.slice(0, countedStatesMax).map(([states, number]) => `${states} ${number}`);
  const rest = counts.slice(countedStatesMax).reduce((sum, [, number]) => sum + number, 0);
  return [...named, ...(rest > 0 ? [`others ${rest}`] : [])].join(", ");
}

function processNote({ actors, stale, lost, gaps, droppedSteps }: Process): string {
  const notes = [
    lost,
    stale && lost === "" ? "not current: waiting for a snapshot" : "",
    gaps > 0 ? `${gaps} gaps` : "",
    droppedSteps > 0 ? `${droppedSteps} events left out` : "",
    actors.isFull ? "too much to show: actors or contexts are missing" : "",
  ];
  return notes.filter(Boolean).join(" · ");
}

function RowContent({ row }: { readonly row: Row }) {
  if (row.type === "stuck")
    return (
      <>
        <b class="warn">Stuck</b> <small>{row.size} longer in a state than its delay allows</small>
      </>
    );
  if (row.type === "process")
    return (
      <>
        <b>{row.process.id}</b>
        <small>
          {row.process.hostname} {row.size} actors
        </small>
        <small class="warn">{processNote(row.process)}</small>
      </>
    );
  if (row.type === "kind")
    return (
      <>
        <span class="kind">{row.kind}</span> <small>{row.size}</small>
        <small class="counts">{countsText(row.process, row.kind)}</small>
      </>
    );
  const { actor } = row;
  const process = shown.value.processes.get(actor.process);
  const overdue = overdueMs(actor, now.value + (process?.skewMs ?? 0));
  return (
    <>
      <span class="id">{actor.id}</span>
      {row.level === 2 && (
        <small class="of" title={statesText(actor.states)}>
          {actor.process}
        </small>
      )}
      <span class="states">{statesText(actor.states)}</span>
      {overdue > 0 && <span class="overdue">overdue {durationText(overdue)}</span>}
    </>
  );
}

/** The row to which a key leads; -1: the key does nothing. */
function target(key: string, at: number, rows: readonly Row[], page: number): number {
  const clamp = (index: number): number => Math.max(0, Math.min(rows.length - 1, index));
  const row = rows[at];
  switch (key) {
    case "ArrowDown":
      return clamp(at + 1);
    case "ArrowUp":
      return clamp(at - 1);
    case "PageDown":
      return clamp(at + page);
    case "PageUp":
      return clamp(at - page);
    case "Home":
      return 0;
    case "End":
      return rows.length - 1;
    case "ArrowLeft":
      if (row !== undefined && (row.type === "actor" || !row.open))
        return Math.max(
          0,
          rows.findLastIndex((each, index) => index < at && each.level < row.level),
        );
      return -1;
    default:
      return -1;
  }
}

export function ActorsView() {
  const scroller = useRef<HTMLDivElement>(null);
  const search = useRef<HTMLInputElement>(null);
  const rows = useComputed(() => {
    void membership.value;
    // A text can match states, which change with every frame: the clock's tick is often enough.
    if (text.value !== "") void clock.value;
    return rowsOf(shown.value, stuck.value, { text: text.value, onlyStuck: onlyStuck.value }, closed.value);
  }).value;
  const list = useList(scroller, rows.length, rowHeight);
  void frame.value;
  const { value: address } = route;
  useEffect(() => {
    const focusSearch = (event: KeyboardEvent): void => {
      if (event.key !== "/" || event.target instanceof HTMLInputElement) return;
      event.preventDefault();
      search.current?.focus();
    };
    window.addEventListener("keydown", focusSearch);
    return () => window.removeEventListener("keydown", focusSearch);
  }, []);

  const at = rows.findIndex(({ key }) => key === selected.value);
  const idOf = (index: number): string => `row-${index}`;
  function onKeyDown(event: KeyboardEvent): void {
    const row = rows[at];
    if (row !== undefined && (event.key === "Enter" || event.key === " ")) choose(row);
    else if (row !== undefined && row.type !== "actor" && event.key === "ArrowRight" && !row.open)
      toggle(row.key, true);
    else if (row !== undefined && row.type !== "actor" && event.key === "ArrowLeft" && row.open) toggle(row.key, false);
    else {
      const page = Math.max(1, Math.floor((scroller.current?.clientHeight ?? 0) / rowHeight) - 1);
      const next = target(event.key === "ArrowRight" ? "ArrowDown" : event.key, Math.max(at, -1), rows, page);
      if (next < 0) return;
      selected.value = rows[next]?.key ?? "";
      list.show(next);
    }
    event.preventDefault();
  }

  const isDrawn = list.items.some(({ index }) => index === at);
  return (
    <section class="actors" aria-label="Actors">
      <div class="tools">
        <input
          ref={search}
          type="search"
          placeholder="Search ( / )"
          aria-label="Search actors by id, process or state"
          value={text.value}
          onInput={({ currentTarget }) => (text.value = currentTarget.value)}
        />
        <label>
          <input
            type="checkbox"
            checked={onlyStuck.value}
            onChange={({ currentTarget }) => (onlyStuck.value = currentTarget.checked)}
          />
          only stuck ({stuck.value.length})
        </label>
      </div>
      <div
        class="tree"
        ref={scroller}
        role="tree"
        aria-label="Actors by process and kind"
        tabIndex={0}
        aria-activedescendant={isDrawn ? idOf(at) : undefined}
        onKeyDown={onKeyDown}
      >
        <div class="rows" role="presentation" style={{ height: `${list.height}px` }}>
          {list.items.map(({ index, start }) => {
            const row = rows[index];
            if (row === undefined) return null;
            const isShown =
              row.type === "actor" &&
              address.view === "actor" &&
              address.process === row.actor.process &&
              address.actor === row.actor.id;
            return (
              <div
                key={row.key}
                id={idOf(index)}
                class={`row level${row.level} ${row.type}${index === at ? " at" : ""}${isShown ? " shown" : ""}`}
                role="treeitem"
                aria-level={row.level}
                aria-posinset={index + 1}
                aria-setsize={rows.length}
                aria-selected={isShown}
                aria-expanded={row.type === "actor" ? undefined : row.open}
                style={{ transform: `translateY(${start}px)` }}
                onClick={() => choose(row)}
              >
                <span class="twist" aria-hidden="true">
                  {row.type === "actor" ? "" : row.open ? "▾" : "▸"}
                </span>
                <RowContent row={row} />
              </div>
            );
          })}
        </div>
        {rows.length === 0 && (
          <p class="empty">
            {shown.value.size > 0
              ? "No actor matches."
              : moment.value === null
                ? "No actors yet."
                : "No actor is known at this moment."}
          </p>
        )}
      </div>
    </section>
  );
}
