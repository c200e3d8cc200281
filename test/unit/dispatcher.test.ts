// The Dispatcher service as a node sees it, over a real replica and a ledger that the test can take away.
import test, { type ExecutionContext } from "ava";
import { createDispatcher, type DispatcherOptions } from "../../actors/dispatcher/dispatcher.ts";
import { massDown } from "../../machines/dispatcher/dispatcher.ts";
import { sessionTimes } from "../../machines/dispatcher/session.ts";
import {
  Annotations,
  type AssignmentsMessage,
  AssignmentsMessage_Type,
  AssignmentsRequest,
  Cluster,
  ClusterSpec,
  ContainerSpec,
  DispatcherConfig,
  Duration,
  HeartbeatRequest,
  Manager,
  Node,
  NodeDescription,
  NodeSpec,
  NodeStatus,
  NodeStatus_State,
  RootCA,
  Session,
  type SessionMessage,
  SessionRegistered,
  SessionRequest,
  Task,
  TaskSpec,
  type TasksMessage,
  TasksRequest,
  TaskState,
  TaskStatus,
  UpdateTaskStatusRequest,
  UpdateTaskStatusRequest_TaskStatusUpdate as TaskStatusUpdate,
  UpdateVolumeStatusRequest,
  UpdateVolumeStatusRequest_VolumeStatusUpdate as VolumeStatusUpdate,
  Volume,
  VolumePublishStatus,
  VolumePublishStatus_State as PublishState,
} from "../../proto/gen/messages.ts";
import type { Bus, BusMessage } from "../../runtime/ports.ts";
import { Status, type CallContext } from "../../runtime/rpc.ts";
import { call, collectedStream, refusalOf, testManager } from "../support/manager.ts";

const addr = "192.0.2.1:2377";

/** A bus of one process: what is published reaches its subscribers at once. */
function loopBus(): Bus & { readonly published: string[] } {
  const handlers = new Map<string, (message: BusMessage) => void>();
  const published: string[] = [];
  return {
    published,
    publish: (subject, data) => {
      published.push(subject);
      handlers.get(subject)?.({ subject, data, headers: {}, respond: () => undefined });
    },
    subscribe: (subject, handler) => {
      handlers.set(subject, handler);
      return { unsubscribe: () => handlers.delete(subject) };
    },
    request: () => Promise.resolve({ kind: "no-responders" }),
    isUp: () => true,
    onLink: () => ({ unsubscribe: () => undefined }),
  };
}

function setUp(
  t: ExecutionContext,
  options: Partial<DispatcherOptions> & { nodes?: string[]; heartbeatPeriodS?: number } = {},
) {
  const manager = testManager("m1");
  const bus = loopBus();
  const { clock, seed, store } = manager;
  for (const id of options.nodes ?? ["n1", "n2"]) seed("node", Node.create({ id, spec: NodeSpec.create() }));
  const period = Duration.create({ seconds: options.heartbeatPeriodS ?? 5 });
  const spec = ClusterSpec.create({ dispatcher: DispatcherConfig.create({ heartbeatPeriod: period }) });
  seed("cluster", Cluster.create({ id: "c", spec, rootCa: RootCA.create({ caCert: new Uint8Array([1, 2, 3]) }) }));
  const start = () => createDispatcher({ ...manager.env, bus }, { addr, settled: () => true, ...options });
  const dispatcher = start();
  t.teardown(() => dispatcher.stop());
  const run = (ms: number): Promise<unknown> => clock.run({ untilMs: clock.now() + ms });
  return {
    ...manager,
    manager,
    bus,
    dispatcher,
    start,
    run,
    seed,
    store,
    stateOf: (id: string) => store.get("node", id)?.status?.state,
  };
}
type World = ReturnType<typeof setUp>;

function from(nodeId: string, signal?: AbortSignal, address = "198.51.100.7"): CallContext {
  return call({ identity: { nodeId, role: "swarm-worker", organization: "c" }, local: false, address }, signal);
}

