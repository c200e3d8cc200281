import test from "ava";
import { chart, effect } from "../../machines/chart.ts";
import { ActorSystems } from "../../runtime/actor-systems.ts";
import { Host } from "../../runtime/host.ts";
import type { ObservedStep } from "../../runtime/observation/step.ts";
import { SimClock } from "../../runtime/sim/clock.ts";
import { SimRandom } from "../../runtime/sim/random.ts";
import { createSimTelemetry } from "../../runtime/sim/telemetry.ts";
import { SimTrace } from "../../runtime/sim/trace.ts";

const lampMachine = chart({
  types: { context: {}, events: {} as { readonly type: "pressed" | "broken" | "unknown" } },
  effects: { break: effect() },
}).createMachine({
  id: "lamp",
  initial: "off",
  states: { off: { on: { pressed: "on", broken: { actions: "break" } } }, on: { on: { pressed: "off" } } },
});

const kettleMachine = chart({
  types: { context: {}, events: {} as { readonly type: "filled" } },
  effects: { whistle: effect<{ times: number }>() },
  drawnDelays: { boil: 1_000 },
}).createMachine({
  id: "kettle",
  initial: "heating",
  states: {
    heating: { after: { boil: "boiling" } },
    boiling: { entry: { type: "whistle", params: { times: 3 } }, on: { filled: "heating" } },
  },
});

const shatter = (): void => {
  throw new Error("broken");
};
const lamp = { effects: { break: shatter } };
const kettle = { effects: { whistle() {} }, draw: (boundMs: number) => boundMs };

function newHost(): { host: Host; clock: SimClock; crashes: string[] } {
  const clock = new SimClock();
  const random = new SimRandom("host");
  const telemetry = createSimTelemetry({
    who: "host",
    random,
    trace: new SimTrace(clock, { keepLines: false }),
  });
  const crashes: string[] = [];
  return { host: new Host({ clock, telemetry, onCrash: (id) => crashes.push(id) }), clock, crashes };
}

test("an observer sees the steps of actors started before and after it, and none once it is removed (H3)", (t) => {
  const { host } = newHost();
  const before = host.start(lampMachine, "lamp/before", undefined, lamp);
  t.is(host.look("lamp/before"), undefined);
  const seen: ObservedStep[] = [];
  const observing = host.observe((step) => seen.push(step));
  const after = host.start(lampMachine, "lamp/after", undefined, lamp);
  before.send({ type: "pressed" });
  after.send({ type: "pressed" });
  after.stop();
  t.deepEqual(
    seen.map(({ id, machine, event, states, steps, status }) => [id, machine.id, event.type, states[0], steps, status]),
    [
      ["lamp/after", "lamp", "xstate.init", "off", 1, "active"],
      ["lamp/before", "lamp", "pressed", "on", 1, "active"],
      ["lamp/after", "lamp", "pressed", "on", 2, "active"],
      ["lamp/after", "lamp", "xstate.stop", "on", 3, "stopped"],
    ],
  );
  observing.unsubscribe();
  const count = seen.length;
  before.send({ type: "pressed" });
  t.is(seen.length, count);
  t.is(host.look("lamp/before"), undefined);
});

test("an observer that throws disturbs neither actors nor other observers (H6)", (t) => {
  const { host, crashes } = newHost();
  host.observe(() => {
    throw new Error("broken observer");
  });
  const seen: string[] = [];
  host.observe(({ event }) => seen.push(event.type));
  const actor = host.start(lampMachine, "lamp/1", undefined, lamp);
  actor.send({ type: "pressed" });
  t.deepEqual(seen, ["xstate.init", "pressed"]);
  t.is(actor.snapshot.value, "on");
  t.deepEqual(crashes, []);
});

test("an actor whose effect throws is reported and removed, and its id is free (H1, H2)", (t) => {
  const { host, crashes } = newHost();
  const actor = host.start(lampMachine, "lamp/1", undefined, lamp);
  t.throws(() => host.start(lampMachine, "lamp/1", undefined, lamp), { message: /H2/ });
  actor.send({ type: "broken" });
  t.deepEqual(crashes, ["lamp/1"]);
  t.is(host.find("lamp/1"), undefined);
});

test("an event that no state handles does not stop an actor", (t) => {
  const { host, crashes } = newHost();
  const actor = host.start(lampMachine, "lamp/1", undefined, lamp);
  actor.send({ type: "unknown" });
  actor.send({ type: "pressed" });
  t.is(actor.snapshot.value, "on");
  t.deepEqual(crashes, []);
});

