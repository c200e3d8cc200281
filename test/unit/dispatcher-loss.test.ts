// When a dispatcher declares a node DOWN, and when it must not.
import test from "ava";
import { massDown } from "../../machines/dispatcher/mass-down-breaker.machine.ts";
import { sessionTimes } from "../../machines/dispatcher/session.machine.ts";
import { ManagerBeat, Node, NodeStatus, NodeStatus_State, Session, TaskState } from "../../proto/gen/messages.ts";
import { managerBeats } from "../../runtime/subjects.ts";
import { Status } from "../../runtime/ports/rpc.ts";
import { refusalOf } from "../support/manager.ts";
import { setUp, open, join, beat, from, live, report } from "../support/dispatcher-world.ts";

test("a node that falls silent is DOWN after three periods, and its stream ends with NOT_FOUND", async (t) => {
  const world = setUp(t);
  const { sessionId, stream } = await join(world, "n1");
  await live(world, 40_000, { nodeId: "n1", sessionId });
  await world.run(8_000);
  t.is(world.stateOf("n1"), NodeStatus_State.READY);
  await world.run(6_000);
  t.is(world.stateOf("n1"), NodeStatus_State.DOWN);
  t.is(world.store.get("node", "n1")?.status?.message, "heartbeat failure");
  t.is(world.dispatcher.explain("n1")[0]?.waitingFor, "the agent to register: the node is DOWN (heartbeat failure)");
  t.is(world.store.get("node", "n1")?.status?.addr, "198.51.100.7");
  t.is(world.store.get("session", "n1"), undefined);
  t.is(stream.ended?.code, Status.NOT_FOUND);
  t.is(stream.ended?.message, "node not registered");
  t.deepEqual([...world.dispatcher.sessions()], []);
});

test("a node that registers elsewhere while it is declared DOWN here stays READY: DOWN is fenced by the session", async (t) => {
  const world = setUp(t);
  await join(world, "n1");
  const { proposer } = world.env;
  const propose = proposer.propose.bind(proposer);
  let isOvertaken = false;
  proposer.propose = (proposal) => {
    const isDown = proposal.operations.some(({ node }) => node?.status?.state === NodeStatus_State.DOWN);
    if (isDown && !isOvertaken) {
      isOvertaken = true;
      world.seed("session", Session.create({ id: "n1", sessionId: "another", managerId: "m2" }));
    }
    return propose(proposal);
  };
  await world.run(20_000);
  t.true(isOvertaken);
  t.is(world.stateOf("n1"), NodeStatus_State.READY);
  t.is(world.store.get("session", "n1")?.sessionId, "another");
  t.deepEqual([...world.dispatcher.sessions()], []);
});

test("a node whose connection broke is DOWN within seven seconds, unless it comes back", async (t) => {
  const world = setUp(t);
  const lost = await join(world, "n1");
  const back = await join(world, "n2");
  lost.breakOff();
  back.breakOff();
  await world.run(3_000);
  const resumed = open(world, "n2", back.sessionId);
  await world.run(sessionTimes.reconnectGraceMsMin - 3_000 + 500);
  t.is(world.stateOf("n1"), NodeStatus_State.DOWN);
  t.is(world.stateOf("n2"), NodeStatus_State.READY);
  t.is(resumed.id(), back.sessionId);
});