/** Opens a session stream as `nodeId`'s agent does. */
function open(
  world: World,
  nodeId: string,
  sessionId = "",
  description: NodeDescription | null = NodeDescription.create({ hostname: nodeId }),
  dispatcher = world.dispatcher,
) {
  const stream = collectedStream<SessionMessage>();
  const abort = new AbortController();
  dispatcher.handlers.Session(SessionRequest.create({ description, sessionId }), stream, from(nodeId, abort.signal));
  return { stream, breakOff: () => abort.abort(), id: () => stream.messages.at(-1)?.sessionId ?? "" };
}

async function join(world: World, nodeId: string) {
  const session = open(world, nodeId);
  await world.run(20);
  return { ...session, sessionId: session.id() };
}

async function beat(world: World, nodeId: string, sessionId: string): Promise<number> {
  const { period } = await world.dispatcher.handlers.Heartbeat(HeartbeatRequest.create({ sessionId }), from(nodeId));
  return (period?.seconds ?? 0) * 1_000 + (period?.nanos ?? 0) / 1e6;
}

/** All given nodes heartbeat every 4 s for that long. */
async function live(world: World, ms: number, ...nodes: { nodeId: string; sessionId: string }[]): Promise<void> {
  for (let left = ms; left > 0; left -= 4_000) {
    for (const { nodeId, sessionId } of nodes) await beat(world, nodeId, sessionId);
    await world.run(Math.min(4_000, left));
  }
}

function task(id: string, nodeId: string, state: TaskState = TaskState.ASSIGNED): Task {
  return Task.create({
    id,
    nodeId,
    serviceAnnotations: Annotations.create({ name: "web" }),
    spec: TaskSpec.create({ container: ContainerSpec.create({ image: "alpine:3" }) }),
    status: TaskStatus.create({ state }),
    desiredState: TaskState.RUNNING,
  });
}

function report(sessionId: string, ...updates: [string, TaskState | null][]): UpdateTaskStatusRequest {
  return UpdateTaskStatusRequest.create({
    sessionId,
    updates: updates.map(([taskId, state]) =>
      TaskStatusUpdate.create({ taskId, status: state === null ? null : TaskStatus.create({ state }) }),
    ),
  });
}

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

test("a thousand nodes that join together share few proposals", async (t) => {
  const nodes = Array.from({ length: 1_000 }, (_, at) => `node${at}`);
  const world = setUp(t, { nodes });
  const streams = nodes.map((nodeId) => open(world, nodeId).stream);
  await world.run(50);
  t.true(streams.every(({ messages }) => messages.length === 1));
  t.true(world.proposals.length <= 2, `${world.proposals.length} proposals`);
});

