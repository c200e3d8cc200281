// Sessions of nodes: how they start, resume, move and end.
import test from "ava";
import {
  type AssignmentsMessage,
  AssignmentsRequest,
  Cluster,
  ClusterSpec,
  DispatcherConfig,
  Duration,
  EngineDescription,
  HeartbeatRequest,
  Manager,
  Node,
  NodeDescription,
  NodeSpec,
  NodeStatus,
  NodeStatus_State,
  Session,
  SessionRegistered,
  SessionRequest,
} from "../../proto/gen/messages.ts";
import { Status } from "../../runtime/ports/rpc.ts";
import { call, collectedStream, refusalOf } from "../support/manager.ts";
import { addr, setUp, from, open, join, beat, report } from "../support/dispatcher-world.ts";

test("a registration is READY with description and address in the log before its first message", async (t) => {
  const world = setUp(t);
  const { stream } = open(world, "n1");
  t.is(stream.messages.length, 0);
  await world.run(20);
  const node = world.store.get("node", "n1");
  t.is(node?.status?.state, NodeStatus_State.READY);
  t.is(node?.status?.addr, "198.51.100.7");
  t.is(node?.description?.hostname, "n1");
  const [message] = stream.messages;
  t.is(message?.sessionId.length, 25);
  t.is(message?.node?.status?.state, NodeStatus_State.READY);
  t.deepEqual(
    message?.managers.map(({ peer, weight }) => [peer?.nodeId, peer?.addr, weight]),
    [["m1", addr, 10]],
  );
  t.deepEqual([...(message?.RootCA ?? [])], [1, 2, 3]);
  t.is(world.store.get("session", "n1")?.managerId, "m1");
  t.deepEqual(
    [...world.dispatcher.sessions()],
    [{ nodeId: "n1", sessionId: message?.sessionId ?? "", state: "serving.connected" }],
  );
});

test("an agent whose sessions have a newer format is refused, and one that names none is served", async (t) => {
  const world = setUp(t);
  const engine = (format: string) =>
    EngineDescription.create({ engineVersion: "9.9.9", labels: { "muster.session-format": format } });
  const opened = (nodeId: string, description: NodeDescription) =>
    world.dispatcher.handlers.Session(SessionRequest.create({ description }), collectedStream(), from(nodeId));
  for (const format of ["2", "x", ""])
    t.deepEqual(await refusalOf(() => opened("n1", NodeDescription.create({ engine: engine(format) }))), {
      code: Status.FAILED_PRECONDITION,
      message: `the agent of version 9.9.9 uses format ${format} of sessions, but this manager knows format 1 at most: upgrade the managers before their agents`,
    });
  t.is(world.store.get("session", "n1"), undefined);
  opened("n1", NodeDescription.create({ engine: engine("1") }));
  await world.run(20);
  t.is(world.store.get("session", "n1")?.managerId, "m1");
});

test("the site that a node's connection proves replaces the one that the node names", async (t) => {
  const world = setUp(t);
  const engine = EngineDescription.create({ engineVersion: "1", labels: { site: "attic", disk: "ssd" } });
  const description = NodeDescription.create({ engine });
  const opened = (nodeId: string, described: NodeDescription, site?: string) => {
    const caller = from(nodeId);
    const peer = site === undefined ? caller.peer : { ...caller.peer, site };
    world.dispatcher.handlers.Session(SessionRequest.create({ description: described }), collectedStream(), {
      ...caller,
      peer,
    });
  };
  opened("n1", description, "lab");
  opened("n2", description);
  await world.run(20);
  const labels = (id: string) => ({ ...world.store.get("node", id)?.description?.engine?.labels });
  t.deepEqual(labels("n1"), { site: "lab", disk: "ssd" });
  t.deepEqual(labels("n2"), { site: "attic", disk: "ssd" });
  opened("n2", NodeDescription.create(), "lab");
  await world.run(20);
  t.deepEqual(labels("n2"), { site: "lab" });
});

test("a thousand nodes that join together share few proposals", async (t) => {
  const nodes = Array.from({ length: 1_000 }, (_, at) => `node${at}`);
  const world = setUp(t, { nodes });
  const streams = nodes.map((nodeId) => open(world, nodeId).stream);
  await world.run(50);
  t.true(streams.every(({ messages }) => messages.length === 1));
  t.true(world.proposals.length <= 2, `${world.proposals.length} proposals`);
});

