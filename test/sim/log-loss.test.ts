// NATS and a manager lose power together before NATS has synced: the loss of acknowledged writes must be reported.
import test from "ava";
import {
  Annotations,
  ConfigSpec,
  ControlService,
  CreateConfigRequest,
  CreateServiceRequest,
  GlobalService,
  ListConfigsRequest,
  NodeRole,
} from "../../proto/gen/messages.ts";
import type { SimManager } from "../../simulation/managers/managers.ts";
import { ScriptedWorld } from "./scripted.ts";
import { simService } from "../../simulation/workloads/services.ts";

const { CreateConfig, ListConfigs } = ControlService.methods;
const seeds = [1, 2, 3, 4, 5, 6, 7, 8];

function clientOf(world: ScriptedWorld) {
  return {
    create: async (manager: SimManager, name: string): Promise<void> => {
      const channel = world.dial(manager);
      const spec = ConfigSpec.create({ annotations: Annotations.create({ name }), data: new Uint8Array(1) });
      await channel.unary(CreateConfig, CreateConfigRequest.create({ spec }), { timeoutMs: 10_000 });
      channel.close();
    },
    names: async (manager: SimManager): Promise<readonly string[]> => {
      const channel = world.dial(manager);
      const { configs } = await channel.unary(ListConfigs, ListConfigsRequest.create({}), { timeoutMs: 10_000 });
      channel.close();
      return configs.map(({ spec }) => spec?.annotations?.name ?? "");
    },
  };
}

test("after a power failure, a log that lost acknowledged writes is refused until the loss is accepted", async (t) => {
  t.timeout(60_000);
  let lost = 0;
  for (const seed of seeds) {
    const world = new ScriptedWorld({ seed, managers: 1 });
    await world.found();
    const { nats, trace } = world.scene.simulation;
    const manager = world.managers.all[0] as SimManager;
    const client = clientOf(world);
    await world.pass(2_000);
    nats.sync();
    // Each write is acknowledged, and the power fails with the last answer.
    const writes = 1 + (seed % 4);
    for (let at = 1; at <= writes; at += 1) {
      let isDone = false;
      void client.create(manager, `c${at}`).then(() => (isDone = true));
      await world.until("the answer", () => isDone);
    }
    const acknowledged = manager.memory.newestAcknowledged;
    t.true(acknowledged > 0);
    nats.crash({ loseTail: true });
    manager.process.crash({ losePower: true });
    const isLost = nats.last < acknowledged;
    await world.pass(1_000);
    nats.start();
    const refused = (): number => trace.marks.get("manager.refused.log") ?? 0;
    manager.process.start();
    if (!isLost) {
      await world.until("the manager to serve", () => manager.running?.isServing() === true);
      t.is(refused(), 0, `seed ${seed}: nothing was lost`);
      continue;
    }
    lost += 1;
    await world.until("the manager to refuse the log", () => refused() === 1);
    t.true(manager.acceptsLogLoss, "its operator now starts it with the flag");
    await world.until("the manager to serve", () => manager.running?.isServing() === true);
    let names: readonly string[] | null = null;
    void client.names(manager).then((found) => (names = found));
    await world.until("a list", () => names !== null);
    t.true((names as unknown as readonly string[]).length < writes, `seed ${seed}`);
  }
  t.true(lost >= 4, `${lost} of the seeds lost something`);
});

test("managers exit when the log goes back under them, and refuse it at the next start", async (t) => {
  t.timeout(60_000);
  for (const seed of seeds.slice(0, 3)) {
    const world = new ScriptedWorld({ seed, managers: 2 });
    await world.found();
    const { nats, trace } = world.scene.simulation;
    const client = clientOf(world);
    await world.pass(2_000);
    nats.sync();
    const kept = nats.last;
    const [first, second] = world.managers.all as [SimManager, SimManager];
    for (const [at, manager] of [first, second, first].entries()) {
      let isDone = false;
      void client.create(manager, `c${at}`).then(() => (isDone = true));
      await world.until("the answer", () => isDone);
    }
    await world.pass(2_000);
    while (nats.last >= first.memory.newestAcknowledged) {
      nats.start();
      nats.crash({ loseTail: true });
    }
    t.true(nats.last >= kept);
    nats.start();
    await world.until("both to refuse", () => (trace.marks.get("manager.refused.log") ?? 0) >= 2);
    await world.until("both to serve", () => world.managers.areServing);
  }
});

test("a node whose join was lost comes back by itself, and unknown tasks stop on every node", async (t) => {
  t.timeout(60_000);
  for (const seed of seeds.slice(0, 4)) {
    const world = new ScriptedWorld({ seed, managers: 2 });
    await world.found();
    const { nats, trace } = world.scene.simulation;
    const [first] = world.managers.all as [SimManager, SimManager];
    await world.pass(2_000);
    nats.sync();
    const kept = nats.last;
    world.addAgent("a2");
    await world.until("the second node to be READY", () => world.areAllReady());
    const before = world.leader?.running?.store.byName("node", "a2")?.id;
    let isDone = false;
    void createGlobal(world, first).then(() => (isDone = true));
    await world.until("the service", () => isDone);
    await world.until("its tasks to run", () => ["a1", "a2"].every((name) => world.running(name).length === 1));
    await world.pass(2_000);
    while (nats.last > kept) {
      nats.start();
      nats.crash({ loseTail: true });
    }
    nats.start();
    await world.until("both to refuse", () => (trace.marks.get("manager.refused.log") ?? 0) >= 2);
    await world.until("both to serve", () => world.managers.areServing);
    await world.until("both nodes to be READY", () => world.leader !== undefined && world.areAllReady());
    const node = world.leader?.running?.store.byName("node", "a2");
    t.is(node?.id, before, "the same node");
    t.is(node?.role, NodeRole.WORKER);
    await world.until("unknown tasks to stop", () => ["a1", "a2"].every((name) => world.running(name).length === 0));
    await world.until(
      "the log to have its certificate again",
      () => (world.leader?.running?.store.byName("node", "a2")?.certificate?.certificate.length ?? 0) > 0,
    );
  }
});

async function createGlobal(world: ScriptedWorld, manager: SimManager): Promise<void> {
  const channel = world.dial(manager);
  const spec = simService({ name: "lost", global: GlobalService.create() });
  await channel.unary(ControlService.methods.CreateService, CreateServiceRequest.create({ spec }), {
    timeoutMs: 10_000,
  });
  channel.close();
}
