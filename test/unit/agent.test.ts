// The whole agent against a scripted manager, on virtual time.
import test from "ava";
import {
  AssignmentChange_AssignmentAction as Action,
  AssignmentsMessage_Type as Kind,
  Certificate,
  ContainerSpec,
  IssuanceStatus,
  IssuanceStatus_State,
  Node,
  NodeSpec,
  TaskSpec,
  TaskState,
  TaskStatus,
} from "../../proto/gen/messages.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import { address, change, peer, task, text, World } from "./agent-world.ts";

const toRunning = [TaskState.ACCEPTED, TaskState.PREPARING, TaskState.READY, TaskState.STARTING, TaskState.RUNNING];

test("an agent joins with its token and describes its node to the manager", async (t) => {
  const world = await new World().serving();
  t.is(world.agent.nodeId(), "node1");
  t.deepEqual(world.agent.state(), { kind: "serving", manager: address, sessionId: "s1" });
  const description = world.sessions[0]?.request.description;
  t.like(description, {
    hostname: "host.example",
    platform: { architecture: "x86_64", os: "linux" },
    resources: { nanoCpus: 4e9 },
  });
  t.deepEqual(
    description?.engine?.plugins.map(({ type, name }) => [type, name]),
    [["Driver", "exec"]],
  );
  t.deepEqual({ ...description?.engine?.labels }, { "muster.session-format": "1", zone: "a" });
  t.is(text(description?.tlsInfo?.trustRoot ?? new Uint8Array()), "SIMULATED ROOT 1\n");
  t.is(world.sessions[0]?.request.sessionId, "");
  await world.pass(16_000);
  t.is(world.heartbeats, 4);
  t.is(world.sessions.length, 1);
});

test("C7: an agent with a wrong clock joins as one node: at once if the clock is behind, else when it is corrected", async (t) => {
  const dayMs = 86_400_000;
  const behind = new World();
  behind.node.jumpClock(-dayMs);
  await behind.serving();
  t.is(behind.requests.length, 1);
  const ahead = new World();
  ahead.node.jumpClock(100 * dayMs);
  ahead.node.start();
  await ahead.until(() => ahead.requests.length === 1);
  await ahead.pass(600_000);
  t.deepEqual([ahead.requests.length, ahead.agent.state().kind], [1, "joining"]);
  ahead.node.setClockRight();
  await ahead.until(() => ahead.agent.state().kind === "serving");
  t.is(ahead.requests.length, 1);
  t.is(ahead.agent.nodeId(), "node1");
});

test("a bad secret ends the join with the manager's words", async (t) => {
  const world = new World();
  world.token = `${world.goodToken.slice(0, -1)}z`;
  world.node.start();
  await world.until(() => world.agent.state().kind === "failed");
  t.deepEqual(world.agent.state(), { kind: "failed", reason: "A valid join token is necessary to join this cluster" });
});

test("a root that the token does not pin is never used", async (t) => {
  const world = new World();
  world.script.rootPem = "SIMULATED ROOT of somebody else\n";
  world.node.start();
  await world.until(() => world.agent.state().kind === "failed");
  const state = world.agent.state();
  t.regex(
    state.kind === "failed" ? state.reason : "",
    /^remote CA does not match fingerprint\. Expected: [0-9a-f]{64}$/,
  );
  t.is(world.requests.length, 0);
});

test("a malformed token contacts nobody", async (t) => {
  const world = new World();
  world.token = "SWMTKN-1-short";
  world.node.start();
  await world.until(() => world.agent.state().kind === "failed");
  t.deepEqual(world.agent.state(), { kind: "failed", reason: "invalid join token" });
});

test("a join to a manager that is not running fails after five attempts and names the address", async (t) => {
  const world = new World();
  world.manager.crash();
  world.node.start();
  await world.until(() => world.agent.state().kind === "failed");
  const state = world.agent.state();
  t.regex(
    state.kind === "failed" ? state.reason : "",
    /^cannot get the cluster's root certificate from 10\.0\.0\.1:2377: UNAVAILABLE/,
  );
});

