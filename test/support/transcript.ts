/**
 * Transcripts: text files of commands, each followed by what came out, which a reviewer reads as a diff. A line at the margin is
 * a command, an indented one is output, `#` begins a comment:
 *
 *   event stream.broken
 *     0s stream.broken at=0s graceMs=15s: serving.connected -> serving.disconnected
 *       timer reconnectGrace due 6s
 *
 * `replay` runs the commands in order and returns the text with the output of this run. `chartScript` runs a chart with
 * XState's pure transitions, on a clock that only `advance` moves.
 */
import type { AnyStateMachine, StateValue } from "xstate";
import { assert } from "../../lib/assert.ts";
import { ChartRun, timerName, type Effect } from "./chart-run.ts";

type Value = string | number | boolean;
export type Fields = Readonly<Record<string, Value>>;

export interface Command {
  readonly name: string;
  /** Without `name` and `fields`. */
  readonly words: readonly string[];
  /** Words of the form `key=value`. `6s` and `150ms` are milliseconds. */
  readonly fields: Fields;
}

/** Runs a command and returns its output, a line each. */
export type Script = (command: Command) => readonly string[] | Promise<readonly string[]>;

/** Text with the output of this run; comments and commands are copied. */
export async function replay(text: string, run: Script): Promise<string> {
  const lines: string[] = [];
  for (const line of text.split("\n")) {
    if (line.startsWith("  ")) continue;
    lines.push(line);
    if (line === "" || line.startsWith("#")) continue;
    const output = await run(commandOf(line));
    lines.push(...(output.length === 0 ? ["nothing"] : output).map((each) => `  ${each}`));
  }
  return lines.join("\n");
}

/** Words are separated by spaces; a quoted part keeps its own. */
function commandOf(line: string): Command {
  const [name = "", ...rest] = line.match(/(?:[^\s"]|"[^"]*")+/g) ?? [];
  const isField = (word: string): boolean => /^[\w.]+=/.test(word);
  const fields = rest.filter(isField).map((word) => {
    const at = word.indexOf("=");
    return [word.slice(0, at), valueOf(word.slice(at + 1))] as const;
  });
  return { name, words: rest.filter((word) => !isField(word)), fields: Object.fromEntries(fields) };
}

function valueOf(word: string): Value {
  if (word === "true" || word === "false") return word === "true";
  return msOf(word) ?? word.replaceAll('"', "");
}

/** `6s`, `150ms`, or a plain number; null if it is none of them. */
export function msOf(word: string): number | null {
  const [, digits, unit] = /^(-?\d+(?:\.\d+)?)(ms|s|m)?$/.exec(word) ?? [];
  if (digits === undefined) return null;
  return Math.round(Number(digits) * (unit === "s" ? 1_000 : unit === "m" ? 60_000 : 1) * 1_000) / 1_000;
}

export function durationText(ms: number): string {
  return ms < 1_000 && ms !== 0 ? `${Math.round(ms * 1_000) / 1_000}ms` : `${Math.round(ms) / 1_000}s`;
}

/** Such as ` at=5s reason="no leader"`; empty without fields. */
export function fieldsText(fields: object): string {
  return Object.entries(fields)
    .map(([key, value]) => {
      if (typeof value === "number")
        return ` ${key}=${value >= 0 && /^at$|At$|Ms$/.test(key) ? durationText(value) : value}`;
      return ` ${key}=${typeof value === "string" && /^[^\s"]+$/.test(value) ? value : JSON.stringify(value)}`;
    })
    .join("");
}

/** The innermost states; several in a parallel chart. */
function leavesOf(value: StateValue | undefined, above = ""): readonly string[] {
  if (value === undefined) return [];
  if (typeof value === "string") return [above + value];
  return Object.entries(value).flatMap(([name, inner]) => leavesOf(inner, `${above}${name}.`));
}

/** `suspect -> checking`, or one state if nothing changed; of a parallel chart only the changed regions. */
export function changeText(before: StateValue | undefined, after: StateValue | undefined): string {
  const [from, to] = [leavesOf(before), leavesOf(after)];
  const left = from.filter((state) => !to.includes(state));
  const entered = to.filter((state) => !from.includes(state));
  if (left.length + entered.length === 0) return to.join(", ");
  return `${left.join(", ")} -> ${entered.join(", ")}`.trim();
}

export function eventText({ type, ...fields }: { readonly type: string }): string {
  if (type === "xstate.init" || type === "xstate.stop") return type.slice("xstate.".length);
  return `${timerName(type)}${fieldsText(fields)}`;
}

// A chart alone.

/** Fields of each of a chart's events. */
export type Samples<Event extends { readonly type: string }> = {
  readonly [Type in Event["type"]]: Omit<Extract<Event, { readonly type: Type }>, "type">;
};

interface ChartScriptOptions<Input, Context, Event extends { readonly type: string }> {
  readonly machine: AnyStateMachine;
  /** For `start`, which may replace fields. */
  readonly input: Input;
  /** Each event with the fields that it has unless the command replaces them; `now` is the time since `start`. */
  readonly events: (now: number, context: Context) => Samples<Event>;
}

/**
 * Commands: `start FIELDS`, `event TYPE FIELDS`, `advance TIME`, and `stall TIME`: the process stands still, so that its timers
 * are overdue.
 */
export function chartScript<Input, Context, Event extends { readonly type: string }>({
  machine,
  input,
  events,
}: ChartScriptOptions<Input, Context, Event>): Script {
  let run: ChartRun<AnyStateMachine> | null = null;
  let told = 0;

  /** The steps since the last call. */
  function news({ steps }: ChartRun<AnyStateMachine>): readonly string[] {
    const lines = steps.slice(told).flatMap(({ at, event, before, after, actions }) => {
      const what = `${durationText(at)} ${event === null ? "start" : eventText(event)}`;
      return [`${what}: ${changeText(before, after)}`, ...actions.map((action) => `  ${effectText(action, at)}`)];
    });
    told = steps.length;
    return lines;
  }

  function effectText({ type, params }: Effect, at: number): string {
    if (type === "xstate.raise") {
      const { id, delay } = params as { readonly id: string; readonly delay: number };
      return `timer ${timerName(id)} due ${durationText(at + delay)}`;
    }
    if (type === "xstate.cancel") return `timer ${timerName((params as { readonly sendId: string }).sendId)} cancelled`;
    return `${type}${fieldsText(params ?? {})}`;
  }

  return ({ name, words: [word = ""], fields }) => {
    if (name === "start") {
      told = 0;
      run = new ChartRun(machine, replaced(input as object, fields));
      return news(run);
    }
    assert(run !== null, "a transcript begins with start");
    if (name === "stall") {
      run.stall(msOf(word) ?? NaN);
      return [`it is ${durationText(run.now)}`];
    }
    if (name === "advance") return news(run.advance(msOf(word) ?? NaN));
    assert(name === "event", `${name} is a command of charts: start, event, advance, stall`);
    const sample = (events(run.now, run.snapshot.context as Context) as Record<string, object>)[word];
    assert(sample !== undefined, `${word} is an event of this chart`);
    return news(run.send({ type: word, ...replaced(sample, fields) }));
  };
}

/** Throws for a field that the original does not have, or with another type. */
function replaced(original: object, fields: Fields): object {
  const known = original as Record<string, unknown>;
  for (const [key, value] of Object.entries(fields))
    assert(typeof known[key] === typeof value, `${key}=${value} fits a field of ${JSON.stringify(original)}`);
  return { ...original, ...fields };
}
