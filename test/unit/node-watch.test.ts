// The leader's handling of nodes without a session, and of managers that fall silent.
import test, { type ExecutionContext } from "ava";
import type { Verdict } from "../../actors/dispatcher/session.ts";
import { startNodeWatch } from "../../actors/dispatcher/node-watch.ts";
import { nodeWatchTimes } from "../../machines/dispatcher/node-watch.machine.ts";
import { disconnectLabel } from "../../machines/orchestration/on-disconnect.ts";
import {
  Annotations,
  Manager,
  ManagerBeat,
  Node,
  NodeDescription,
  NodeRole,
  NodeSpec,
  NodeStatus,
  NodeStatus_State as State,
  Service,
  ServiceSpec,
  Session,
  Task,
  TaskState,
  TaskStatus,
} from "../../proto/gen/messages.ts";
import { managerBeat } from "../../runtime/subjects.ts";
import { testBus } from "../support/bus.ts";
import { testManager } from "../support/manager.ts";

function node(id: string, state: State, fields: Partial<Node> = {}): Node {
  return Node.create({
    id,
    description: NodeDescription.create({ hostname: id }),
    status: NodeStatus.create({ state, addr: "a" }),
    ...fields,
  });
}

function setUp(t: ExecutionContext) {
  const manager = testManager("m1");
  const bus = testBus();
  const env = { ...manager.env, bus };
  const run = (ms: number): Promise<unknown> => manager.clock.run({ untilMs: manager.clock.now() + ms });
  const verdict: { now: Verdict } = { now: { kind: "granted" } };
  const watch = () => {
    const running = startNodeWatch(env, { verdict: () => verdict.now });
    t.teardown(() => running.stop());
    return running;
  };
  const nodeOf = (id: string) => manager.store.get("node", id);
  /** Beats of another manager, one a second, for that long. */
  const beats = async (managerId: string, ms: number): Promise<void> => {
    for (let at = 0; at < ms; at += 1_000) {
      bus.deliver(managerBeat(managerId), ManagerBeat.encode(ManagerBeat.create({ managerId })));
      await run(1_000);
    }
  };
  return {
    ...manager,
    manager,
    bus,
    env,
    run,
    watch,
    verdict,
    beats,
    stateOf: (id: string) => nodeOf(id)?.status?.state,
    nodeOf,
  };
}

test("nodes of a vanished manager are UNKNOWN at once, and those of others are left alone", async (t) => {
  const world = setUp(t);
  const { seed, run, stateOf, nodeOf } = world;
  seed("manager", Manager.create({ id: "m2", addr: "b", alive: true }));
  seed("node", node("n1", State.READY), node("n2", State.READY));
  seed(
    "session",
    Session.create({ id: "n1", sessionId: "s1", managerId: "m2" }),
    Session.create({ id: "n2", sessionId: "s2", managerId: "m1" }),
  );
  world.watch();
  t.is(stateOf("n1"), State.READY, "a new leader disturbs nobody");
  seed("manager", Manager.create({ id: "m2", addr: "b", alive: false }));
  await run(20);
  t.is(stateOf("n1"), State.UNKNOWN);
  t.is(nodeOf("n1")?.status?.message, 'Node moved to "unknown" state because its manager m2 is gone');
  t.is(stateOf("n2"), State.READY);
  t.is(world.store.get("session", "n1")?.sessionId, "s1", "so that it can resume it elsewhere");
});

test("so are nodes of a demoted manager, once its record is removed; those of one about to be listed are not", async (t) => {
  const world = setUp(t);
  const { drop, seed, run, stateOf } = world;
  const as = (desiredRole: NodeRole) => ({ spec: NodeSpec.create({ desiredRole }) });
  seed("manager", Manager.create({ id: "m2", addr: "b", alive: true }));
  seed("node", node("m2", State.READY, as(NodeRole.WORKER)), node("m3", State.READY, as(NodeRole.MANAGER)));
  seed("node", node("n1", State.READY), node("n2", State.READY));
  seed("session", Session.create({ id: "n1", sessionId: "s1", managerId: "m2" }));
  seed("session", Session.create({ id: "n2", sessionId: "s2", managerId: "m3" }));
  world.watch();
  await world.beats("m2", 2_000);
  t.is(stateOf("n1"), State.READY);
  drop("manager", "m2");
  await run(100);
  t.is(stateOf("n1"), State.UNKNOWN);
  t.is(stateOf("n2"), State.READY);
});

