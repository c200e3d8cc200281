// A manager's own membership: its beats, its record, and whether its replica agrees with the others'.
import test, { type ExecutionContext } from "ava";
import { startMembership } from "../../actors/manager/membership.ts";
import { Manager, ManagerBeat, Node, NodeRole, NodeSpec, type Timestamp } from "../../proto/gen/messages.ts";
import { timeMs, timestampOf } from "../../proto/time.ts";
import { managerBeat } from "../../runtime/subjects.ts";
import { testBus } from "../support/bus.ts";
import { testManager } from "../support/manager.ts";

interface Setting {
  readonly leaderless?: boolean;
  readonly isJoining?: boolean;
  /** In the log before this manager starts. */
  readonly other?: Manager;
}

function setUp(t: ExecutionContext, { leaderless = false, isJoining = false, other }: Setting = {}) {
  const manager = testManager("m1");
  if (other !== undefined) manager.seed("manager", other);
  manager.leaderless = leaderless;
  const bus = testBus();
  const env = { ...manager.env, bus };
  const reading = { isCurrent: true };
  const loss: { accepted: Timestamp | null } = { accepted: null };
  const membership = startMembership(env, {
    addr: "192.0.2.1:2377",
    addresses: ["192.0.2.1", "2001:db8::1"],
    checksum: () => manager.store.checksum,
    isCurrent: () => reading.isCurrent,
    isJoining,
    lossAccepted: () => loss.accepted,
  });
  t.teardown(() => membership.stop());
  const run = (ms: number): Promise<unknown> => manager.clock.run({ untilMs: manager.clock.now() + ms });
  return { ...manager, manager, env, bus, run, membership, reading, loss };
}

test("a manager beats and keeps its record in the log correct", async (t) => {
  const world = setUp(t, { leaderless: true });
  const { seed, run, store, bus } = world;
  await run(10_500);
  t.is(bus.published.length, 11, "whether or not the log accepts anything");
  t.is(ManagerBeat.decode(bus.published[0]?.data ?? new Uint8Array()).addr, "192.0.2.1:2377");
  t.is(store.get("manager", "m1"), undefined);
  world.manager.leaderless = false;
  await run(1_100);
  const addresses = ["192.0.2.1", "2001:db8::1"];
  t.like(store.get("manager", "m1"), { addr: "192.0.2.1:2377", alive: true, addresses });
  seed("manager", Manager.create({ id: "m1", addr: "192.0.2.1:2377", alive: true }));
  await run(20);
  t.like(store.get("manager", "m1"), { addresses }, "its name's current addresses are written again");
  seed("manager", Manager.create({ id: "m1", addr: "192.0.2.1:2377", alive: false }));
  await run(20);
  t.true(store.get("manager", "m1")?.alive, "reports of its death are corrected");
  const written = world.proposals.length;
  await run(10_000);
  t.is(world.proposals.length, written);
});

test("an accepted loss of records is in the log, and stays there when the manager's disk forgets it", async (t) => {
  const { loss, membership, run, store } = setUp(t);
  await run(20);
  t.is(store.get("manager", "m1")?.lossAccepted, null);
  const inLog = (): number => timeMs(store.get("manager", "m1")?.lossAccepted ?? null);
  loss.accepted = timestampOf(5_000);
  membership.look();
  await run(20);
  t.is(inLog(), 5_000);
  for (const [accepted, kept] of [
    [null, 5_000],
    [timestampOf(4_000), 5_000],
    [timestampOf(6_000), 6_000],
  ] as const) {
    loss.accepted = accepted;
    membership.look();
    await run(20);
    t.is(inLog(), kept);
  }
});

test("a manager that still reads the past announces nothing, and one that reads there that it was demoted never does", async (t) => {
  const { membership, proposals, reading, run, seed, store } = setUp(t);
  reading.isCurrent = false;
  await run(2_000);
  const before = proposals.length;
  seed("manager", Manager.create({ id: "m1", addr: "192.0.2.1:2377", alive: false }));
  await run(2_000);
  t.is(proposals.length, before);
  seed("node", Node.create({ id: "m1", spec: NodeSpec.create({ desiredRole: NodeRole.WORKER }) }));
  reading.isCurrent = true;
  membership.look();
  await run(2_000);
  t.false(store.get("manager", "m1")?.alive);
  seed("node", Node.create({ id: "m1", spec: NodeSpec.create({ desiredRole: NodeRole.MANAGER }) }));
  membership.look();
  await run(2_000);
  t.true(store.get("manager", "m1")?.alive);
});

test("a manager that joins with the address of a live one is not listed until that one is gone, and one that continues is", async (t) => {
  const other = (alive: boolean) => Manager.create({ id: "m2", addr: "192.0.2.1:2377", alive });
  const joining = setUp(t, { isJoining: true, other: other(true) });
  await joining.run(5_000);
  t.is(joining.store.get("manager", "m1"), undefined);
  joining.seed("manager", other(false));
  await joining.run(20);
  t.true(joining.store.get("manager", "m1")?.alive);

  const continuing = setUp(t, { other: other(true) });
  await continuing.run(5_000);
  t.true(
    continuing.store.get("manager", "m1")?.alive,
    "or two that exchange their addresses would wait for each other",
  );
});

test("replicas that differ at one version are reported, and those that agree or lag are not", async (t) => {
  const world = setUp(t);
  const { store, bus } = world;
  await world.run(100);
  world.seed("manager", Manager.create({ id: "m2", addr: "b", alive: true }));
  const telemetry = world.env.telemetry as unknown as { reading(name: string): number };
  const say = (applied: number, checksum: Uint8Array) =>
    bus.deliver(managerBeat("m2"), ManagerBeat.encode(ManagerBeat.create({ managerId: "m2", applied, checksum })));
  say(store.version, store.checksum);
  say(store.version + 5, new Uint8Array([1]));
  bus.deliver(managerBeat("m2"), new Uint8Array([255]));
  t.is(telemetry.reading("muster_replica_mismatches_total"), 0);
  say(store.version, new Uint8Array([1]));
  t.is(telemetry.reading("muster_replica_mismatches_total"), 1);
});