test("calls without a session get the codes and texts of a real manager", async (t) => {
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

test("heartbeats hand out the cluster's period with its jitter, never nothing", async (t) => {
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

test("a node that falls silent is DOWN after three periods, and its stream ends with NOT_FOUND", async (t) => {
  const world = setUp(t);
  const { sessionId, stream } = await join(world, "n1");
  await live(world, 40_000, { nodeId: "n1", sessionId });
  await world.run(8_000);
  t.is(world.stateOf("n1"), NodeStatus_State.READY);
  await world.run(6_000);
  t.is(world.stateOf("n1"), NodeStatus_State.DOWN);
  t.is(world.store.get("node", "n1")?.status?.message, "heartbeat failure");
  t.is(world.store.get("node", "n1")?.status?.addr, "198.51.100.7");
  t.is(world.store.get("session", "n1"), undefined);
  t.is(stream.ended?.code, Status.NOT_FOUND);
  t.is(stream.ended?.message, "node not registered");
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
  await world.run(sessionTimes.reconnectGraceMs - 3_000 + 500);
  t.is(world.stateOf("n1"), NodeStatus_State.DOWN);
  t.is(world.stateOf("n2"), NodeStatus_State.READY);
  t.is(resumed.id(), back.sessionId);
});

test("a session that is resumed as it was writes nothing; with another description or address it does", async (t) => {
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
  t.is(same.stream.ended?.code, Status.ABORTED, "the newest stream of a session is the one that counts");
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

test("three registrations more than the first are let in within eight seconds", async (t) => {
  const world = setUp(t);
  for (let at = 0; at < 4; at += 1) await join(world, "n1");
  t.deepEqual(await refusalOf(() => open(world, "n1")), {
    code: Status.UNAVAILABLE,
    message: "node n1 exceeded rate limit count of registrations",
  });
  await world.run(8_100);
  await t.notThrowsAsync(() => join(world, "n1"));
});

test("two live machines with one identity are noticed, one that restarted is not", async (t) => {
  const world = setUp(t);
  const restarted = await join(world, "n2");
  restarted.breakOff();
  await join(world, "n2");
  t.deepEqual(world.dispatcher.explain("n2")[0]?.tried, []);
  for (let at = 0; at < 3; at += 1) await join(world, "n1");
  t.regex(world.dispatcher.explain("n1")[0]?.tried[0] ?? "", /two live machines seem to hold this identity/);
});

test("a registration with another manager ends the session here, by the log or by the hint, and an older hint does not", async (t) => {
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
  t.is(world.stateOf("n2"), NodeStatus_State.READY, "who lost the node does not declare it DOWN");
});

test("a session is taken over from another manager under its own id", async (t) => {
  const world = setUp(t);
  world.seed("session", Session.create({ id: "n1", sessionId: "old", managerId: "m2" }));
  const { id } = open(world, "n1", "old");
  await world.run(20);
  t.is(id(), "old");
  t.is(world.store.get("session", "n1")?.managerId, "m1");
});

test("a manager that restarts finds its sessions in the log and lets them be resumed without a write", async (t) => {
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

test("while the log is away sessions stay, nobody is DOWN, and a registration waits for it", async (t) => {
  let settled = true;
  const world = setUp(t, { settled: () => settled });
  await join(world, "n1");
  world.manager.leaderless = true;
  settled = false;
  const waiting = open(world, "n2");
  await world.run(60_000);
  t.is(world.stateOf("n1"), NodeStatus_State.READY);
  t.regex(world.dispatcher.explain("n1")[0]?.waitingFor ?? "", /held back because this manager's own link/);
  t.is(waiting.stream.messages.length, 0);
  t.regex(world.dispatcher.explain("n2")[0]?.waitingFor ?? "", /commit of the node's registration/);
  world.manager.leaderless = false;
  await world.run(2_500);
  t.is(waiting.stream.messages.length, 1);
  settled = true;
  await world.run(14_000);
  t.is(world.stateOf("n1"), NodeStatus_State.READY, "not before a whole grace period has passed in health");
  await world.run(3_000);
  t.is(world.stateOf("n1"), NodeStatus_State.DOWN);
});

test("a node that others called DOWN is READY again while its session lives", async (t) => {
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

test("when most nodes vanish at once nobody is DOWN until the hold is over; a single one is not held", async (t) => {
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

test("a manager that was stopped for long gives its nodes a grace to be heard before it declares any DOWN", async (t) => {
  const world = setUp(t);
  const { clock } = world;
  const { sessionId } = await join(world, "n1");
  await world.run(5_000);
  // What a stopped process sees when it goes on: its clock has jumped, and its timers are due before it reads a byte.
  const now = clock.now.bind(clock);
  clock.now = () => now() + 60_000;
  const run = (ms: number): Promise<unknown> => clock.run({ untilMs: now() + ms });
  await run(12_500);
  t.is(world.stateOf("n1"), NodeStatus_State.READY);
  t.regex(world.dispatcher.explain("n1")[0]?.waitingFor ?? "", /verdict/);
  t.true((await beat(world, "n1", sessionId)) > 0);
  await run(10_000);
  t.is(world.stateOf("n1"), NodeStatus_State.READY);
});

test("a hold ends when the nodes come back, and nothing has moved", async (t) => {
  const nodes = Array.from({ length: 10 }, (_, at) => `n${at}`);
  const world = setUp(t, { nodes });
  const sessions = await Promise.all(nodes.map(async (nodeId) => ({ nodeId, ...(await join(world, nodeId)) })));
  for (const { breakOff } of sessions) breakOff();
  await world.run(20_000);
  for (const { nodeId, sessionId } of sessions) open(world, nodeId, sessionId);
  await live(world, 40_000, ...sessions);
  t.true(nodes.every((id) => world.stateOf(id) === NodeStatus_State.READY));
});

test("all managers that live are listed, and a change of them or of the node is told once, a heartbeat's never", async (t) => {
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

test("a commit that concerns many nodes reaches each of them, and so does what comes while they are told", async (t) => {
  const names = Array.from({ length: 100 }, (_, at) => `n${at}`);
  const world = setUp(t, { nodes: names });
  const streams = new Map(names.map((name) => [name, collectedStream<AssignmentsMessage>()]));
  for (const [name, stream] of streams) {
    const { sessionId } = await join(world, name);
    world.dispatcher.handlers.Assignments(AssignmentsRequest.create({ sessionId }), stream, from(name));
  }
  const idsOf = (name: string): (string | undefined)[] =>
    (streams.get(name)?.messages ?? []).flatMap(({ changes }) => changes.map(({ assignment }) => assignment?.task?.id));
  world.seed("task", ...names.map((name) => task(`first-${name}`, name)));
  // As long as one batch is gathered, and not until all of them are told.
  await world.run(4);
  world.seed("task", ...names.map((name) => task(`second-${name}`, name)));
  await world.run(100);
  for (const name of names) t.deepEqual(idsOf(name), [`first-${name}`, `second-${name}`]);
});

test("assignments start with everything and go on with what changes, in one message a batch", async (t) => {
  const world = setUp(t);
  world.seed("task", task("t1", "n1"), task("other", "n2"));
  const { sessionId } = await join(world, "n1");
  const stream = collectedStream<AssignmentsMessage>();
  const abort = new AbortController();
  world.dispatcher.handlers.Assignments(AssignmentsRequest.create({ sessionId }), stream, from("n1", abort.signal));
  t.deepEqual(
    stream.messages.map(({ type, appliesTo, resultsIn, changes }) => [type, appliesTo, resultsIn, changes.length]),
    [[AssignmentsMessage_Type.COMPLETE, "", "1", 1]],
  );
  world.seed("task", task("t2", "n1"), task("other2", "n2"));
  world.seed("task", task("t3", "n1"));
  await world.run(20);
  t.deepEqual(
    stream.messages
      .slice(1)
      .map(({ type, appliesTo, resultsIn, changes }) => [
        type,
        appliesTo,
        resultsIn,
        changes.map(({ assignment }) => assignment?.task?.id),
      ]),
    [[AssignmentsMessage_Type.INCREMENTAL, "1", "2", ["t2", "t3"]]],
  );
  stream.buffered = 100e6;
  for (let at = 0; at < 10; at += 1) {
    world.seed("task", task(`late${at}`, "n1"));
    await world.run(20);
  }
  t.is(stream.messages.length, 2, "a node that does not read is not written to");
  stream.buffered = 0;
  await world.run(100);
  t.deepEqual(
    stream.messages.slice(2).map(({ appliesTo, resultsIn, changes }) => [appliesTo, resultsIn, changes.length]),
    [["2", "3", 10]],
  );
  abort.abort();
  world.seed("task", task("unheard", "n1"));
  await world.run(20);
  t.is(stream.messages.length, 3);
});

test("the deprecated Tasks stream sends the whole list each time", async (t) => {
  const world = setUp(t);
  world.seed("task", task("t1", "n1"));
  const { sessionId } = await join(world, "n1");
  const stream = collectedStream<TasksMessage>();
  world.dispatcher.handlers.Tasks(TasksRequest.create({ sessionId }), stream, from("n1"));
  world.seed("task", task("t2", "n1"));
  await world.run(20);
  t.deepEqual(
    stream.messages.map(({ tasks }) => tasks.map(({ id }) => id)),
    [["t1"], ["t1", "t2"]],
  );
});

test("a task that would crash an engine is REJECTED with the reason instead of sent", async (t) => {
  const world = setUp(t);
  const { sessionId } = await join(world, "n1");
  const stream = collectedStream<AssignmentsMessage>();
  world.dispatcher.handlers.Assignments(AssignmentsRequest.create({ sessionId }), stream, from("n1"));
  world.seed("task", Task.patch(task("poison", "n1"), { serviceAnnotations: null }));
  await world.run(50);
  t.is(stream.messages.length, 1);
  const status = world.store.get("task", "poison")?.status;
  t.is(status?.state, TaskState.REJECTED);
  t.regex(status?.err ?? "", /neither the service nor the task has a name/);
});

test("a report waits for the log without its node, only the newest of a task, and bears the manager that took it", async (t) => {
  const world = setUp(t);
  world.seed("task", task("t1", "n1"));
  const { sessionId } = await join(world, "n1");
  world.manager.leaderless = true;
  const { UpdateTaskStatus } = world.dispatcher.handlers;
  await UpdateTaskStatus(report(sessionId, ["t1", TaskState.ACCEPTED]), from("n1"));
  await UpdateTaskStatus(report(sessionId, ["t1", TaskState.RUNNING]), from("n1"));
  await world.run(20_000);
  t.is(world.store.get("task", "t1")?.status?.state, TaskState.ASSIGNED);
  world.manager.leaderless = false;
  await world.run(3_000);
  const status = world.store.get("task", "t1")?.status;
  t.is(status?.state, TaskState.RUNNING);
  t.is(status?.appliedBy, "m1");
  t.truthy(status?.appliedAt);
});

test("reports of all nodes share a proposal; states never fall; what is unknown or empty is skipped", async (t) => {
  const world = setUp(t);
  world.seed("task", task("a", "n1"), task("b", "n2"), task("done", "n1", TaskState.COMPLETE));
  const [first, second] = [await join(world, "n1"), await join(world, "n2")];
  const before = world.proposals.length;
  const { UpdateTaskStatus } = world.dispatcher.handlers;
  const answers = [
    UpdateTaskStatus(
      report(first.sessionId, ["a", TaskState.RUNNING], ["unknown", TaskState.RUNNING], ["a", null]),
      from("n1"),
    ),
    UpdateTaskStatus(report(first.sessionId, ["a", TaskState.ACCEPTED], ["done", TaskState.RUNNING]), from("n1")),
    UpdateTaskStatus(report(second.sessionId, ["b", TaskState.ACCEPTED]), from("n2")),
  ];
  await world.run(50);
  await Promise.all(answers.map((answer) => Promise.resolve(answer)));
  t.is(world.proposals.length, before + 1);
  t.deepEqual(
    ["a", "b", "done"].map((id) => world.store.get("task", id)?.status?.state),
    [TaskState.RUNNING, TaskState.ACCEPTED, TaskState.COMPLETE],
  );
  await Promise.resolve(UpdateTaskStatus(report(first.sessionId, ["a", TaskState.PREPARING]), from("n1")));
  t.is(world.proposals.length, before + 1);
});

test("a report of another node's task is denied as a whole", async (t) => {
  const world = setUp(t);
  world.seed("task", task("mine", "n1"), task("theirs", "n2"));
  const { sessionId } = await join(world, "n1");
  const before = world.proposals.length;
  t.deepEqual(
    await refusalOf(() =>
      world.dispatcher.handlers.UpdateTaskStatus(
        report(sessionId, ["mine", TaskState.RUNNING], ["theirs", TaskState.RUNNING]),
        from("n1"),
      ),
    ),
    { code: Status.PERMISSION_DENIED, message: "cannot update a task not assigned this node" },
  );
  await world.run(20);
  t.is(world.proposals.length, before);
});

test("a volume that the node let go of is the controller's to unpublish", async (t) => {
  const world = setUp(t);
  const { sessionId } = await join(world, "n1");
  world.seed(
    "volume",
    Volume.create({
      id: "v1",
      publishStatus: [VolumePublishStatus.create({ nodeId: "n1", state: PublishState.PENDING_NODE_UNPUBLISH })],
    }),
  );
  const updates = ["v1", "unknown"].map((id) => VolumeStatusUpdate.create({ id, unpublished: true }));
  await world.dispatcher.handlers.UpdateVolumeStatus(
    UpdateVolumeStatusRequest.create({ sessionId, updates }),
    from("n1"),
  );
  t.is(world.store.get("volume", "v1")?.publishStatus[0]?.state, PublishState.PENDING_UNPUBLISH);
});

test("a dispatcher that stops tells its nodes to go elsewhere, and leaves their sessions in the log", async (t) => {
  const world = setUp(t);
  const { stream } = await join(world, "n1");
  world.dispatcher.stop();
  t.is(stream.ended?.code, Status.ABORTED);
  t.is(stream.ended?.message, "node must disconnect");
  t.truthy(world.store.get("session", "n1"));
});