test("a task goes through its states in order with one call each, and stops when requested", async (t) => {
  const world = await new World().serving();
  let most = 0;
  world.script.onReport = ({ updates }) => (most = Math.max(most, updates.length));
  world.assignAll(task("t1"));
  await world.until(() => world.statesOf("t1").includes(TaskState.RUNNING));
  t.deepEqual(world.statesOf("t1"), toRunning);
  t.is(most, 1);
  t.true((world.lastReport("t1").container?.pid ?? 0) > 0);
  t.deepEqual(world.machine.running(), ["t1"]);
  world.assign({
    type: Kind.INCREMENTAL,
    appliesTo: "1",
    resultsIn: "2",
    changes: [change(task("t1", { desiredState: TaskState.SHUTDOWN }))],
  });
  await world.until(() => world.statesOf("t1").includes(TaskState.SHUTDOWN));
  t.deepEqual(world.machine.running(), []);
  const reported = world.reports.length;
  world.assign({
    type: Kind.INCREMENTAL,
    appliesTo: "2",
    resultsIn: "3",
    changes: [change(task("t1"), Action.REMOVE)],
  });
  await world.until(() => world.agent.tasks().length === 0);
  await world.pass(1_000);
  t.is(world.reports.length, reported);
  t.deepEqual(
    world.node.disk.names().filter((name) => name.startsWith("task.")),
    [],
  );
});

test("a task whose desired state is READY waits, and starts when that rises", async (t) => {
  const world = await new World().serving();
  world.assignAll(task("t1", { desiredState: TaskState.READY }));
  await world.pass(5_000);
  t.deepEqual(world.statesOf("t1"), [TaskState.ACCEPTED, TaskState.PREPARING, TaskState.READY]);
  t.deepEqual(world.machine.running(), []);
  world.assign({ type: Kind.INCREMENTAL, appliesTo: "1", resultsIn: "2", changes: [change(task("t1"))] });
  await world.until(() => world.statesOf("t1").includes(TaskState.RUNNING));
  // A desired state never decreases.
  world.assign({
    type: Kind.INCREMENTAL,
    appliesTo: "2",
    resultsIn: "3",
    changes: [change(task("t1", { desiredState: TaskState.READY }))],
  });
  await world.pass(1_000);
  t.deepEqual(world.machine.running(), ["t1"]);
});

test("containers are rejected with a message that says what the node can run", async (t) => {
  const world = await new World().serving();
  world.assignAll(task("t1", { spec: TaskSpec.create({ container: ContainerSpec.create({ image: "alpine" }) }) }));
  await world.until(() => world.statesOf("t1").includes(TaskState.REJECTED));
  t.is(world.lastReport("t1").err, "unsupported runtime: this node runs tasks of kind exec, not containers");
});

test("tasks missing from a complete set are ended and forgotten", async (t) => {
  const world = await new World().serving();
  world.assignAll(task("t1"), task("t2"));
  await world.until(() => world.machine.running().length === 2);
  world.assignAll(task("t2"));
  await world.until(() => world.machine.running().length === 1);
  t.deepEqual(world.machine.running(), ["t2"]);
  t.deepEqual(
    world.agent.tasks().map(({ id }) => id),
    ["t2"],
  );
});

test("a task that the manager believes to run, but that this node has never seen, fails", async (t) => {
  const world = await new World().serving();
  world.assignAll(task("t1", { status: TaskStatus.create({ state: TaskState.RUNNING }) }));
  await world.until(() => world.statesOf("t1").includes(TaskState.FAILED));
  t.is(world.lastReport("t1").err, "task: its process no longer exists on this node; its exit status is unknown");
  t.deepEqual(world.machine.running(), []);
});

test("after a kill -9 the agent recovers its tasks, starts none twice and reports them in its new session", async (t) => {
  const world = await new World().serving();
  world.assignAll(task("t1"), task("t2", { desiredState: TaskState.READY }));
  await world.until(
    () => world.statesOf("t1").includes(TaskState.RUNNING) && world.statesOf("t2").includes(TaskState.READY),
  );
  await world.pass(1_000);
  world.node.crash({ losePower: false });
  world.reports.length = 0;
  const requests = world.requests.length;
  world.join = false;
  world.node.start();
  await world.until(
    () => world.sessions.length === 2 && world.statesOf("t1").length > 0 && world.statesOf("t2").length > 0,
  );
  t.is(world.requests.length, requests, "the certificate is on the disk");
  t.is(world.sessions[1]?.request.sessionId, "");
  t.deepEqual(world.statesOf("t1"), [TaskState.RUNNING]);
  t.deepEqual(world.statesOf("t2"), [TaskState.READY]);
  t.deepEqual(world.machine.running(), ["t1"]);
});

