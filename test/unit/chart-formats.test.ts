// Charts in the formats of other tools: each export is read back, and behaves as its chart does.
import test from "ava";
import { createMachine, type AnyStateMachine } from "xstate";
import { allCharts } from "../../cli/charts.ts";
import { chartData, type NamedData, type StateData } from "../../cli/charts/chart-data.ts";
import { scxmlOf } from "../../cli/charts/scxml.ts";
import { statelyMachineOf } from "../../cli/charts/stately.ts";
import { xstateConfigOf } from "../../cli/charts/xstate.ts";
import { charts as command } from "../../cli/charts.ts";
import { readScxml } from "../support/scxml-reader.ts";
import { compareWalks, scxmlWalker, xstateWalker } from "../support/chart-walk.ts";

const charts = await allCharts();

/** Without a function: JSON has no computed params. */
const plain = (named: NamedData): NamedData => ({ ...named, isComputed: false });

function withoutComputed(state: StateData): StateData {
  return {
    ...state,
    entry: state.entry.map(plain),
    exit: state.exit.map(plain),
    transitions: state.transitions.map((transition) => ({
      ...transition,
      guard: transition.guard === null ? null : plain(transition.guard),
      actions: transition.actions.map(plain),
    })),
    states: state.states.map(withoutComputed),
  };
}

/** Without the summary, which describes a root that has no description. */
const comparable = (state: StateData, summary: string): StateData => ({
  ...state,
  description: state.description === summary ? "" : state.description,
});

const jsonOf = (value: unknown): Record<string, unknown> => JSON.parse(JSON.stringify(value)) as never;

test("xstate: createMachine takes every chart, and makes the same chart of it", (t) => {
  for (const { name, machine, summary } of charts) {
    const config = xstateConfigOf(machine, summary);
    t.deepEqual(jsonOf(config), config as never, `${name} is plain JSON`);
    const again = createMachine(config as never);
    t.deepEqual(comparable(chartData(again), summary), withoutComputed(chartData(machine)), name);
    compareWalks(t, name, xstateWalker(machine), xstateWalker(again as AnyStateMachine));
  }
});

/** Stately's specification as a config of XState: its `xstate` profile has the same fields, and `key` for the id. */
const fromStately = (document: Readonly<Record<string, unknown>>): AnyStateMachine =>
  createMachine({ ...document, id: document["key"] } as never) as AnyStateMachine;

test("stately: every chart is a document of the specification, and makes the same chart again", (t) => {
  for (const { name, machine, summary } of charts) {
    const document = jsonOf(statelyMachineOf(chartData(machine), summary, machine.config.context));
    checkStately(document, name);
    const again = fromStately(document);
    t.deepEqual(comparable(chartData(again), summary), withoutComputed(chartData(machine)), name);
  }
});

test("scxml: every chart is read back as the same chart, and another implementation runs it alike", (t) => {
  for (const { name, machine, summary } of charts) {
    const xml = scxmlOf(chartData(machine), summary);
    t.deepEqual(readScxml(xml), chartData(machine), name);
    compareWalks(t, name, xstateWalker(machine), scxmlWalker(xml, machine.id));
  }
});

/** Charts with what those of Muster do not use today. */
const rare = createMachine({
  id: "rare",
  initial: "a",
  states: {
    a: {
      entry: { type: "note", params: { text: `<"&'>` } },
      on: {
        go: { target: "b", guard: { type: "may", params: { text: `a && "b" < c` } } },
        "go.far": "c",
        "go.*": "last",
      },
      after: { 1500: "b" },
    },
    b: {
      initial: "one",
      states: {
        one: { on: { next: "two" } },
        two: { type: "final" },
        kept: { type: "history", history: "deep", target: "one" },
      },
      on: { again: { target: "b" }, restart: { target: "b", reenter: true } },
      onDone: { target: "c", description: "Both are done." },
    },
    c: { type: "parallel", states: { x: { on: { back: "#rare.b.kept" } }, y: {} }, on: { "*": "last" } },
    last: { type: "final" },
  },
});

