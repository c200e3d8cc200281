/** The chosen actor: its chart, timers, context and newest events. */
import { useEffect, useState } from "preact/hooks";
import type { ActorStep, ArmedTimer } from "../../proto/gen/page.ts";
import { statesText, watchedStepsMax, type Actor } from "../../proto/feed/actors.ts";
import type { ChartDefinition, StateDefinition } from "../../proto/feed/chart-definition.ts";
import { objectOf } from "../model/actor-object.ts";
import type { Drawing } from "../model/graph.ts";
import { joined } from "../model/past.ts";
import { hashOf } from "../model/route.ts";
import { earlier } from "../selection.ts";
import { addressOf, chartOf, frame, liveActors, now, past, route, shown } from "../state.ts";
import { ChartDrawing } from "./drawing.tsx";
import { drawingFor } from "./layout.ts";
import { durationText, jsonText, timeText } from "./texts.ts";

const statusTexts = ["active", "done", "stopped", "failed"] as const;

function stateAt(chart: ChartDefinition, path: string): StateDefinition | undefined {
  let found: StateDefinition | undefined = chart.root;
  for (const key of path === "" ? [] : path.split(".")) found = found?.states.find((state) => state.key === key);
  return found;
}

function Timers({ timers, nowMs }: { readonly timers: readonly ArmedTimer[]; readonly nowMs: number }) {
  if (timers.length === 0) return <p class="empty">None armed.</p>;
  return (
    <ul class="timers">
      {timers.map(({ delay, state, armedAtMs, dueAtMs }) => {
        const left = dueAtMs - nowMs;
        return (
          <li key={`${state} ${delay}`} class={left < 0 ? "late" : ""}>
            <span>
              <b>{/^\d+$/.test(delay) ? `${delay} ms` : delay}</b> <small>{state}</small>
            </span>
            <span>{left < 0 ? `overdue ${durationText(-left)}` : `in ${durationText(left)}`}</span>
            <progress
              aria-label={`Elapsed part of ${delay}`}
              max={Math.max(1, dueAtMs - armedAtMs)}
              value={Math.max(0, nowMs - armedAtMs)}
            />
          </li>
        );
      })}
    </ul>
  );
}

function StateDetails({ chart, path }: { readonly chart: ChartDefinition; readonly path: string }) {
  const state = stateAt(chart, path);
  if (state === undefined) return null;
  return (
    <div class="details">
      <h3>{state.path || chart.id}</h3>
      <p>{state.path === "" ? chart.summary : state.description}</p>
      {state.waitingFor !== "" && (
        <p>
          Waiting for <b>{state.waitingFor}</b>.
        </p>
      )}
      {Object.keys(state.wokenBy).length > 0 && (
        <dl>
          {Object.entries(state.wokenBy).map(([event, text]) => (
            <div key={event}>
              <dt>{event}</dt>
              <dd>{text}</dd>
            </div>
          ))}
        </dl>
      )}
      {state.path === "" && (
        <ul class="invariants">
          {chart.invariants.map((text) => (
            <li key={text}>{text}</li>
          ))}
        </ul>
      )}
    </div>
  );
}