for (const { was, ends } of [
  { was: TaskState.STARTING, ends: [TaskState.FAILED] },
  { was: TaskState.RUNNING, ends: [TaskState.FAILED] },
  { was: TaskState.COMPLETE, ends: [] },
])
  test(`L3: an agent with an older disk does not restart a task that its manager has in state ${was}`, async (t) => {
    const world = await new World().serving();
    world.assignAll(task("t1", { desiredState: TaskState.READY }));
    await world.until(() => world.statesOf("t1").includes(TaskState.READY));
    await world.pass(1_000);
    const copy = world.node.disk.copy();
    world.assignAll(task("t1"));
    await world.until(() => world.statesOf("t1").includes(TaskState.RUNNING));
    world.node.crash({ losePower: true });
    world.machine.losePower();
    world.node.disk.restore(copy);
    world.reports.length = 0;
    world.node.start();
    await world.until(() => world.streams.length === 2);
    await world.pass(2_000);
    t.deepEqual(world.machine.running(), []);
    world.assignAll(task("t1", { status: TaskStatus.create({ state: was }) }), task("t2"));
    await world.until(() => world.statesOf("t2").includes(TaskState.RUNNING));
    await world.pass(2_000);
    t.deepEqual(world.machine.running(), ["t2"]);
    t.deepEqual(
      world.statesOf("t1").filter((state) => state > TaskState.READY),
      ends,
    );
  });

test("L3: after a kill -9, unstarted tasks do not start before a manager confirms their assignment", async (t) => {
  const world = await new World().serving();
  const hanging = world.machine.driver.bind(world.machine);
  world.machine.driver = (kind, clock) => ({ ...hanging(kind, clock), prepare: () => new Promise(() => {}) });
  world.node.restart();
  await world.until(() => world.streams.length === 2);
  world.assignAll(task("t1"), task("t2"));
  await world.until(() => world.statesOf("t1").includes(TaskState.PREPARING));
  await world.pass(1_000);
  world.machine.driver = hanging;
  world.node.restart();
  await world.until(() => world.streams.length === 3);
  await world.pass(5_000);
  t.deepEqual(world.machine.running(), []);
  world.assignAll(task("t1"));
  await world.until(() => world.statesOf("t1").includes(TaskState.RUNNING));
  t.deepEqual(world.machine.running(), ["t1"]);
});

test("an ended session is rebuilt with its id, and every task's newest state is reported again", async (t) => {
  const world = await new World().serving();
  world.assignAll(task("t1"));
  await world.until(() => world.statesOf("t1").includes(TaskState.RUNNING));
  world.reports.length = 0;
  world.sessions[0]?.sink.end(new RpcError(Status.ABORTED, "node must disconnect"));
  await world.until(() => world.sessions.length === 2 && world.reports.length > 0);
  t.is(world.sessions[1]?.request.sessionId, "s1");
  t.deepEqual(world.statesOf("t1"), [TaskState.RUNNING]);
  t.deepEqual(
    world.states.find((state) => state.kind === "connecting" && state.reason !== ""),
    { kind: "connecting", reason: "session: ABORTED: node must disconnect" },
  );
});

test("a manager that was away for a while is found again, whatever the tasks did meanwhile", async (t) => {
  const world = await new World().serving();
  world.assignAll(task("t1"), task("t2", { desiredState: TaskState.READY }));
  await world.until(
    () => world.statesOf("t1").includes(TaskState.RUNNING) && world.statesOf("t2").includes(TaskState.READY),
  );
  world.manager.crash();
  await world.pass(30_000);
  world.reports.length = 0;
  world.manager.start();
  await world.until(() => world.reports.length >= 2, 20_000);
  t.deepEqual(world.statesOf("t1"), [TaskState.RUNNING]);
});

