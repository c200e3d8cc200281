import test from "ava";
import { assign } from "xstate";
import { chart, effect } from "../../machines/chart.ts";
import { ChartRun } from "../support/chart-run.ts";

const doorMachine = chart({
  types: { context: {} as { readonly knocks: number }, events: {} as { readonly type: "knock" | "push" | "wind" } },
  effects: { ring: effect<{ times: number }>() },
  actions: { count: assign(({ context }) => ({ knocks: context.knocks + 1 })) },
  guards: { isQuiet: ({ context }) => context.knocks === 0 },
  delays: { fall: 10 },
}).createMachine({
  id: "door",
  context: { knocks: 0 },
  initial: "closed",
  ignore: ["wind"],
  states: {
    closed: { on: { knock: { actions: ["count", { type: "ring", params: { times: 1 } }] }, push: "open" } },
    open: { ignore: ["push"], on: { wind: { guard: "isQuiet", target: "closed" } }, after: { fall: "closed" } },
  },
});

test("an ignored event does nothing, in one state or in all; any other event that is not handled is reported", (t) => {
  const door = new ChartRun(doorMachine);
  t.deepEqual(door.send({ type: "wind" }).names, []);
  t.deepEqual(door.send({ type: "knock" }).effects, [{ type: "ring", params: { times: 1 } }]);
  t.deepEqual(door.send({ type: "push" }, { type: "push" }).names, []);
  t.is(door.state, "open");
  t.deepEqual(door.send({ type: "knock" }).names, ["reportUnexpected"]);
  // A guard that fails: the root ignores it.
  t.deepEqual(door.send({ type: "wind" }).names, []);
});

test("a machine says what its host must supply, and has a configuration that XState knows", (t) => {
  t.deepEqual(doorMachine.schemas, {
    effects: ["ring"],
    drawnDelays: [],
    shows: null,
  });
  t.deepEqual(doorMachine.config.states?.["open"]?.on, {
    wind: { guard: "isQuiet", target: "closed" },
    push: {},
  } as never);
  t.false(JSON.stringify(doorMachine.config).includes("ignore"));
});

const goes = { a: { on: { go: { actions: "act" } } } } as const;
test("a machine says what it shows, together with the chart that it extends", (t) => {
  const extended = chart({
    types: {
      context: {} as { readonly count: number },
      events: {} as { readonly type: "go"; readonly at: number } | { readonly type: "stop" },
    },
    shows: { context: ["count"], events: ["at"] },
  }).extend({ effects: { act: effect() }, shows: { context: ["count.low"] } });
  const machine = extended.createMachine({ id: "shown", context: { count: 0 }, initial: "a", states: goes });
  t.deepEqual((machine.schemas as { readonly shows?: unknown }).shows, {
    context: ["count", "count.low"],
    events: ["at"],
  });
  // @ts-expect-error: the context has no such field.
  chart({ types: { context: {} as { readonly count: number } }, shows: { context: ["cuont"] } });
});

test("an `always` loop ends with an error", (t) => {
  const loop = chart({ types: { context: {}, events: {} as { readonly type: "go" } } }).createMachine({
    id: "loop",
    initial: "a",
    states: { a: { on: { go: "b" } }, b: { always: "c" }, c: { always: "b" } },
  });
  t.throws(() => new ChartRun(loop).send({ type: "go" }), { message: /Infinite loop/ });
});

const types = { context: {}, events: {} as { readonly type: "go" } };
const states = { a: { on: { go: { actions: "act" } } } };
for (const [what, declared, config] of [
  ["an effect that no state uses", { effects: { act: effect(), rest: effect() } }, { states }],
  ["an action that no state uses", { effects: { act: effect() }, actions: { rest: assign({}) } }, { states }],
  ["a guard that no state uses", { effects: { act: effect() }, guards: { is: () => true } }, { states }],
  ["a delay that no state uses", { effects: { act: effect() }, delays: { soon: 1 } }, { states }],
  ["an action that is not declared", {}, { states }],
  ["a guard that is not declared", {}, { states: { a: { on: { go: { guard: "is" } } } } }],
  ["a delay that is not declared", {}, { states: { a: { after: { soon: "a" } } } }],
  ["an action that is also an effect", { effects: { act: effect() }, actions: { act: assign({}) } }, { states }],
  ["an event that is handled and ignored", {}, { states: { a: { ignore: ["go"], on: { go: "a" } } } }],
] as const) {
  test(`C1: ${what} is rejected when the chart is loaded`, (t) => {
    const load = (): unknown =>
      chart({ types, ...declared } as never).createMachine({ id: "x", initial: "a", ...config } as never);
    t.throws(load, { message: /C1/ });
  });
}
