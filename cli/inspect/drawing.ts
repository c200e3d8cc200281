/**
 * One actor as text: where it is and what it waits for, its timers, its chart, its context and its last steps. On a terminal
 * that is too low for all of it, the chart loses transitions, and then older steps and the context are left out.
 */
import { statesText, type Actor, type Process } from "../../proto/feed/actors.ts";
import type { ChartDefinition } from "../../proto/feed/chart-definition.ts";
import { overdueGraceMs } from "../../proto/feed/stuck.ts";
import { ActorStatus, type ActorStep } from "../../proto/gen/messages.ts";
import { chartLines, waitingStates, type Detail } from "./chart-lines.ts";
import { stepLines } from "./step-lines.ts";
import {
  delayText,
  eventText,
  line,
  momentText,
  shortDuration,
  span,
  wrapped,
  type Line,
  type Style,
} from "./texts.ts";

/** Columns without a terminal: as wide as the lines of a log. */
const widthDefault = 120;
/** Narrower than this, text is cut rather than wrapped. */
const widthMin = 40;
/** Newest steps that stay on a low terminal before the chart loses its transitions. */
const stepsKept = 3;
const labelWidth = 10;

export interface ActorPicture {
  readonly actor: Actor;
  readonly process: Pick<Process, "id" | "hostname" | "lost" | "stale">;
  /** Name of the node, service or task in the actor's id; empty if it has none. */
  readonly name: string;
  /** Null: this version of Muster has no such chart. */
  readonly chart: ChartDefinition | null;
  /** Oldest first. */
  readonly steps: readonly ActorStep[];
  /** Why older steps are missing; empty: they are not. */
  readonly stepsMissing: string;
  /** The actor has ended: the picture shows its last state. */
  readonly ended: boolean;
  /** The clock of the process, in milliseconds since the epoch. */
  readonly nowMs: number;
  readonly width: number | null;
  /** Lines of the terminal; null: everything is drawn. */
  readonly height: number | null;
}

/** Texts with a label before the first. */
function labelled(label: string, texts: readonly string[], style: Style | null = null): readonly Line[] {
  return texts.map((text, at) => [span((at === 0 ? label : "").padEnd(labelWidth), "dim"), span(text, style)]);
}

function headLines({ actor, process, name, ended, nowMs }: ActorPicture, width: number): readonly Line[] {
  const lines: Line[] = [];
  const where = process.hostname === "" ? process.id : `${process.id} on ${process.hostname}`;
  lines.push([span(actor.id, "title"), span(name === "" ? "" : `  ${name}`), span(`  in ${where}`, "dim")]);
  if (process.lost !== "")
    lines.push(line(`${process.id} cannot be watched: ${process.lost}. Its last known state:`, "alarm"));
  else if (process.stale) lines.push(line("Not current: waiting for a new snapshot. The last known state:", "alarm"));
  if (ended) lines.push(line("The actor has ended. Its last known state:", "alarm"));
  const since = actor.sinceMs === 0 ? "" : ` for ${shortDuration(nowMs - actor.sinceMs)}`;
  const statuses = {
    [ActorStatus.ACTOR_DONE]: "done",
    [ActorStatus.ACTOR_STOPPED]: "stopped",
    [ActorStatus.ACTOR_FAILED]: "failed",
  };
  const status = (statuses as Readonly<Record<number, string>>)[actor.status];
  const style = status === "failed" ? "alarm" : "active";
  const texts = wrapped(
    `${statesText(actor.states)}${since}${status === undefined ? "" : `, ${status}`}`,
    width - labelWidth,
  );
  lines.push(...labelled("state", texts, style));
  const event = actor.event === "" ? "" : `, last event ${eventText(actor.event)}`;
  const age = actor.startedAtMs === 0 ? "" : `started ${shortDuration(nowMs - actor.startedAtMs)} ago, `;
  lines.push(...labelled("life", [`${age}${actor.steps} ${actor.steps === 1 ? "step" : "steps"}${event}`]));
  return lines;
}

function waitLines({ actor, chart }: ActorPicture, width: number): readonly Line[] {
  const states = chart === null ? [] : waitingStates(chart, actor);
  return states.flatMap((state) => {
    // Names tell regions apart.
    const prefix = states.length > 1 ? `${state.path}: ` : "";
    const wakers = Object.entries(state.wokenBy).map(([event, text]) => `${event}: ${text}`);
    return [
      ...labelled("waits for", wrapped(`${prefix}${state.waitingFor}`, width - labelWidth)),
      ...labelled(
        "woken by",
        wakers.flatMap((text) => wrapped(text, width - labelWidth)),
      ),
    ];
  });
}