test("a status that the manager rejects is dropped, and one whose call fails is reported again in the next session", async (t) => {
  const world = await new World().serving();
  let refusals = 1;
  world.script.onReport = ({ updates }) => {
    if (updates[0]?.taskId === "gone") throw new RpcError(Status.NOT_FOUND, "no such task");
    if (updates[0]?.status?.state === TaskState.STARTING && refusals-- > 0)
      throw new RpcError(Status.UNAVAILABLE, "busy");
  };
  world.assignAll(task("gone"), task("t1"));
  await world.until(() => world.statesOf("t1").includes(TaskState.RUNNING));
  t.is(world.sessions.length, 2, "only the UNAVAILABLE ended a session");
  t.deepEqual(world.statesOf("gone"), []);
  const states = world.statesOf("t1");
  t.deepEqual(
    states,
    [...states].sort((a, b) => a - b),
    "states never decrease",
  );
});

test("a gap in the assignment messages makes the agent request everything again", async (t) => {
  const world = await new World().serving();
  world.assignAll(task("t1"));
  await world.until(() => world.statesOf("t1").includes(TaskState.RUNNING));
  world.assign({ type: Kind.INCREMENTAL, appliesTo: "7", resultsIn: "8", changes: [change(task("t2"))] });
  await world.until(() => world.sessions.length === 2 && world.streams.length === 2);
  t.deepEqual(world.statesOf("t2"), []);
  t.deepEqual(world.machine.running(), ["t1"]);
});

test("a manager that sends no heartbeat period is not flooded", async (t) => {
  const world = new World();
  world.script.periodMs = 0;
  await world.serving();
  await world.pass(20_000);
  t.true(world.heartbeats <= 5, `${world.heartbeats} heartbeats in 20 s`);
});

test("ROTATE makes the agent renew its certificate without disturbing its session", async (t) => {
  const world = await new World().serving();
  const rotate = Certificate.create({ status: IssuanceStatus.create({ state: IssuanceStatus_State.ROTATE }) });
  world.tell({ node: Node.create({ id: "node1", spec: NodeSpec.create(), certificate: rotate }) });
  await world.until(() => world.requests.length === 2);
  t.like(world.requests[1], { identity: "node1", token: "" });
  await world.pass(30_000);
  t.is(world.sessions.length, 1);
  t.is(world.requests.length, 2);
});

test("a certificate is renewed between 50 and 80 % of its lifetime", async (t) => {
  const world = new World();
  world.script.periodMs = 600_000;
  // Including the hour by which it is backdated: 11 hours.
  world.script.validitySeconds = 10 * 3_600;
  await world.serving();
  const hour = 3_600_000;
  await world.pass(4.4 * hour);
  t.is(world.requests.length, 1);
  await world.until(() => world.requests.length === 2, 3.5 * hour);
  t.is(world.requests[1]?.identity, "node1");
  t.is(world.sessions.length, 1);
});

test("a root to which the node's certificate does not chain is ignored", async (t) => {
  const world = await new World().serving();
  world.tell({ RootCA: new TextEncoder().encode("SIMULATED ROOT 2\n") });
  await world.pass(30_000);
  t.is(world.sessions.length, 1);
});

test("a new root to which the certificate chains is kept and reported to the manager in the same session", async (t) => {
  const world = await new World().serving();
  world.script.crossRoots = ["SIMULATED ROOT 2\n"];
  world.script.rootPem = "SIMULATED ROOT 2\n";
  world.tell();
  await world.until(() => world.sessions.length === 2);
  const { request } = world.sessions[1] ?? {};
  t.is(request?.sessionId, "s1");
  t.is(text(request?.description?.tlsInfo?.trustRoot ?? new Uint8Array()), "SIMULATED ROOT 2\n");
  world.node.crash();
  world.node.start();
  await world.until(() => world.sessions.length === 3);
  t.is(text(world.sessions[2]?.request.description?.tlsInfo?.trustRoot ?? new Uint8Array()), "SIMULATED ROOT 2\n");
});

