import test from "ava";
import { setup } from "xstate";
import { effect } from "../../machines/effect.ts";
import { Host, type Inspection } from "../../runtime/host.ts";
import { SimClock } from "../../runtime/sim/clock.ts";
import { SimRandom } from "../../runtime/sim/random.ts";
import { createSimTelemetry } from "../../runtime/sim/telemetry.ts";
import { SimTrace } from "../../runtime/sim/trace.ts";

const lampMachine = setup({
  types: { events: {} as { readonly type: "pressed" | "broken" | "unknown" } },
  actions: { break: effect("break"), reportUnexpected: effect("reportUnexpected") },
}).createMachine({
  id: "lamp",
  initial: "off",
  on: { "*": { actions: "reportUnexpected" } },
  states: { off: { on: { pressed: "on", broken: { actions: "break" } } }, on: { on: { pressed: "off" } } },
});

function newHost(): { host: Host; crashes: string[] } {
  const clock = new SimClock();
  const random = new SimRandom("host");
  const telemetry = createSimTelemetry({
    who: "host",
    clock,
    random,
    trace: new SimTrace(clock, { keepLines: false }),
  });
  const crashes: string[] = [];
  return { host: new Host({ clock, telemetry, onCrash: (id) => crashes.push(id) }), crashes };
}

test("an inspector sees the transitions of actors started before and after it, and none once it is gone (H3)", (t) => {
  const { host } = newHost();
  const before = host.start(lampMachine, "lamp/before", undefined);
  const seen: Inspection[] = [];
  const inspecting = host.inspect((inspection) => seen.push(inspection));
  const after = host.start(lampMachine, "lamp/after", undefined);
  before.actor.send({ type: "pressed" });
  after.actor.send({ type: "pressed" });
  t.deepEqual(
    seen.filter(({ event }) => event === "pressed").map(({ actorId, machine, state }) => ({ actorId, machine, state })),
    [
      { actorId: "lamp/before", machine: "lamp", state: "on" },
      { actorId: "lamp/after", machine: "lamp", state: "on" },
    ],
  );
  inspecting.unsubscribe();
  const count = seen.length;
  before.actor.send({ type: "pressed" });
  t.is(seen.length, count);
});

test("an actor whose effect throws is reported, is gone, and its id is free (H1, H2)", (t) => {
  const { host, crashes } = newHost();
  const { actor } = host.start(lampMachine, "lamp/1", undefined);
  t.throws(() => host.start(lampMachine, "lamp/1", undefined), { message: /H2/ });
  actor.send({ type: "broken" });
  t.deepEqual(crashes, ["lamp/1"]);
  t.is(host.find("lamp/1"), undefined);
});

test("an event that no state handles does not stop an actor", (t) => {
  const { host, crashes } = newHost();
  const { actor } = host.start(lampMachine, "lamp/1", undefined);
  actor.send({ type: "unknown" });
  actor.send({ type: "pressed" });
  t.is(actor.getSnapshot().value, "on");
  t.deepEqual(crashes, []);
});
