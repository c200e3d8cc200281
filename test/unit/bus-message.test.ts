// Decoding what several parts of a manager hear.
import test from "ava";
import { managerBeatOf } from "../../actors/bus-message.ts";
import { ManagerBeat } from "../../proto/gen/messages.ts";
import { Simulation } from "../../runtime/sim/simulation.ts";
import { managerBeat } from "../../runtime/subjects.ts";

const subject = managerBeat("m1");
const beatOf = (applied: number) => ManagerBeat.encode(ManagerBeat.create({ managerId: "m1", applied }));

test("a beat is decoded once for all who hear it, and each beat anew", (t) => {
  const env = new Simulation({ seed: 1 }).ports("m2");
  const [first, second] = [beatOf(1), beatOf(2)];
  const heard = managerBeatOf(env, { subject, data: first });
  t.is(managerBeatOf(env, { subject, data: first }), heard);
  t.is(heard?.applied, 1);
  t.is(managerBeatOf(env, { subject, data: second })?.applied, 2);
  t.is(managerBeatOf(env, { subject, data: first })?.applied, 1);
});

test("a beat that cannot be decoded counts once, however many hear it", (t) => {
  const env = new Simulation({ seed: 1 }).ports("m2");
  const data = new Uint8Array([255]);
  for (let hearer = 0; hearer < 3; hearer += 1) t.is(managerBeatOf(env, { subject, data }), null);
  t.is(env.telemetry.reading("muster_bus_refused_total", { subject: "manager.beat", reason: "malformed" }), 1);
});