test("an UNKNOWN node is not DOWN while the dispatcher holds its verdicts (W1)", async (t) => {
  const world = setUp(t);
  const { seed, run, stateOf, verdict } = world;
  seed("node", node("n1", State.UNKNOWN));
  seed("session", Session.create({ id: "n1", sessionId: "s1", managerId: "m2" }));
  verdict.now = { kind: "held", recheckMs: 1_000, reason: "too many are missing" };
  world.watch();
  await run(120_000);
  t.is(stateOf("n1"), State.UNKNOWN);
  verdict.now = { kind: "granted" };
  await run(1_100);
  t.is(stateOf("n1"), State.DOWN);
});

test("an UNKNOWN node has six periods to register elsewhere before it is DOWN", async (t) => {
  const world = setUp(t);
  const { seed, run, stateOf, nodeOf, store } = world;
  seed(
    "node",
    node("lost", State.UNKNOWN),
    node("found", State.UNKNOWN),
    node("fresh", State.UNKNOWN, { description: null }),
  );
  seed("session", Session.create({ id: "lost", sessionId: "s1", managerId: "m2" }));
  world.watch();
  await run(29_000);
  t.is(stateOf("lost"), State.UNKNOWN);
  seed("node", node("found", State.READY));
  await run(2_000);
  t.is(stateOf("lost"), State.DOWN);
  t.is(nodeOf("lost")?.status?.message, 'heartbeat failure for node in "unknown" state');
  t.is(store.get("session", "lost"), undefined);
  t.is(stateOf("found"), State.READY);
  t.is(stateOf("fresh"), State.UNKNOWN, "one that never registered waits for its first session");
});

test("an UNKNOWN node without a session has ten minutes, as after a restore (W3)", async (t) => {
  const { seed, run, stateOf, watch } = setUp(t);
  seed("node", node("n1", State.UNKNOWN));
  watch();
  await run(nodeWatchTimes.restoredGraceMs - 1_000);
  t.is(stateOf("n1"), State.UNKNOWN);
  await run(2_000);
  t.is(stateOf("n1"), State.DOWN);
});

test("an UNKNOWN node is declared DOWN once the log can be written again", async (t) => {
  const world = setUp(t);
  world.seed("node", node("n1", State.UNKNOWN));
  world.seed("session", Session.create({ id: "n1", sessionId: "s1", managerId: "m2" }));
  world.watch();
  world.manager.leaderless = true;
  await world.run(60_000);
  t.is(world.stateOf("n1"), State.UNKNOWN);
  world.manager.leaderless = false;
  await world.run(1_500);
  t.is(world.stateOf("n1"), State.DOWN);
});

test("the tasks of a node that is DOWN for a day become ORPHANED, and those that ended do not", async (t) => {
  const world = setUp(t);
  const { seed, run, store } = world;
  seed("node", node("n1", State.DOWN));
  const states = { running: TaskState.RUNNING, assigned: TaskState.ASSIGNED, failed: TaskState.FAILED };
  for (const [id, state] of Object.entries(states))
    seed("task", Task.create({ id, nodeId: "n1", status: TaskStatus.create({ state }) }));
  world.watch();
  await run(nodeWatchTimes.orphanDelayMs - 60_000);
  t.is(store.get("task", "running")?.status?.state, TaskState.RUNNING);
  await run(120_000);
  const after = Object.keys(states).map((id) => store.get("task", id)?.status?.state);
  t.deepEqual(after, [TaskState.ORPHANED, TaskState.ORPHANED, TaskState.FAILED]);
});