test("a new root is kept although the node's clock was set to before its certificate", async (t) => {
  const world = await new World().serving();
  world.node.jumpClock(-86_400_000);
  world.script.crossRoots = ["SIMULATED ROOT 2\n"];
  world.script.rootPem = "SIMULATED ROOT 2\n";
  world.tell();
  await world.until(() => world.sessions.length === 2);
  const trusted = world.sessions[1]?.request.description?.tlsInfo?.trustRoot ?? new Uint8Array();
  t.is(text(trusted), "SIMULATED ROOT 2\n");
});

test("a renewal that chains to a root which the node has missed fetches that root", async (t) => {
  const world = await new World().serving();
  world.script.crossRoots = ["SIMULATED ROOT 2\n"];
  world.script.rootPem = "SIMULATED ROOT 2\n";
  world.script.issuerRoot = "SIMULATED ROOT 2\n";
  const rotate = Certificate.create({ status: IssuanceStatus.create({ state: IssuanceStatus_State.ROTATE }) });
  world.tell({
    RootCA: new Uint8Array(),
    node: Node.create({ id: "node1", spec: NodeSpec.create(), certificate: rotate }),
  });
  await world.until(() => world.sessions.length === 2);
  t.is(
    text(world.sessions[1]?.request.description?.tlsInfo?.certIssuerPublicKey ?? new Uint8Array()),
    "SIMULATED ROOT 2\n",
  );
  t.is(text(world.sessions[1]?.request.description?.tlsInfo?.trustRoot ?? new Uint8Array()), "SIMULATED ROOT 2\n");
});

test("the managers list is kept, pruned and never emptied", async (t) => {
  const world = await new World().serving();
  world.tell({ managers: [] });
  await world.pass(1_000);
  world.sessions[0]?.sink.end(new RpcError(Status.ABORTED, "again"));
  await world.until(() => world.sessions.length === 2);
  // The only manager is now listed elsewhere: the old address is not dialled again.
  world.tell({ managers: [peer("10.0.0.9:2377")] });
  await world.pass(1_000);
  world.sessions[1]?.sink.end(new RpcError(Status.ABORTED, "again"));
  await world.pass(60_000);
  t.is(world.sessions.length, 2);
  const state = world.agent.state();
  t.regex(state.kind === "connecting" ? state.reason : "", /10\.0\.0\.9:2377/);
});

test("G2: an agent that reaches no manager tries each one before it repeats any", async (t) => {
  const world = await new World().serving();
  const dead = ["10.0.0.7:2377", "10.0.0.8:2377", "10.0.0.9:2377"];
  world.tell({ managers: dead.map((addr) => peer(addr)) });
  await world.pass(1_000);
  world.sessions[0]?.sink.end(new RpcError(Status.ABORTED, "again"));
  const tried: string[] = [];
  await world.until(() => {
    const state = world.agent.state();
    const [addr] = (state.kind === "connecting" ? state.reason : "").match(/10\.0\.0\.\d:2377/) ?? [];
    if (addr !== undefined && tried.at(-1) !== addr) tried.push(addr);
    return tried.length >= 9;
  });
  for (const round of [0, 3, 6]) t.deepEqual(tried.slice(round, round + 3).toSorted(), dead, tried.join());
});

test("a clean shutdown leaves no task behind and reports nothing to the manager", async (t) => {
  const world = await new World().serving();
  world.assignAll(task("t1"), task("t2"));
  await world.until(() => world.machine.running().length === 2);
  await world.pass(1_000);
  const reported = world.reports.length;
  const over = world.agent.shutdown(true);
  await world.until(() => world.agent.state().kind === "stopped");
  await over;
  t.deepEqual(world.machine.running(), []);
  t.is(world.reports.length, reported);
  t.deepEqual(
    world.node.disk.names().filter((name) => name.startsWith("task.")),
    [],
  );
});

test("a shutdown that keeps the tasks leaves them to the next life", async (t) => {
  const world = await new World().serving();
  world.assignAll(task("t1"));
  await world.until(() => world.machine.running().length === 1);
  await world.pass(1_000);
  const over = world.agent.shutdown(false);
  await world.until(() => world.agent.state().kind === "stopped");
  await over;
  t.deepEqual(world.machine.running(), ["t1"]);
  world.node.crash();
  world.node.start();
  await world.until(() => world.agent.tasks().some(({ state }) => state === TaskState.RUNNING));
  t.deepEqual(world.machine.running(), ["t1"]);
});