test("calls without a session get a real manager's codes and texts", async (t) => {
  const world = setUp(t);
  const { handlers } = world.dispatcher;
  const heartbeat = (sessionId: string) => () => handlers.Heartbeat(HeartbeatRequest.create({ sessionId }), from("n1"));
  t.deepEqual(await refusalOf(() => open(world, "stranger")), { code: Status.UNKNOWN, message: "node not found" });
  t.deepEqual(await refusalOf(heartbeat("x")), { code: Status.NOT_FOUND, message: "node not registered" });
  t.deepEqual(await refusalOf(() => handlers.UpdateTaskStatus(report("x"), from("n1"))), {
    code: Status.NOT_FOUND,
    message: "node not registered",
  });
  await join(world, "n1");
  t.deepEqual(await refusalOf(heartbeat("x")), { code: Status.INVALID_ARGUMENT, message: "session invalid" });
  t.deepEqual(await refusalOf(heartbeat("")), { code: Status.INVALID_ARGUMENT, message: "session invalid" });
  const stream = collectedStream<AssignmentsMessage>();
  const assignments = () => handlers.Assignments(AssignmentsRequest.create({ sessionId: "x" }), stream, from("n1"));
  t.deepEqual(await refusalOf(assignments), { code: Status.INVALID_ARGUMENT, message: "session invalid" });
  t.is((await refusalOf(() => handlers.Heartbeat(HeartbeatRequest.create(), call())))?.code, Status.PERMISSION_DENIED);
  world.dispatcher.stop();
  t.deepEqual(await refusalOf(heartbeat("x")), { code: Status.ABORTED, message: "dispatcher is stopped" });
});

test("heartbeats return the cluster's period with jitter, never zero", async (t) => {
  const world = setUp(t);
  const { sessionId } = await join(world, "n1");
  const periods = await Promise.all(Array.from({ length: 200 }, () => beat(world, "n1", sessionId)));
  t.true(periods.every((ms) => ms >= 4_500 && ms < 5_500));
  t.true(Math.max(...periods) - Math.min(...periods) > 500);
  const spec = ClusterSpec.create({
    dispatcher: DispatcherConfig.create({ heartbeatPeriod: Duration.create({ nanos: 500_000_000 }) }),
  });
  world.seed("cluster", Cluster.create({ id: "c", spec }));
  const shorter = await Promise.all(Array.from({ length: 50 }, () => beat(world, "n1", sessionId)));
  t.true(
    shorter.every((ms) => ms >= 450 && ms < 550),
    "small periods get small jitter",
  );
});

test("resuming a session unchanged writes nothing; with another description or address it does", async (t) => {
  const world = setUp(t);
  const { sessionId, breakOff } = await join(world, "n1");
  breakOff();
  const before = world.proposals.length;
  const same = open(world, "n1", sessionId);
  await world.run(20);
  t.is(same.stream.messages.length, 1);
  t.is(same.id(), sessionId);
  t.is(world.proposals.length, before);
  const changed = open(world, "n1", sessionId, NodeDescription.create({ hostname: "renamed" }));
  await world.run(20);
  t.is(changed.id(), sessionId);
  t.is(world.store.get("node", "n1")?.description?.hostname, "renamed");
  t.is(same.stream.ended?.code, Status.ABORTED, "a session's newest stream wins");
});

test("the newest of two registrations wins, and the older stream ends at once", async (t) => {
  const world = setUp(t);
  const first = await join(world, "n1");
  const assignments = collectedStream<AssignmentsMessage>();
  world.dispatcher.handlers.Assignments(
    AssignmentsRequest.create({ sessionId: first.sessionId }),
    assignments,
    from("n1"),
  );
  const second = await join(world, "n1");
  t.not(second.sessionId, first.sessionId);
  for (const stream of [first.stream, assignments]) {
    t.is(stream.ended?.code, Status.INVALID_ARGUMENT);
    t.is(stream.ended?.message, "session invalid");
  }
  t.is((await refusalOf(() => beat(world, "n1", first.sessionId)))?.code, Status.INVALID_ARGUMENT);
  t.true((await beat(world, "n1", second.sessionId)) > 0);
});

