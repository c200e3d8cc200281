/** Steps of actors as lines. */
import { statesText } from "../../proto/feed/actors.ts";
import type { ActorStep } from "../../proto/gen/messages.ts";
import { eventText, line, momentText, span, type Line } from "./texts.ts";

/** Columns of an event with its guards; a longer one moves the rest of its line. */
const eventWidthMax = 40;

const causeText = ({ event, guards }: ActorStep): string =>
  guards.length === 0 ? eventText(event) : `${eventText(event)} [${guards.join(", ")}]`;

function outcome(step: ActorStep, actor: string): Line {
  return [
    step.unexpected ? span("unexpected, stays in ", "alarm") : span("→ "),
    span(statesText(step.states), step.unexpected ? null : "active"),
    span(step.effects.length === 0 ? "" : `  / ${step.effects.join(", ")}`, "dim"),
    span(step.source === "" || step.source === actor ? "" : `  from ${step.source}`, "dim"),
  ];
}

const leftOut = (count: number): string => `${count} ${count === 1 ? "step" : "steps"} left out`;

/** The steps of one actor, oldest first. `nowMs`: the clock of its process. */
export function stepLines(steps: readonly ActorStep[], nowMs: number, actor: string): readonly Line[] {
  const times = steps.map(({ atMs }) => momentText(atMs, nowMs));
  const timeWidth = Math.max(...times.map(({ length }) => length));
  const eventWidth = Math.min(eventWidthMax, Math.max(...steps.map((step) => causeText(step).length)));
  return steps.flatMap((step, at): readonly Line[] => [
    ...(step.skipped > 0 ? [line(`  … ${leftOut(step.skipped)}`, "alarm")] : []),
    [
      span(`  ${(times[at] as string).padStart(timeWidth)}  `, "dim"),
      span(`${causeText(step).padEnd(eventWidth)}  `),
      ...outcome(step, actor),
    ],
  ]);
}

/** One step as a line of a log, with its whole time; `process` is named if given. */
export function loggedStep(step: ActorStep, process: string | null): Line {
  return [
    span(`${new Date(step.atMs).toISOString()} `, "dim"),
    span(process === null ? "" : `${process} `),
    span(`${step.actor} `, "title"),
    span(`${causeText(step)} `),
    ...outcome(step, step.actor),
    span(step.skipped === 0 ? "" : `  (after ${leftOut(step.skipped)})`, "alarm"),
    span(step.traceId === "" ? "" : `  trace ${step.traceId}`, "dim"),
  ];
}
