import test from "ava";
import fc from "fast-check";
import { assign, initialTransition, setup, transition, type AnyStateMachine } from "xstate";
import { flattened } from "../../machines/flat.ts";
import { Host } from "../../runtime/host.ts";
import type { ObservedStep } from "../../runtime/observation/step.ts";
import { SimClock } from "../../runtime/sim/clock.ts";
import { SimRandom } from "../../runtime/sim/random.ts";
import { createSimTelemetry } from "../../runtime/sim/telemetry.ts";
import { SimTrace } from "../../runtime/sim/trace.ts";
import { jsonWatcherMachine, type JsonWatcherEvent } from "../../machines/json/watcher.machine.ts";

const event = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({ type: fc.constant("next.requested"), ask: fc.nat(1_000), hasNews: fc.boolean() }),
  },
  { weight: 5, arbitrary: fc.constant({ type: "news.found" }) },
  {
    weight: 1,
    arbitrary: fc.constantFrom(
      { type: "stop.requested" },
      { type: "connection.closed" },
      { type: "news.ended" },
      { type: "unheard.of" },
    ),
  },
) as fc.Arbitrary<JsonWatcherEvent>;

test("FM1: over any events a watcher's table and chart give the same results", (t) => {
  const flat = flattened(jsonWatcherMachine);
  const seen = new Set<string>();
  fc.assert(
    // More than may wait at a watcher.
    fc.property(fc.array(event, { maxLength: 200, size: "max" }), (events) => {
      let [snapshot] = initialTransition(jsonWatcherMachine);
      let state = flat.initial;
      for (const each of events) {
        // XState is not called after the end either.
        if (state.isDone) break;
        const [next, actions] = transition(jsonWatcherMachine, snapshot, each);
        const [reached, effects] = flat.step(state, each);
        t.is(reached.value, next.value as string);
        t.deepEqual(reached.context, next.context);
        t.is(reached.isDone, next.status === "done");
        t.deepEqual(
          effects.map(({ type, params }) => [type, params]),
          actions.filter(({ type }) => !type.startsWith("xstate.")).map(({ type, params }) => [type, params]),
        );
        for (const { type } of effects) seen.add(type);
        [snapshot, state] = [next, reached];
      }
    }),
    { numRuns: 200 },
  );
  t.deepEqual([...seen].toSorted(), [
    "answer",
    "awaitNews",
    "refuse",
    "release",
    "reportUnexpected",
    "stopAwaitingNews",
  ]);
});

test("FM1: over any events a watcher's table and chart have the same steps for viewers", (t) => {
  const flat = flattened(jsonWatcherMachine);
  const noEffects = { answer() {}, refuse() {}, awaitNews() {}, stopAwaitingNews() {}, release() {} };
  fc.assert(
    fc.property(fc.array(event, { maxLength: 100 }), (events) => {
      const clock = new SimClock();
      const trace = new SimTrace(clock, { keepLines: false });
      const telemetry = createSimTelemetry({ who: "host", random: new SimRandom("flat"), trace });
      const host = new Host({ clock, telemetry, onCrash: (id) => t.fail(id) });
      const actor = host.start(jsonWatcherMachine, "watcher", undefined, { effects: noEffects });
      const steps: ObservedStep[] = [];
      host.observe((step) => steps.push(step));
      let state = flat.initial;
      for (const each of events) {
        if (state.isDone) break;
        actor.send(each);
        const [reached, , taken] = flat.step(state, each);
        state = reached;
        const { transitions, guards, effects, unexpected, states, context } = steps.at(-1) as ObservedStep;
        t.deepEqual({ ...taken }, { transitions, guards, effects, unexpected });
        t.deepEqual([[state.value], state.context], [states, context]);
      }
    }),
    { numRuns: 50 },
  );
});

const parts = setup({
  actions: { act: () => undefined, one: assign({ at: () => 1 }) },
  guards: { holds: () => true },
  delays: { soon: 1 },
});
for (const [what, machine] of [
  ["a nested state", parts.createMachine({ initial: "a", states: { a: { initial: "b", states: { b: {} } } } })],
  ["a timer", parts.createMachine({ initial: "a", states: { a: { after: { soon: "b" } }, b: {} } })],
  ["an eventless transition", parts.createMachine({ initial: "a", states: { a: { always: "b" }, b: {} } })],
  ["a state that enters itself", parts.createMachine({ initial: "a", states: { a: { on: { x: { target: "a" } } } } })],
  ["an entry action in the initial state", parts.createMachine({ initial: "a", states: { a: { entry: "act" } } })],
  ["a replaced context", parts.createMachine({ initial: "a", context: () => ({}), states: { a: {} } })],
  [
    "a dynamically computed value",
    parts.createMachine({ initial: "a", states: { a: { on: { x: { actions: "one" } } } } }),
  ],
] as unknown as readonly (readonly [string, AnyStateMachine])[]) {
  test(`FM2: ${what} is rejected`, (t) => {
    t.throws(() => flattened(machine), { message: /FM2/ });
  });
}
