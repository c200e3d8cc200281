/**
 * A client's write that timed out, followed by its next write.
 *
 * S71: a client's writes take effect in the order of their answers: a write that timed out has happened before the next one is
 *      acknowledged, or never happens. A write that the client cancelled happens within two seconds, or never.
 */
import test from "ava";
import { Annotations, ConfigSpec, ControlService, CreateConfigRequest } from "../../proto/gen/messages.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import type { SimManager } from "../../simulation/managers/managers.ts";
import { ScriptedWorld } from "./scripted.ts";

const { CreateConfig } = ControlService.methods;

/** Maximum duration of an attempt of the proposer, plus the way to the server. */
const cancelledMs = 2_100;

interface Answer {
  status: number | null;
}

function personOf(world: ScriptedWorld) {
  return (manager: SimManager, name: string, timeoutMs: number): { answer: Answer; hangUp: () => void } => {
    const answer: Answer = { status: null };
    const channel = world.dial(manager);
    const spec = ConfigSpec.create({ annotations: Annotations.create({ name }), data: new Uint8Array(1) });
    channel.unary(CreateConfig, CreateConfigRequest.create({ spec }), { timeoutMs }).then(
      () => (answer.status = Status.OK),
      (error: unknown) => (answer.status = error instanceof RpcError ? error.code : -1),
    );
    return { answer, hangUp: () => channel.close() };
  };
}

async function founded(seed: number) {
  const world = new ScriptedWorld({ seed, managers: 2 });
  await world.found();
  const leader = world.leader as SimManager;
  const follower = world.managers.all.find((each) => each !== leader) as SimManager;
  const versionOf = (name: string): number | null =>
    leader.running?.store.byName("config", name)?.meta?.version?.index ?? null;
  /** S71 */
  const check = (): string | null => {
    const [first, second] = [versionOf("first"), versionOf("second")];
    return first !== null && second !== null && first > second
      ? "S71: the first write took effect after the second"
      : null;
  };
  return { world, leader, follower, check, versionOf, person: personOf(world) };
}

for (const [how, timeoutMs] of [
  ["answered with a deadline", 3_000],
  ["cancelled", 60_000],
] as const) {
  test(`S71: a write that was ${how} while its manager was cut off never takes effect after the next one`, async (t) => {
    t.timeout(60_000);
    for (const seed of [1, 2, 3]) {
      const { world, leader, follower, check, person, versionOf } = await founded(seed);
      world.cut(follower.process.name, "nats");
      const first = person(follower, "first", timeoutMs);
      await world.pass(3_100);
      first.hangUp();
      await world.pass(how === "cancelled" ? cancelledMs : 100);
      t.not(first.answer.status, null);
      t.not(first.answer.status, Status.OK);
      const second = person(leader, "second", 10_000);
      await world.until("the second answer", () => second.answer.status !== null);
      t.is(second.answer.status, Status.OK);
      world.heal(follower.process.name, "nats");
      await world.pass(20_000);
      t.is(check(), null, `seed ${seed}`);
      t.is(versionOf("first"), null, "it never reached the leader");
    }
  });
}

test("S71: a write that times out in the leader's queue is dropped", async (t) => {
  t.timeout(60_000);
  for (const seed of [1, 2, 3]) {
    const { world, leader, follower, check, person } = await founded(seed);
    const { nats } = world.scene.simulation;
    // The log does not answer: writes after the one in progress wait in the ledger.
    nats.isLogSilent = true;
    const before = person(leader, "before", 60_000);
    await world.pass(100);
    const first = person(seed === 1 ? follower : leader, "first", 2_000);
    await world.until("the deadline", () => first.answer.status !== null);
    t.is(first.answer.status, Status.DEADLINE_EXCEEDED);
    nats.isLogSilent = false;
    const second = person(leader, "second", 20_000);
    await world.until("the second answer", () => second.answer.status !== null && before.answer.status !== null);
    await world.pass(20_000);
    t.is(check(), null, `seed ${seed}`);
    t.is(leader.running?.store.byName("config", "first"), undefined);
  }
});