function timerLines({ actor: { timers }, nowMs, process }: ActorPicture): readonly Line[] {
  if (timers.length === 0) return labelled("timers", ["none armed"]);
  return timers
    .toSorted((a, b) => a.dueAtMs - b.dueAtMs)
    .map(({ delay, state, armedAtMs, dueAtMs }, at): Line => {
      const left = dueAtMs - nowMs;
      const isLate = -left > overdueGraceMs && !process.stale;
      const due =
        left >= 0
          ? `in ${shortDuration(left)}`
          : isLate
            ? `OVERDUE by ${shortDuration(-left)}`
            : process.stale
              ? `was due ${shortDuration(-left)} ago`
              : "due now";
      return [
        span((at === 0 ? "timers" : "").padEnd(labelWidth), "dim"),
        span(`${delayText(delay)} ${due}`, isLate ? "alarm" : null),
        span(`  of ${shortDuration(dueAtMs - armedAtMs)}${state === "" ? "" : `, in ${state}`}`, "dim"),
      ];
    });
}

/** With the time that a number most likely is, in milliseconds since the epoch: those of the years 2001 to 2286. */
function valueText(value: unknown, nowMs: number): string {
  const text = JSON.stringify(value);
  const isTime = typeof value === "number" && value >= 1e12 && value < 1e13;
  return isTime ? `${text} (${momentText(value, nowMs)})` : text;
}

function contextLines({ actor, nowMs }: ActorPicture, width: number): readonly Line[] {
  let fields: [string, unknown][];
  try {
    fields = Object.entries(JSON.parse(actor.context === "" ? "{}" : actor.context) as object);
  } catch {
    return [line("context", "title"), line(`  ${actor.context}`)];
  }
  if (fields.length === 0) return [];
  const keyWidth = Math.max(...fields.map(([key]) => key.length));
  return [
    line("context", "title"),
    ...fields.flatMap(([key, value]) => {
      const [first = "", ...more] = wrapped(valueText(value, nowMs), Math.max(1, width - keyWidth - 4));
      return [
        [span(`  ${key.padEnd(keyWidth)}  `, "dim"), span(first)],
        ...more.map((text) => line(`${" ".repeat(keyWidth + 4)}${text}`)),
      ];
    }),
  ];
}

/** `most`: steps that are shown. */
function lastSteps({ actor, steps, stepsMissing, nowMs }: ActorPicture, most: number): readonly Line[] {
  const shown = most === 0 ? [] : steps.slice(-most);
  const known = shown.length === 0 ? [line("  none known", "dim")] : stepLines(shown, nowMs, actor.id);
  const missing = stepsMissing === "" ? [] : [line(`  earlier ones are unknown: ${stepsMissing}`, "dim")];
  // Between the end of the recording and the first message of the feed.
  const unseen = actor.steps - (steps.at(-1)?.number ?? actor.steps);
  const later =
    unseen > 0 ? [line(`  … ${unseen} later ${unseen === 1 ? "step is" : "steps are"} unknown`, "dim")] : [];
  return [line("last steps (UTC)", "title"), ...missing, ...known, ...later];
}

/** With the transitions of its newest step, which a snapshot lacks, but not the recording. */
function withTransitions({ actor, steps }: ActorPicture): Actor {
  if (actor.transitions.length > 0) return actor;
  return { ...actor, transitions: steps.findLast(({ number }) => number === actor.steps)?.transitions ?? [] };
}

export function actorLines(picture: ActorPicture): readonly Line[] {
  const { chart, height } = picture;
  const actor = withTransitions(picture);
  const width = Math.max(widthMin, picture.width ?? widthDefault);
  const head = [...headLines(picture, width), ...waitLines(picture, width), ...timerLines(picture)];
  const context = contextLines(picture, width);
  const drawn = (detail: Detail): readonly Line[] =>
    chart === null
      ? [line(`chart ${actor.machine}`, "title"), line("  this version of Muster has no such chart", "alarm")]
      : [
          [span(`chart ${chart.id}`, "title"), span("  ● active  ▶ taken last", "dim")],
          ...chartLines({ chart, actor, width, detail }),
        ];
  const gap = line("");
  const all = (detail: Detail, most: number, withContext: boolean): readonly Line[] => [
    ...head,
    gap,
    ...drawn(detail),
    ...(withContext && context.length > 0 ? [gap, ...context] : []),
    gap,
    ...lastSteps(picture, most),
  ];
  if (height === null) return all("whole", picture.steps.length, true);
  const choices: readonly (readonly [Detail, boolean])[] = [
    ["whole", true],
    ["active", true],
    ["active", false],
    ["states", false],
  ];
  for (const [detail, withContext] of choices) {
    const least = all(detail, Math.min(stepsKept, picture.steps.length), withContext);
    if (least.length > height) continue;
    const more = picture.steps.length - Math.min(stepsKept, picture.steps.length);
    return all(detail, Math.min(stepsKept, picture.steps.length) + Math.min(more, height - least.length), withContext);
  }
  const lines = all("states", Math.min(stepsKept, picture.steps.length), false);
  const hidden = lines.length - height + 1;
  return [...lines.slice(0, height - 1), line(`… ${hidden} more lines: enlarge the terminal`, "dim")];
}
