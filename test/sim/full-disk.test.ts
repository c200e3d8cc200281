// The log's disk is full for a while: appends and snapshots fail; leases, reads and heartbeats do not.
import test from "ava";
import { Annotations, ConfigSpec, ControlService, CreateConfigRequest } from "../../proto/gen/messages.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import type { SimManager } from "../../simulation/managers/managers.ts";
import { ScriptedWorld } from "./scripted.ts";

/** Twice a silent node's grace period, and ten times the lease. */
const fullMs = 30_000;

test("while the log's disk is full, writes are refused with that reason and nodes keep their sessions; then everything continues", async (t) => {
  t.timeout(120_000);
  let isFull = false;
  const world: ScriptedWorld = new ScriptedWorld({
    seed: 5,
    managers: 2,
    // D1: a refused write never happens, not even later; so no record is appended while the disk is full.
    onReplica: (replica, demand) => {
      const names = new Set<string>();
      replica.watch(() => {
        if (isFull) demand("D1: a record was written while the disk was full");
        for (const { spec } of replica.all("config")) names.add(spec?.annotations?.name ?? "");
        for (const name of refused) if (names.has(name)) demand(`D1: ${name} was refused, and is there`);
      });
    },
  });
  const refused = new Set<string>();
  await world.found();
  const leader = world.leader as SimManager;
  const { rpc } = world.scene.simulation.ports("client");
  const identity = { nodeId: "client", role: "swarm-manager" as const, organization: world.managers.organization() };
  const write = async (at: SimManager, name: string): Promise<string> => {
    const spec = ConfigSpec.create({ annotations: Annotations.create({ name }), data: new Uint8Array([1]) });
    const channel = rpc.dial(at.address, identity);
    let outcome = "";
    void channel
      .unary(ControlService.methods.CreateConfig, CreateConfigRequest.create({ spec }), { timeoutMs: 10_000 })
      .then(() => "written")
      .catch((error: unknown) => (error instanceof RpcError ? `${error.code} ${error.message}` : String(error)))
      .then((text) => (outcome = text));
    await world.until("an answer", () => outcome !== "");
    channel.close();
    return outcome;
  };
  const session = () => [...(leader.running?.store.all("session") ?? [])][0];
  t.is(await write(leader, "before"), "written");
  const [before, epoch] = [session(), leader.running?.store.epoch];
  // The append is on its way to the other manager.
  await world.pass(1_000);

  world.scene.simulation.nats.isDiskFull = isFull = true;
  for (const [n, each] of world.managers.all.entries()) {
    refused.add(`during${n}`);
    const outcome = await write(each, `during${n}`);
    t.regex(outcome, new RegExp(`^${Status.UNAVAILABLE} .*the log's disk is full`));
    t.notRegex(outcome, /may still happen/);
  }
  await world.pass(fullMs);
  t.true(leader.running?.isLeading(), "leases are renewed");
  for (const each of world.managers.all) {
    t.true(world.isReadyAt(each));
    t.is(each.running?.store.byName("config", "before")?.spec?.data?.length, 1, "reads succeed");
  }
  t.deepEqual(session(), before);

  world.scene.simulation.nats.isDiskFull = isFull = false;
  for (const [n, each] of world.managers.all.entries()) t.is(await write(each, `after${n}`), "written");
  await world.pass(fullMs);
  t.is(leader.running?.store.epoch, epoch, "the leader is unchanged");
  t.deepEqual(session(), before);
  const names = [...(leader.running?.store.all("config") ?? [])].map(({ spec }) => spec?.annotations?.name ?? "");
  t.deepEqual(names.toSorted(), ["after0", "after1", "before"]);
});