test("within eight seconds, three registrations are accepted after the first", async (t) => {
  const world = setUp(t);
  for (let at = 0; at < 4; at += 1) await join(world, "n1");
  t.deepEqual(await refusalOf(() => open(world, "n1")), {
    code: Status.UNAVAILABLE,
    message: "node n1 exceeded rate limit count of registrations",
  });
  await world.run(8_100);
  await t.notThrowsAsync(() => join(world, "n1"));
});

test("two live machines with one identity are reported, and a restarted one is not", async (t) => {
  const world = setUp(t);
  const restarted = await join(world, "n2");
  restarted.breakOff();
  await join(world, "n2");
  t.deepEqual(world.dispatcher.explain("n2")[0]?.tried, []);
  for (let at = 0; at < 3; at += 1) await join(world, "n1");
  t.regex(world.dispatcher.explain("n1")[0]?.tried[0] ?? "", /two live machines seem to hold this identity/);
});

test("a registration with another manager ends the session here, through the log or the hint; an older hint does not", async (t) => {
  const world = setUp(t);
  const { stream, sessionId } = await join(world, "n1");
  const hint = (version: number) =>
    world.bus.publish(
      "muster.v1.svc.session.registered",
      SessionRegistered.encode(
        SessionRegistered.create({ nodeId: "n1", sessionId: "other", managerId: "m2", version }),
      ),
    );
  hint(1);
  t.is(stream.ended, undefined);
  t.true((await beat(world, "n1", sessionId)) > 0);
  hint(world.store.version + 1);
  t.is(stream.ended?.message, "session invalid");

  const second = await join(world, "n2");
  world.seed("session", Session.create({ id: "n2", sessionId: "other", managerId: "m2" }));
  t.is(second.stream.ended?.message, "session invalid");
  await world.run(60_000);
  t.is(world.stateOf("n2"), NodeStatus_State.READY, "the manager that lost the node does not declare it DOWN");
});

/** Another manager's session id. */
const old = "0123456789abcdefghijklmno";

test("a session that moves from another manager gets a new id, by which that manager recognises the move", async (t) => {
  const world = setUp(t);
  world.seed("session", Session.create({ id: "n1", sessionId: old, managerId: "m2" }));
  const { id } = open(world, "n1", old);
  await world.run(20);
  t.not(id(), "");
  t.not(id(), old);
  t.like(world.store.get("session", "n1"), { sessionId: id(), managerId: "m1", takenFrom: old });

  const { sessionId, stream } = await join(world, "n2");
  for (const next of ["next", "next but one"]) {
    world.seed("session", Session.create({ id: "n2", sessionId: next, managerId: "m2", takenFrom: sessionId }));
    t.is(stream.ended?.message, "session invalid");
    t.deepEqual(world.dispatcher.explain("n2")[0]?.tried, [], "no other node has its identity");
  }
});

test("an agent that returns with another manager's id gets nothing from memory, even if this replica says that it never left", async (t) => {
  const world = setUp(t);
  const { breakOff, sessionId } = await join(world, "n1");
  breakOff();
  world.manager.leaderless = true;
  const back = open(world, "n1", old);
  await world.run(3_000);
  t.deepEqual(back.stream.messages, []);
  const refusal = await refusalOf(() => beat(world, "n1", sessionId));
  t.is(refusal?.message, "session invalid");
  world.manager.leaderless = false;
  await world.run(2_500);
  t.not(back.id(), "");
  t.not(back.id(), sessionId);
  t.is(world.store.get("session", "n1")?.takenFrom, old);
});

test("an invalid session id from an agent is never written to the log", async (t) => {
  const world = setUp(t);
  const { id } = open(world, "n1", "x".repeat(100_000));
  await world.run(20);
  t.like(world.store.get("session", "n1"), { sessionId: id(), takenFrom: "" });
});

