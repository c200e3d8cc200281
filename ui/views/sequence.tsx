/** The messages of one trace between actors, as a sequence diagram. */
import { statesText } from "../../proto/feed/actors.ts";
import { hashOf } from "../model/route.ts";
import { outside, sequenceOf, tracesOf, type Message } from "../model/sequence.ts";
import { actors, clock } from "../state.ts";
import { timeText } from "./texts.ts";

/** Units of the SVG, which are pixels here. */
const laneWidth = 220;
const laneTop = 56;
const messageHeight = 44;
const left = 110;
/** Traces offered for a choice. */
const tracesMax = 100;

function Traces() {
  const traces = tracesOf(actors.recent.items(), tracesMax);
  return (
    <section class="traces" aria-label="Traces">
      <h2>Newest traces</h2>
      {traces.length === 0 && <p class="empty">No traced step yet.</p>}
      <ul>
        {traces.map(({ trace, steps, first }) => (
          <li key={trace}>
            <a href={hashOf({ view: "sequence", trace })}>
              {timeText(first.step.atMs)} {first.step.event} → {first.step.actor}
            </a>{" "}
            <small>{steps} steps</small>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Arrow({
  message,
  from,
  to,
  y,
}: {
  readonly message: Message;
  readonly from: number;
  readonly to: number;
  readonly y: number;
}) {
  const x1 = left + from * laneWidth;
  const x2 = left + to * laneWidth;
  const path = from === to ? `M${x1} ${y - 8}h36v12h-32` : `M${x1} ${y}H${x2}`;
  const textX = from === to ? x1 + 44 : (x1 + x2) / 2;
  return (
    <g class="message">
      <path d={path} marker-end="url(#message)" />
      <text x={textX} y={y - 6} text-anchor={from === to ? "start" : "middle"}>
        {message.event}
      </text>
      <text class="then" x={textX} y={y + 14} text-anchor={from === to ? "start" : "middle"}>
        {timeText(message.atMs)} → {statesText(message.states)}
      </text>
    </g>
  );
}

export function SequenceView({ trace }: { readonly trace: string }) {
  // Not each frame: a reader cannot follow, and all recent steps are looked through.
  void clock.value;
  if (trace === "") return <Traces />;
  const { lanes, messages } = sequenceOf(actors.recent.items(), trace);
  const height = laneTop + (messages.length + 1) * messageHeight;
  const width = left * 2 + Math.max(0, lanes.length - 1) * laneWidth + 120;
  return (
    <section class="sequence" aria-label="Sequence" tabIndex={0}>
      <h2>
        Trace <code>{trace}</code>
      </h2>
      {messages.length === 0 && <p class="empty">None of its steps is kept any more.</p>}
      <svg
        width={width}
        height={height}
        role="img"
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
          const [process = "", actor = ""] = lane.split(" ");
          const x = left + index * laneWidth;
          return (
            <g key={lane} class="lane">
              <line x1={x} x2={x} y1={laneTop} y2={height} />
              <text x={x} y={20} text-anchor="middle">
                {lane === outside ? outside : actor.length > 28 ? `${actor.slice(0, 27)}…` : actor}
              </text>
              <text class="then" x={x} y={38} text-anchor="middle">
                {lane === outside ? "" : process.length > 30 ? `${process.slice(0, 29)}…` : process}
              </text>
            </g>
          );
        })}
        {messages.map((message, index) => (
          <Arrow
            key={`${message.process} ${message.actor} ${message.number}`}
            message={message}
            from={lanes.indexOf(message.from)}
            to={lanes.indexOf(message.to)}
            y={laneTop + (index + 1) * messageHeight}
          />
        ))}
      </svg>
    </section>
  );
}