test("actors are independent: each has its own timers, and the end of one does not affect others", (t) => {
  const { host, clock } = newHost();
  const kettles = Array.from({ length: 200 }, (_, at) => host.start(kettleMachine, `kettle/${at}`, undefined, kettle));
  const seen: string[] = [];
  host.observe(({ id, event, states }) => {
    if (event.type.startsWith("xstate.after") && states[0] === "boiling") seen.push(id);
  });
  for (const [at, kettle] of kettles.entries()) if (at % 3 !== 0) kettle.stop();
  kettles[1]?.stop();
  host.start(kettleMachine, "kettle/1", undefined, kettle);
  clock.advance(1_000);
  const kept = kettles.filter((_, at) => at % 3 === 0).map(({ id }) => id);
  t.deepEqual(seen.toSorted(), [...kept, "kettle/1"].toSorted());
  t.true(kettles.every((actor, at) => actor.snapshot.value === (at % 3 === 0 ? "boiling" : "heating")));
  host.stopAll();
  t.deepEqual([...host.ids()], []);
  t.true(kettles.every((actor) => actor.snapshot.status === "stopped"));
});

test("owners share one machine, each with its own effects, draws and `this`", (t) => {
  const { host, clock } = newHost();
  const heard: string[] = [];
  function whistle(this: { name: string }, { times }: { times: number }, actor: { readonly id: string }) {
    heard.push(`${clock.now()} ${this.name} ${times} ${actor.id}`);
  }
  host.start(kettleMachine, "kettle/a", undefined, { effects: { whistle }, self: { name: "a" }, draw: () => 10 });
  host.start(kettleMachine, "kettle/b", undefined, { effects: { whistle }, self: { name: "b" }, draw: (ms) => ms / 2 });
  const from = clock.now();
  clock.advance(1_000);
  t.deepEqual(heard, [`${from + 10} a 3 kettle/a`, `${from + 500} b 3 kettle/b`]);
});

test("hosts share a provided machine, and each actor acts for the owner and by the clock of its own host", (t) => {
  const whistled: string[] = [];
  const start = (name: string, boilMs: number) => {
    const { clock, host } = newHost();
    const owner = { effects: { whistle: () => void whistled.push(name) }, draw: () => boilMs };
    const actor = host.start(kettleMachine, "kettle", undefined, owner);
    return { actor, clock, machine: host.find("kettle")?.logic };
  };
  const [slow, quick] = [start("slow", 500), start("quick", 100)];
  t.is(slow.machine, quick.machine);
  slow.clock.advance(200);
  t.deepEqual(whistled, []);
  quick.clock.advance(200);
  t.deepEqual(whistled, ["quick"]);
  t.is(slow.actor.snapshot.value, "heating");
  slow.clock.advance(400);
  t.deepEqual(whistled, ["quick", "slow"]);
});

test("an owner that lacks an effect, its params or a draw does not compile, and does not start an actor (H4)", (t) => {
  const { host } = newHost();
  // @ts-expect-error Its effect `break` is missing.
  t.throws(() => host.start(lampMachine, "lamp/1", undefined, { effects: {} }), { message: /H4: effect break/ });
  // @ts-expect-error A kettle's delay is drawn.
  t.throws(() => host.start(kettleMachine, "kettle/1", undefined, { effects: kettle.effects }), {
    message: /H4: .*draw/,
  });
  const whistle = ({ times }: { times: string }): string => times;
  // @ts-expect-error The effect's params are numbers.
  host.start(kettleMachine, "kettle/2", undefined, { ...kettle, effects: { whistle } });
  t.deepEqual([...host.ids()], ["kettle/2"]);
});

test.serial("an actor that was stopped gets no events, neither now nor from an earlier turn (H5)", (t) => {
  const { host, clock } = newHost();
  const actor = host.start(lampMachine, "lamp/1", undefined, lamp);
  actor.sendSoon({ type: "pressed" });
  t.is(actor.snapshot.value, "off");
  clock.advance(1);
  t.is(actor.snapshot.value, "on");
  // XState warns of each event that reaches a stopped actor.
  const warnings: unknown[] = [];
  const output = globalThis.console;
  const { warn } = output;
  output.warn = (...parts) => warnings.push(parts);
  try {
    actor.sendSoon({ type: "pressed" });
    actor.stop();
    actor.send({ type: "pressed" });
    clock.advance(1);
  } finally {
    output.warn = warn;
  }
  t.deepEqual(warnings, []);
});

test("a fixed number of actors share a system, and one that has lost all of them is not reused (Y1, Y2)", (t) => {
  const systems = new ActorSystems(new SimClock(), (id) => t.fail(id));
  const entered = Array.from({ length: 130 }, () => systems.enter());
  t.is(new Set(entered).size, 3);
  t.deepEqual([entered[0]?.actors, entered.at(-1)?.actors], [64, 2]);
  for (const system of entered.slice(-2)) systems.leave(system);
  t.not(systems.enter(), entered.at(-1));
});