test("tasks that their service keeps do not become ORPHANED, however often that is checked (W2)", async (t) => {
  const world = setUp(t);
  const { seed, run, store } = world;
  const kept = (labels: Readonly<Record<string, string>>) =>
    ServiceSpec.create({ annotations: Annotations.create({ name: "web", labels: { ...labels } }) });
  seed("service", Service.create({ id: "web", spec: kept({ [disconnectLabel.mode]: "keep" }) }));
  seed("node", node("n1", State.DOWN));
  for (const serviceId of ["web", "other"]) {
    const status = TaskStatus.create({ state: TaskState.RUNNING });
    seed("task", Task.create({ id: serviceId, nodeId: "n1", serviceId, status, desiredState: TaskState.RUNNING }));
  }
  const states = () => ["web", "other"].map((id) => store.get("task", id)?.status?.state);
  const first = world.watch();
  await run(nodeWatchTimes.orphanDelayMs + 60_000);
  t.deepEqual(states(), [TaskState.RUNNING, TaskState.ORPHANED]);
  first.stop();
  world.watch();
  await run(60_000);
  seed("service", Service.create({ id: "web", spec: kept({}) }));
  await run(nodeWatchTimes.orphanDelayMs - 120_000);
  t.deepEqual(states(), [TaskState.RUNNING, TaskState.ORPHANED]);
  await run(120_000);
  t.deepEqual(states(), [TaskState.ORPHANED, TaskState.ORPHANED]);
});

test("a new leader continues its predecessor's waits, and a node that comes back keeps its tasks", async (t) => {
  const world = setUp(t);
  const { seed, run, store } = world;
  seed("node", node("n1", State.DOWN), node("n2", State.DOWN));
  for (const nodeId of ["n1", "n2"])
    seed("task", Task.create({ id: `t-${nodeId}`, nodeId, status: TaskStatus.create({ state: TaskState.RUNNING }) }));
  const first = world.watch();
  await run(nodeWatchTimes.orphanDelayMs / 2);
  first.stop();
  world.watch();
  await run(1_000);
  seed("node", node("n2", State.READY));
  await run(nodeWatchTimes.orphanDelayMs / 2 + 60_000);
  t.is(store.get("task", "t-n1")?.status?.state, TaskState.ORPHANED);
  t.is(store.get("task", "t-n2")?.status?.state, TaskState.RUNNING);
});

test("a manager whose beats stop for four seconds is dead, with or without a record; its next beat revives it", async (t) => {
  const world = setUp(t);
  const { seed, run, store, beats, stateOf } = world;
  seed("manager", Manager.create({ id: "m2", addr: "b", alive: true }));
  seed("node", node("n1", State.READY));
  world.watch();
  await beats("m2", 20_000);
  t.true(store.get("manager", "m2")?.alive);
  await run(4_500);
  t.false(store.get("manager", "m2")?.alive);
  t.is(store.get("manager", "m2")?.addr, "b");
  seed("manager", Manager.create({ id: "m2", addr: "b", alive: true }));
  await beats("m2", 10_000);
  t.true(store.get("manager", "m2")?.alive);
  seed("session", Session.create({ id: "n1", sessionId: "s", managerId: "m3" }));
  await beats("m2", 6_000);
  t.false(store.get("manager", "m3")?.alive, "it died between its first session and its own record");
  t.is(stateOf("n1"), State.UNKNOWN);
});

test("a leader whose own link is down presumes nobody dead, nor in the first seconds after", async (t) => {
  const world = setUp(t);
  const { seed, run, store, bus } = world;
  seed("manager", Manager.create({ id: "m2", addr: "b", alive: true }));
  world.watch();
  bus.setUp(false);
  await run(60_000);
  t.true(store.get("manager", "m2")?.alive);
  bus.setUp(true);
  await run(3_500);
  t.true(store.get("manager", "m2")?.alive);
  await run(1_000);
  t.false(store.get("manager", "m2")?.alive);
});
