/** The messages of one trace between actors, as a sequence diagram. */
import { statesText } from "../../proto/feed/actors.ts";
import type { Past } from "../model/past.ts";
import { hashOf } from "../model/route.ts";
import { outside, sequenceOf, tracesOf, type Message, type Traced } from "../model/sequence.ts";
import { traced } from "../selection.ts";
import { addressOf, clock, liveActors, past } from "../state.ts";
import { timeText } from "./texts.ts";

/** Units of the SVG, which are pixels here. */
const laneWidth = 220;
const laneTop = 56;
const messageHeight = 44;
const left = 110;
/** Characters that fit into a lane, in the fonts of the style sheet. */
const laneTitleMax = 25;
const laneNoteMax = 30;
/** Traces offered for a choice. */
const tracesMax = 100;

/** Steps known of the traces in view: those that the server keeps, and those that the page has seen since. */
const known = (): readonly Traced[] => [...traced.value, ...liveActors.recent.items()];

function Traces() {
  const traces = tracesOf(past.value?.steps ?? known(), tracesMax);
  return (
    <section class="traces" aria-label="Traces">
      <h2>{past.value === null ? "Newest traces" : "Newest traces at this moment"}</h2>
      {traces.length === 0 && <p class="empty">No event with a trace yet.</p>}
      <table hidden={traces.length === 0}>
        <thead>
          <tr>
            <th scope="col">began</th>
            <th scope="col">with</th>
            <th scope="col">of</th>
            <th scope="col">events</th>
          </tr>
        </thead>
        <tbody>
          {traces.map(({ trace, steps, process, first }) => (
            <tr key={trace}>
              <td>{timeText(first.atMs)}</td>
              <td>
                <a href={addressOf({ view: "sequence", trace })}>{first.event}</a>
              </td>
              <td>
                {first.actor} <small>{process}</small>
              </td>
              <td>{steps}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

const isLater = ({ atMs, index }: Message, { moment, step }: Past): boolean => atMs > moment.atMs || index > step;

const shortened = (text: string, max: number): string => (text.length > max ? `${text.slice(0, max - 1)}…` : text);

function Arrow({
  message,
  from,
  to,
  y,
  later,
}: {
  readonly message: Message;
  readonly from: number;
  readonly to: number;
  readonly y: number;
  /** After the moment that is shown. */
  readonly later: boolean;
}) {
  const x1 = left + from * laneWidth;
  const x2 = left + to * laneWidth;
  const path = from === to ? `M${x1} ${y - 8}h36v12h-32` : `M${x1} ${y}H${x2}`;
  const textX = from === to ? x1 + 44 : (x1 + x2) / 2;
  return (
    <g class={later ? "message later" : "message"}>
      <path d={path} marker-end="url(#message)" />
      <a
        href={hashOf(
          { view: "actor", process: message.process, actor: message.actor },
          { atMs: message.atMs, step: message.index },
        )}
      >
        <title>Show {message.actor} at this moment</title>
        <text x={textX} y={y - 6} text-anchor={from === to ? "start" : "middle"}>
          {message.event}
        </text>
      </a>
      <text class="then" x={textX} y={y + 14} text-anchor={from === to ? "start" : "middle"}>
        {timeText(message.atMs)} → {statesText(message.states)}
        {message.others > 0 && ` (with ${message.others} more)`}
      </text>
    </g>
  );
}

export function SequenceView({ trace }: { readonly trace: string }) {
  // Not each frame: a reader cannot follow, and all recent steps are looked through.
  void clock.value;
  if (trace === "") return <Traces />;
  const { lanes, messages } = sequenceOf(known(), trace);
  const at = past.value;
  const height = laneTop + (messages.length + 1) * messageHeight;
  const width = left * 2 + Math.max(0, lanes.length - 1) * laneWidth + 120;
  return (
    <section class="sequence" aria-label="Sequence" tabIndex={0}>
      <h2>
        Trace <code>{trace}</code>
      </h2>
      {messages.length === 0 && <p class="empty">None of its events is kept any more.</p>}
      {at !== null && messages.some((message) => isLater(message, at)) && (
        <p class="empty">Dashed messages came after the moment shown.</p>
      )}
      <svg
        width={width}
        height={height}
        role="group"
        aria-label={`${messages.length} messages between ${lanes.length} actors`}
      >
        <defs>
          <marker
            id="message"
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
        {lanes.map((lane, index) => {
          const [process = ""] = lane.split(" ", 1);
          const actor = lane.slice(process.length + 1);
          const x = left + index * laneWidth;
          return (
            <g key={lane} class="lane">
              <title>{lane}</title>
              <line x1={x} x2={x} y1={laneTop} y2={height} />
              <text x={x} y={20} text-anchor="middle">
                {lane === outside ? outside : shortened(actor, laneTitleMax)}
              </text>
              <text class="then" x={x} y={38} text-anchor="middle">
                {lane === outside ? "" : shortened(process, laneNoteMax)}
              </text>
            </g>
          );
        })}
        {messages.map((message, index) => (
          <Arrow
            key={`${message.process} ${message.actor} ${message.number} ${message.atMs}`}
            message={message}
            from={lanes.indexOf(message.from)}
            to={lanes.indexOf(message.to)}
            y={laneTop + (index + 1) * messageHeight}
            later={at !== null && isLater(message, at)}
          />
        ))}
      </svg>
    </section>
  );
}