function Steps({ steps }: { readonly steps: readonly ActorStep[] }) {
  if (steps.length === 0) return <p class="empty">None is known.</p>;
  return (
    <div class="steps" tabIndex={0} role="region" aria-label={`The newest ${watchedStepsMax} events`}>
      <table>
        <thead>
          <tr>
            <th scope="col">time</th>
            <th scope="col">event, then in, effects</th>
          </tr>
        </thead>
        <tbody>
          {steps.map((step, place) => (
            // A live list grows at its top; another moment has other events in the same rows.
            <tr key={past.value === null ? step.number : -place} class={step.unexpected ? "unexpected" : ""}>
              <td>
                <a href={hashOf(route.value, { atMs: step.atMs, step: 0 })} title="Show this moment">
                  {timeText(step.atMs)}
                </a>
              </td>
              <td title={step.fields}>
                {step.traceId === "" ? (
                  step.event
                ) : (
                  <a href={addressOf({ view: "sequence", trace: step.traceId })} title="Show its trace">
                    {step.event}
                  </a>
                )}
                {step.unexpected && " (unexpected)"}
                {step.guards.length > 0 && <small> [{step.guards.join(", ")}]</small>}
                {step.skipped > 0 && <small class="warn"> after {step.skipped} left out</small>}
                <span class="then-in">→ {statesText(step.states)}</span>
                {step.effects.length > 0 && <small class="effects">{step.effects.join(", ")}</small>}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Oldest first, up to the moment shown. */
function stepsOf({ process, id }: Actor): readonly ActorStep[] {
  return past.value?.own ?? joined(earlier.value, liveActors.stepsOf(process, id), watchedStepsMax);
}

function ActorPanel({ actor }: { readonly actor: Actor }) {
  // The actor is changed in place: this redraws it.
  void frame.value;
  const chart = chartOf(actor.machine);
  const [drawing, setDrawing] = useState<Drawing | null>(null);
  const [failure, setFailure] = useState("");
  const [looked, setLooked] = useState<string | null>(null);
  useEffect(() => {
    let isCurrent = true;
    setDrawing(null);
    setLooked(null);
    setFailure("");
    if (chart !== undefined)
      drawingFor(chart).then(
        (done) => isCurrent && setDrawing(done),
        (error: unknown) => isCurrent && setFailure(String(error)),
      );
    return () => {
      isCurrent = false;
    };
  }, [chart]);
  const object = objectOf(actor.id);
  const process = shown.value.processes.get(actor.process);
  const nowMs = now.value + (process?.skewMs ?? 0);
  const since = actor.sinceMs === 0 ? "since before the feed began" : `for ${durationText(nowMs - actor.sinceMs)}`;
  return (
    <>
      <div class="picture">
        <h2>
          {actor.id} <small>{process?.hostname || actor.process}</small>
          {object !== null && (
            <a class="object" href={addressOf(object)}>
              its {object.part}
            </a>
          )}
        </h2>
        <p class="now">
          <b class="here">{statesText(actor.states)}</b> {since} · {statusTexts[actor.status] ?? "unknown"} ·{" "}
          {actor.steps} events{actor.event === "" ? "" : ` · moved by ${actor.event}`}
          {process?.stale === true && <span class="warn"> · not current</span>}
        </p>
        {chart === undefined && <p class="empty">This page does not know the chart {actor.machine}.</p>}
        {failure !== "" && <p class="warn">The chart cannot be laid out: {failure}</p>}
        {drawing !== null && (
          <ChartDrawing
            drawing={drawing}
            machine={actor.machine}
            states={actor.states}
            transitions={actor.transitions}
            steps={actor.steps}
            onLook={setLooked}
          />
        )}
      </div>
      <aside aria-label="Details of the actor" tabIndex={0}>
        {chart !== undefined && <StateDetails chart={chart} path={looked ?? actor.states[0] ?? ""} />}
        <h3>Timers</h3>
        <Timers timers={actor.timers} nowMs={nowMs} />
        <h3>Context</h3>
        <pre>{actor.context === "" ? "{}" : jsonText(actor.context)}</pre>
        <h3>Events</h3>
        <Steps steps={stepsOf(actor).toReversed()} />
      </aside>
    </>
  );
}

export function ChartView() {
  void frame.value;
  const { value: address } = route;
  const isChosen = address.view === "actor";
  const process = isChosen ? address.process : "";
  const id = isChosen ? address.actor : "";
  useEffect(() => {
    if (!isChosen) return;
    liveActors.watch(process, id);
    return () => liveActors.unwatch(process, id);
  }, [process, id]);
  const actor = shown.value.find(process, id);
  return (
    <section class="chart" aria-label="Statechart">
      {actor === undefined ? (
        <p class="empty">
          {isChosen
            ? `${id} of ${process} ${past.value === null ? "does not run" : "did not run at this moment"}.`
            : "Choose an actor to see its statechart."}
        </p>
      ) : (
        <ActorPanel key={`${process} ${id}`} actor={actor} />
      )}
    </section>
  );
}
