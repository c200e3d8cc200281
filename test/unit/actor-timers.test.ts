// Timers of actors, which are kept in place of XState's.
import test from "ava";
import { createActor, createMachine } from "xstate";
import { armedIn, keepTimers } from "../../runtime/steps/actor-timers.ts";
import { SimClock } from "../../runtime/sim/clock.ts";

/** A chart with several timers at a time, some under one name after the other. */
const machine = createMachine({
  id: "waiting",
  type: "parallel",
  states: {
    short: {
      initial: "on",
      states: { on: { after: { 10: "off" }, on: { again: { target: "on", reenter: true } } }, off: {} },
    },
    long: { initial: "on", states: { on: { after: { 30: "off" }, on: { leave: "off" } }, off: {} } },
    longest: { initial: "on", states: { on: { after: { 90: "off" } }, off: {} } },
  },
});

function started() {
  const clock = new SimClock();
  const root = createActor(createMachine({ id: "root" }));
  keepTimers(clock, root.system);
  root.start();
  const actors = ["a", "b"].map((id) => createActor(machine, { id, parent: root } as never).start());
  const armed = (): readonly string[] =>
    Array.from(armedIn(root.system), ({ delay, source }) => `${source.id} ${delay}`).toSorted();
  return { clock, armed, a: actors[0] as (typeof actors)[number], root };
}

test("a timer fires at its time, is armed again, and is cancelled, each for its actor alone", (t) => {
  const { a, armed, clock } = started();
  t.deepEqual(armed(), ["a 10", "a 30", "a 90", "b 10", "b 30", "b 90"]);
  a.send({ type: "leave" });
  t.deepEqual(armed(), ["a 10", "a 90", "b 10", "b 30", "b 90"]);
  clock.advance(5);
  a.send({ type: "again" });
  clock.advance(6);
  t.deepEqual(armed(), ["a 10", "a 90", "b 30", "b 90"]);
  t.deepEqual(a.getSnapshot().value, { short: "on", long: "off", longest: "on" });
  clock.advance(5);
  t.deepEqual(a.getSnapshot().value, { short: "off", long: "off", longest: "on" });
  clock.advance(80);
  t.deepEqual(armed(), []);
});

test("an actor that ends takes its timers along, and leaves those of others", (t) => {
  const { a, armed, clock } = started();
  a.system.scheduler.cancelAll(a);
  t.deepEqual(armed(), ["b 10", "b 30", "b 90"]);
  clock.advance(100);
  t.deepEqual(a.getSnapshot().value, { short: "on", long: "on", longest: "on" });
});

test("the list of armed timers has what they lead to, and when they were armed", (t) => {
  const { clock, root } = started();
  const [first] = armedIn(root.system);
  t.is(first?.armedAtMs, clock.now());
  t.regex(first?.event.type ?? "", /^xstate\.after\.\d+\.waiting\./);
});