test("a manager that was cut off resumes a session only after the log answers: the agent may have been elsewhere since", async (t) => {
  let settled = true;
  const world = setUp(t, { settled: () => settled });
  const { breakOff, sessionId } = await join(world, "n1");
  breakOff();
  world.manager.leaderless = true;
  settled = false;
  const back = open(world, "n1", sessionId);
  await world.run(60_000);
  t.is(back.stream.messages.length, 0, "nothing is served from a possibly outdated replica");
  t.regex(world.dispatcher.explain("n1")[0]?.waitingFor ?? "", /commit of the node's registration/);
  world.manager.leaderless = false;
  await world.run(2_500);
  t.is(back.id(), sessionId);
});

test("while the log is away sessions stay, no node goes DOWN, and a registration waits for it", async (t) => {
  let settled = true;
  const world = setUp(t, { settled: () => settled });
  await join(world, "n1");
  world.manager.leaderless = true;
  settled = false;
  const waiting = open(world, "n2");
  await world.run(60_000);
  t.is(world.stateOf("n1"), NodeStatus_State.READY);
  t.regex(world.dispatcher.explain("n1")[0]?.waitingFor ?? "", /held back because this manager's link/);
  t.is(waiting.stream.messages.length, 0);
  t.regex(world.dispatcher.explain("n2")[0]?.waitingFor ?? "", /commit of the node's registration/);
  world.manager.leaderless = false;
  await world.run(2_500);
  t.is(waiting.stream.messages.length, 1);
  settled = true;
  await world.run(14_000);
  t.is(world.stateOf("n1"), NodeStatus_State.READY, "not before a whole healthy grace period has passed");
  await world.run(3_000);
  t.is(world.stateOf("n1"), NodeStatus_State.DOWN);
});

test("why reports missed heartbeats before the node is suspected", async (t) => {
  const world = setUp(t);
  await join(world, "n1");
  const why = () => world.dispatcher.explain("n1")[0];
  await world.run(5_000);
  t.regex(why()?.waitingFor ?? "", /^nothing: the node is served/);
  await world.run(5_000);
  t.like(why(), {
    waitingFor: "a heartbeat of the node, which has been silent for 10 s: heartbeats are overdue",
    atDeadline: "suspected",
  });
});

test("a node that other managers declared DOWN is READY again while its session lives", async (t) => {
  const world = setUp(t);
  await join(world, "n1");
  const node = world.store.get("node", "n1") as Node;
  world.seed("node", Node.patch(node, { status: NodeStatus.create({ state: NodeStatus_State.UNKNOWN, addr: "a" }) }));
  await world.run(20);
  t.is(world.stateOf("n1"), NodeStatus_State.READY);
});

test("a removed node loses its session and its record", async (t) => {
  const world = setUp(t);
  const { stream } = await join(world, "n1");
  const { Operation, Removal, Kind } = await import("../../proto/gen/messages.ts");
  await world.env.proposer.propose({
    operations: [Operation.create({ remove: Removal.create({ kind: Kind.KIND_NODE, id: "n1" }) })],
    mode: 0,
    timeoutMs: 1,
  });
  await world.run(20);
  t.is(stream.ended?.code, Status.PERMISSION_DENIED);
  t.is(stream.ended?.message, "Permission denied: node n1 was removed from swarm");
  t.is(world.store.get("session", "n1"), undefined);
});

test("when most nodes vanish at once none goes DOWN until the hold ends; a single one is not held", async (t) => {
  const nodes = Array.from({ length: 10 }, (_, at) => `n${at}`);
  const world = setUp(t, { nodes });
  const sessions = await Promise.all(nodes.map(async (nodeId) => ({ nodeId, ...(await join(world, nodeId)) })));
  const [first, ...others] = sessions;
  first?.breakOff();
  await live(world, 8_000, ...others);
  t.is(world.stateOf("n0"), NodeStatus_State.DOWN);
  await live(world, 12_000, ...others);
  const [gone, stay] = [others.slice(0, 5), others.slice(5)];
  for (const { breakOff } of gone) breakOff();
  await live(world, 20_000, ...stay);
  t.true(gone.every(({ nodeId }) => world.stateOf(nodeId) === NodeStatus_State.READY));
  t.regex(world.dispatcher.explain(gone[0]?.nodeId ?? "")[0]?.waitingFor ?? "", /5 of 9 nodes are missing at once/);
  await live(world, massDown.holdMs - 12_000, ...stay);
  t.true(gone.every(({ nodeId }) => world.stateOf(nodeId) === NodeStatus_State.DOWN));
  t.true(stay.every(({ nodeId }) => world.stateOf(nodeId) === NodeStatus_State.READY));
});

test("a manager that was stopped for long gives its nodes a grace period before it declares any DOWN", async (t) => {
  const world = setUp(t);
  const { clock } = world;
  const { sessionId } = await join(world, "n1");
  await world.run(5_000);
  // The view of a process after a stop: its clock has jumped, and its timers fire before it reads a byte.
  const [now, monotonic] = [clock.now.bind(clock), clock.monotonic.bind(clock)];
  clock.now = () => now() + 60_000;
  clock.monotonic = () => monotonic() + 60_000;
  const run = (ms: number): Promise<unknown> => clock.run({ untilMs: now() + ms });
  await run(12_500);
  t.is(world.stateOf("n1"), NodeStatus_State.READY);
  t.like(world.dispatcher.explain("n1")[0], { atDeadline: "is checked" });
  t.regex(world.dispatcher.explain("n1")[0]?.waitingFor ?? "", /verdict .* since it missed its heartbeats/);
  t.true((await beat(world, "n1", sessionId)) > 0);
  await run(10_000);
  t.is(world.stateOf("n1"), NodeStatus_State.READY);
});

test("a pause is logged once, however many nodes wait for a verdict", async (t) => {
  const world = setUp(t);
  const { clock, env } = world;
  const warned: string[] = [];
  env.telemetry.log.warn = ((_: unknown, message: string) => warned.push(message)) as never;
  await join(world, "n1");
  await world.run(5_000);
  const [now, monotonic] = [clock.now.bind(clock), clock.monotonic.bind(clock)];
  clock.now = () => now() + 60_000;
  clock.monotonic = () => monotonic() + 60_000;
  for (let n = 1; n <= 6; n += 1) world.dispatcher.verdict({ since: monotonic(), graceMs: 1_000 });
  await clock.run({ untilMs: now() + 5_000 });
  t.is(warned.filter((each) => each.startsWith("this process was paused")).length, 1, warned.join("\n"));
});

for (const hours of [-30, 30]) {
  test(`setting a clock by ${hours} hours changes no node's state, and hides no missing node`, async (t) => {
    const world = setUp(t, { nodes: ["n1", "n2"] });
    const { clock } = world;
    const stays = await join(world, "n1");
    const goes = await join(world, "n2");
    await live(world, 7_000, { nodeId: "n1", ...stays }, { nodeId: "n2", ...goes });
    const now = clock.now.bind(clock);
    clock.now = () => now() + hours * 3_600_000;
    for (let beats = 0; beats < 6; beats += 1) {
      await clock.run({ untilMs: now() + 5_000 });
      await beat(world, "n1", stays.sessionId);
      t.is(world.stateOf("n1"), NodeStatus_State.READY);
    }
    t.is(world.stateOf("n2"), NodeStatus_State.DOWN);
    const since = world.dispatcher.explain("n1")[0]?.since?.seconds ?? 0;
    t.true(Math.abs(since * 1_000 - clock.now()) < 60_000, "the displayed time follows the current clock");
  });
}

test("a hold ends when the nodes come back, with no change of state", async (t) => {
  const nodes = Array.from({ length: 10 }, (_, at) => `n${at}`);
  const world = setUp(t, { nodes });
  const sessions = await Promise.all(nodes.map(async (nodeId) => ({ nodeId, ...(await join(world, nodeId)) })));
  for (const { breakOff } of sessions) breakOff();
  await world.run(20_000);
  for (const { nodeId, sessionId } of sessions) open(world, nodeId, sessionId);
  await live(world, 40_000, ...sessions);
  t.true(nodes.every((id) => world.stateOf(id) === NodeStatus_State.READY));
});

test("a hold continues although some nodes come back, and a node heard during it is not declared DOWN at its end (D2, D4)", async (t) => {
  const nodes = ["n0", "n1", "n2", "n3", "n4"];
  const world = setUp(t, { nodes });
  const [stays, trickles, ...gone] = await Promise.all(
    nodes.map(async (nodeId) => ({ nodeId, ...(await join(world, nodeId)) })),
  );
  if (stays === undefined || trickles === undefined) throw new Error("no nodes");
  const down = () => nodes.filter((nodeId) => world.stateOf(nodeId) === NodeStatus_State.DOWN);
  await live(world, 8_000, stays, trickles, ...gone);
  // Silent from here on: four of five. The first would be DOWN after some 16 s.
  await live(world, 20_000, stays);
  t.regex(world.dispatcher.explain("n2")[0]?.waitingFor ?? "", /4 of 5 nodes are missing at once/);
  await beat(world, "n1", trickles.sessionId);
  await live(world, 17_000, stays);
  t.deepEqual(down(), [], "three are missing: below the limit, but from the same fault");
  await live(world, 12_000, stays);
  t.deepEqual(down(), ["n2", "n3", "n4"], "the slow one is not missing");
});

test("nodes missed by other managers count: two of theirs and two of its own are a mass failure (D2)", async (t) => {
  const nodes = ["n0", "n1", "n2", "n3", "n4", "n5"];
  const world = setUp(t, { nodes });
  const [stays, ...gone] = await Promise.all(
    nodes.slice(0, 3).map(async (nodeId) => ({ nodeId, ...(await join(world, nodeId)) })),
  );
  if (stays === undefined) throw new Error("no nodes");
  for (const id of nodes.slice(3)) {
    const node = world.store.get("node", id) as Node;
    world.seed("node", Node.patch(node, { status: NodeStatus.create({ state: NodeStatus_State.READY, addr: "a" }) }));
  }
  for (const { breakOff } of gone) breakOff();
  for (let second = 0; second < 12; second += 1) {
    const said = ManagerBeat.create({ managerId: "m2", missingNodes: 2 });
    world.bus.publish(managerBeats, ManagerBeat.encode(said));
    await live(world, 1_000, stays);
  }
  t.regex(world.dispatcher.explain("n1")[0]?.waitingFor ?? "", /4 of 6 nodes are missing at once/);
});

test("delays of this manager's own process do not count as a node's silence (D5)", async (t) => {
  const world = setUp(t);
  const { clock } = world;
  await join(world, "n1");
  // A starved process: each check comes 2.5 s late, which is not a pause.
  const setTimeout_ = clock.setTimeout.bind(clock);
  clock.setTimeout = (callback, ms) => setTimeout_(callback, ms === 1_000 ? 3_500 : ms);
  await world.run(30_000);
  t.is(world.stateOf("n1"), NodeStatus_State.READY);
  t.regex(world.dispatcher.explain("n1")[0]?.waitingFor ?? "", /this manager itself was behind for \d+\.\d s/);
  clock.setTimeout = setTimeout_;
  await world.run(30_000);
  t.is(world.stateOf("n1"), NodeStatus_State.DOWN);
});

test("an overloaded manager waits at most five minutes for a node before it declares it DOWN (D6)", async (t) => {
  const world = setUp(t);
  const { clock } = world;
  await join(world, "n1");
  const setTimeout_ = clock.setTimeout.bind(clock);
  clock.setTimeout = (callback, ms) => setTimeout_(callback, ms === 1_000 ? 2_000 : ms);
  await world.run(massDown.overloadMs - 5_000);
  t.is(world.stateOf("n1"), NodeStatus_State.READY);
  t.regex(
    world.dispatcher.explain("n1")[0]?.waitingFor ?? "",
    /this manager is overloaded: it was behind for \d+\.\d s/,
  );
  await world.run(15_000);
  t.is(world.stateOf("n1"), NodeStatus_State.DOWN, "although it is still as late");
});

test("time in which nodes waited for this manager's handshakes does not count as a node's silence (D5, D6)", async (t) => {
  let waitMs = 0;
  const world = setUp(t, { nodesWaitMs: () => waitMs });
  await join(world, "n1");
  await world.run(10_000);
  waitMs = 1_500;
  await world.run(60_000);
  t.is(world.stateOf("n1"), NodeStatus_State.READY);
  t.regex(world.dispatcher.explain("n1")[0]?.waitingFor ?? "", /behind for \d+\.\d s/);
  waitMs = 0;
  await world.run(10_000);
  t.is(world.stateOf("n1"), NodeStatus_State.READY, "it has listened for less than a grace period since");
  await world.run(10_000);
  t.is(world.stateOf("n1"), NodeStatus_State.DOWN);
});

test("a verdict is not asked for again before it can be granted: a starved manager has no time for thousands", async (t) => {
  let waitMs = 0;
  let views = 0;
  const settled = (): boolean => (views += 1) > 0;
  const world = setUp(t, { nodesWaitMs: () => waitMs, settled });
  await join(world, "n1");
  await world.run(30_000 - (world.clock.monotonic() % 1_000));
  t.is(world.stateOf("n1"), NodeStatus_State.DOWN, "without a wait, it is granted at once");
  await join(world, "n2");
  waitMs = 1_500;
  await world.run(20_000);
  views = 0;
  await world.run(60_000);
  t.is(world.stateOf("n2"), NodeStatus_State.READY);
  // One a second is that of the manager itself.
  t.true(views >= 60 && views <= 75, `the breaker looked ${views} times within a minute`);
});

test("a node that reports is alive, even without heartbeats", async (t) => {
  const world = setUp(t);
  const { sessionId } = await join(world, "n1");
  for (let waited = 0; waited < 60_000; waited += 10_000) {
    await world.run(10_000);
    await world.dispatcher.handlers.UpdateTaskStatus(report(sessionId, ["t1", TaskState.RUNNING]), from("n1"));
  }
  t.is(world.stateOf("n1"), NodeStatus_State.READY);
  await world.run(20_000);
  t.is(world.stateOf("n1"), NodeStatus_State.DOWN);
});

test("a manager that is cut off from the log ends its sessions and rejects new ones, and later adopts those that it still has", async (t) => {
  const world = setUp(t);
  const { sessionId, stream } = await join(world, "n1");
  const other = await join(world, "n2");
  world.dispatcher.sendNodesAway();
  t.is(stream.ended?.code, Status.ABORTED);
  t.is(other.stream.ended?.code, Status.ABORTED);
  t.deepEqual([...world.dispatcher.sessions()], []);
  const refused = { code: Status.UNAVAILABLE, message: "this manager is cut off from the log: register with another" };
  t.deepEqual(await refusalOf(() => open(world, "n1", sessionId)), refused);
  t.deepEqual(await refusalOf(() => beat(world, "n1", sessionId)), refused);
  // Another manager writes while this one catches up, before a probe of its own has returned.
  world.seed("session", Session.create({ id: "n1", sessionId: "elsewhere", managerId: "m2" }));
  world.seed("session", Session.create({ id: "n2", sessionId: other.sessionId, managerId: "m1" }));
  t.deepEqual([...world.dispatcher.sessions()], []);
  world.dispatcher.serveNodes();
  t.deepEqual(
    [...world.dispatcher.sessions()],
    [{ nodeId: "n2", sessionId: other.sessionId, state: "adopted" }],
    "n1 has moved, and n2 may come back",
  );
  const again = open(world, "n2", other.sessionId);
  await world.run(20);
  t.is(again.id(), other.sessionId);
});
