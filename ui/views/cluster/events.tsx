/** The changes of the cluster, the newest first. */
import { useRef } from "preact/hooks";
import { events } from "../../cluster-state.ts";
import { moment } from "../../state.ts";
import { isRecording } from "../../time-line.ts";
import { timeText } from "../texts.ts";
import { useList } from "../list.ts";
import { linkTo } from "./parts.tsx";

/** Pixels, as in the style sheet. */
const rowHeight = 24;

export function EventsPanel() {
  const scroller = useRef<HTMLDivElement>(null);
  const lines = events.value;
  const list = useList(scroller, lines.length, rowHeight);
  return (
    <section class="events" aria-label="Events">
      <h2>
        Events{" "}
        <small>
          {lines.length === 0 &&
            (moment.value === null
              ? "none since this view was opened"
              : isRecording.value
                ? "none before this moment"
                : "of the past are in the time line")}
        </small>
      </h2>
      <div class="scroll" ref={scroller} tabIndex={0} role="region" aria-label="Events, the newest first">
        <ol style={{ height: `${list.height}px` }}>
          {list.items.map(({ index, start }) => {
            const line = lines[index];
            if (line === undefined) return null;
            return (
              <li key={line.number} style={{ transform: `translateY(${start}px)` }}>
                <time>{timeText(line.atMs).slice(0, 8)}</time>
                <small>{line.kind}</small>
                <a href={linkTo(line.kind, line.id)}>{line.name}</a>
                <span class={line.isBad ? "warn" : ""}>{line.text}</span>
              </li>
            );
          })}
        </ol>
      </div>
    </section>
  );
}