test("an agent that gave up before it received its new session finds it again, however often", async (t) => {
  const world = setUp(t);
  world.seed("session", Session.create({ id: "n1", sessionId: old, managerId: "m2" }));
  world.manager.leaderless = true;
  for (let tries = 0; tries < 6; tries += 1) {
    const { breakOff, stream } = open(world, "n1", old);
    await world.run(500);
    t.is(stream.ended, undefined);
    breakOff();
  }
  const last = open(world, "n1", old);
  world.manager.leaderless = false;
  await world.run(2_500);
  t.is(last.id(), world.store.get("session", "n1")?.sessionId ?? "none");
  last.breakOff();
  const again = open(world, "n1", old);
  await world.run(20);
  t.is(again.id(), last.id());
});

test("a restarted manager finds its sessions in the log and resumes them without a write", async (t) => {
  const world = setUp(t);
  const { sessionId } = await join(world, "n1");
  await join(world, "n2");
  world.dispatcher.stop();
  world.env.host.stopAll();
  const again = world.start();
  t.teardown(() => again.stop());
  t.deepEqual(
    [...again.sessions()].map(({ state }) => state),
    ["adopted", "adopted"],
  );
  const before = world.proposals.length;
  await world.run(10_000);
  const resumed = open(world, "n1", sessionId, NodeDescription.create({ hostname: "n1" }), again);
  t.is(resumed.id(), sessionId);
  t.is(world.proposals.length, before);
  await world.run(14_000);
  t.is(world.stateOf("n2"), NodeStatus_State.READY, "six periods");
  await world.run(7_000);
  t.is(world.stateOf("n2"), NodeStatus_State.DOWN);
});

test("a node that returned to a restarted manager gets no extra time when its stream breaks", async (t) => {
  const world = setUp(t);
  const { sessionId } = await join(world, "n1");
  world.dispatcher.stop();
  world.env.host.stopAll();
  const again = world.start();
  t.teardown(() => again.stop());
  const resumed = open(world, "n1", sessionId, NodeDescription.create({ hostname: "n1" }), again);
  await world.run(1_000);
  t.is(world.stateOf("n1"), NodeStatus_State.READY);
  resumed.breakOff();
  await world.run(6_500);
  t.is(world.stateOf("n1"), NodeStatus_State.DOWN);
});

test("when the log has several sessions of an earlier life, the last is awaited", async (t) => {
  const world = setUp(t);
  world.seed(
    "node",
    Node.patch(world.store.get("node", "n1") as Node, { status: NodeStatus.create({ state: NodeStatus_State.READY }) }),
  );
  world.seed("session", Session.create({ id: "n1", sessionId: "first", managerId: "m1" }));
  world.seed("session", Session.create({ id: "n1", sessionId: "last", managerId: "m1" }));
  t.like([...world.dispatcher.sessions()], [{ nodeId: "n1", sessionId: "last", state: "adopted" }]);
  await world.run(32_000);
  t.is(world.stateOf("n1"), NodeStatus_State.DOWN);
});

test("all live managers are listed; a change of them or of the node is sent once, and a heartbeat never", async (t) => {
  const world = setUp(t);
  const { stream } = await join(world, "n1");
  world.seed(
    "manager",
    Manager.create({ id: "m2", addr: "192.0.2.2:2377", alive: true }),
    Manager.create({ id: "m3", addr: "192.0.2.3:2377", alive: true }),
  );
  world.seed("manager", Manager.create({ id: "m3", addr: "192.0.2.3:2377", alive: false }));
  await world.run(20);
  t.is(stream.messages.length, 2);
  t.deepEqual(
    stream.messages.at(-1)?.managers.map(({ peer }) => peer?.nodeId),
    ["m1", "m2"],
  );
  const node = world.store.get("node", "n1") as Node;
  world.seed("node", Node.patch(node, { status: NodeStatus.create({ state: NodeStatus_State.READY, message: "x" }) }));
  await world.run(20);
  t.is(stream.messages.length, 2);
  world.seed("node", Node.patch(node, { spec: NodeSpec.create({ availability: 2 }) }));
  await world.run(20);
  t.is(stream.messages.length, 3);
});

test("a stopping dispatcher sends its nodes elsewhere, and leaves their sessions in the log", async (t) => {
  const world = setUp(t);
  const { stream } = await join(world, "n1");
  world.dispatcher.stop();
  t.is(stream.ended?.code, Status.ABORTED);
  t.is(stream.ended?.message, "node must disconnect");
  t.truthy(world.store.get("session", "n1"));
});