test("scxml: history, events that begin like others, own targets and marks of XML survive", (t) => {
  const xml = scxmlOf(chartData(rare), "");
  t.deepEqual(readScxml(xml), chartData(rare));
  compareWalks(t, "rare", xstateWalker(rare), scxmlWalker(xml, "rare"));
  t.regex(xml, /event="go" cond="_event\.name === 'go' &amp;&amp; may\(/);
  t.throws(() => readScxml(xml.slice(0, -20)), { message: /unclosed tag/ });
});

const closed = {
  machine: ["key", "profile", "context"],
  state: [
    "description",
    "type",
    "initial",
    "states",
    "on",
    "after",
    "always",
    "onDone",
    "entry",
    "exit",
    "tags",
    "meta",
    "history",
    "target",
  ],
  transition: ["target", "guard", "actions", "reenter", "description"],
};

/** The structural rules of Stately's specification; throws for the first that is broken. */
function checkStately(document: Readonly<Record<string, unknown>>, name: string): void {
  type Json = Readonly<Record<string, unknown>>;
  const fail = (what: string): never => {
    throw new Error(`${name}: ${what}`);
  };
  const key = document["key"] as string;
  if (key === "" || key.includes(".") || key.startsWith("#")) fail(`key "${key}"`);
  const ids = new Set<string>();
  const references: string[] = [];
  const known = (object: Json, keys: readonly string[], where: string): void => {
    for (const field of Object.keys(object)) if (!keys.includes(field)) fail(`unknown field ${field} in ${where}`);
  };
  const list = (value: unknown): readonly Json[] => (value === undefined ? [] : (value as readonly Json[]));
  const visit = (state: Json, id: string, more: readonly string[]): void => {
    ids.add(id);
    known(state, [...closed.state, ...more], id);
    const states = (state["states"] ?? {}) as Readonly<Record<string, Json>>;
    if (state["initial"] !== undefined && !((state["initial"] as string) in states)) fail(`initial of ${id}`);
    for (const event of Object.keys((state["on"] ?? {}) as object))
      if (/\*/.test(event.replace(/(?:^|\.)\*$/, ""))) fail(`descriptor ${event} of ${id}`);
    const groups = [state["on"], state["after"]].flatMap((map) =>
      Object.values((map ?? {}) as Record<string, unknown>),
    );
    for (const transition of [...groups, state["always"], state["onDone"]].flatMap(list)) {
      known(transition, closed.transition, `a transition of ${id}`);
      references.push(...[(transition["target"] ?? []) as string | string[]].flat());
      for (const action of [
        ...list(transition["actions"]),
        ...(transition["guard"] === undefined ? [] : [transition["guard"] as Json]),
      ])
        if (typeof action["type"] !== "string") fail(`an action or guard of ${id}`);
    }
    for (const action of [...list(state["entry"]), ...list(state["exit"])])
      if (typeof action["type"] !== "string") fail(`an action of ${id}`);
    for (const [child, inner] of Object.entries(states)) visit(inner, `${id}.${child}`, []);
  };
  visit(document, key, closed.machine);
  for (const reference of references) if (!ids.has(reference.slice(1))) fail(`reference ${reference}`);
}

test("charts prints the formats, and refuses several documents in one", async (t) => {
  const lines: string[] = [];
  const shell = { print: (line: string) => lines.push(line), now: () => 0 } as never;
  await command.run("charts", ["--format", "xstate", "session"], shell);
  t.like(JSON.parse(lines.splice(0).join("\n")), { id: "session", initial: "starting" });
  await command.run("charts", ["--format", "stately", "session", "task"], shell);
  t.deepEqual(
    lines.splice(0).map((text) => (JSON.parse(text) as { key: string }).key),
    ["session", "task"],
  );
  await command.run("charts", ["--format", "scxml", "task"], shell);
  t.regex(lines.splice(0).join("\n"), /^<\?xml .*\n<scxml .*name="task"/);
  await t.throwsAsync(command.run("charts", ["--format", "scxml"], shell), {
    message: /^--format scxml writes one document: name one chart instead of \d+ \(see 'muster charts'\)$/,
  });
});
