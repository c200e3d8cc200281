// The life of a log subscription according to its chart, and which nodes are asked.
import test from "ava";
import { logSubscriptionMachine, type LogSubscriptionEvent } from "../../machines/logs/subscription.machine.ts";
import { logLimits, type LogNodes } from "../../machines/logs/nodes.ts";
import { isSelected, selectLogs, selectorProblem } from "../../machines/logs/selection.ts";
import {
  LogSelector,
  Node,
  NodeStatus,
  NodeStatus_State,
  Service,
  Task,
  TaskState,
  TaskStatus,
} from "../../proto/gen/messages.ts";
import type { Replica } from "../../runtime/store/replica.ts";
import { ChartRun, type Effect } from "../support/chart-run.ts";
import { testManager } from "../support/manager.ts";

function life(follow: boolean) {
  const run = new ChartRun(logSubscriptionMachine, { follow });
  return {
    send(event: LogSubscriptionEvent | string): readonly Effect[] {
      return run.send(event).effects;
    },
    state: () => run.state,
    nodes: (): LogNodes => run.snapshot.context.nodes,
    finish: (): unknown => run.all().find(({ type }) => type === "finish")?.params,
    told: (): readonly unknown[] =>
      run.all().flatMap(({ type, params }) => (type === "tellMissing" ? (params as { reasons: [] }).reasons : [])),
  };
}

function announced(effects: readonly Effect[]): { readonly nodes: LogNodes; readonly close: boolean } {
  const found = effects.find(({ type }) => type === "announce");
  if (found === undefined) throw new Error("nothing was announced");
  return found.params as { nodes: LogNodes; close: boolean };
}

const nodes = (...ids: readonly string[]) => ids.map((id) => ({ id, isAvailable: !id.startsWith("down") }));
const selected = (ids: readonly string[], unscheduled: readonly string[] = []): LogSubscriptionEvent => ({
  type: "selection.changed",
  nodes: nodes(...ids),
  unscheduled,
  exists: true,
});
const ended = (nodeId: string, error = "", attempt = 1): LogSubscriptionEvent => ({
  type: "node.ended",
  nodeId,
  attempt,
  error,
});

test("LS1: without following, it ends once every node has sent its output", (t) => {
  const run = life(false);
  run.send(selected(["n1", "n2"]));
  t.is(run.state(), "gathering");
  run.send({ type: "nodes.held", holder: "m1", held: [{ nodeId: "n1", attempt: 1 }] });
  run.send(ended("n1"));
  t.is(run.state(), "gathering");
  run.send(ended("n2"));
  t.is(run.state(), "ended");
  t.deepEqual(run.finish(), { kind: "complete" });
});

test("LS1: an empty selection waits for nothing", (t) => {
  const run = life(false);
  run.send(selected([]));
  t.deepEqual(run.finish(), { kind: "complete" });
});

test("LS2: missing output is reported at the end, in SwarmKit's words", (t) => {
  const run = life(false);
  run.send(selected(["down1", "n2", "n3"], ["t9"]));
  run.send({ type: "nodes.held", holder: "m1", held: [{ nodeId: "n2", attempt: 1 }] });
  for (let ticks = 0; ticks < logLimits.silentTicksMax; ticks += 1) {
    run.send("announceInterval");
    run.send({ type: "nodes.held", holder: "m1", held: [{ nodeId: "n2", attempt: 1 }] });
  }
  t.is(run.state(), "gathering");
  run.send("announceInterval");
  t.is(run.nodes()["n3"]?.phase, "lost", "nobody listens for it");
  run.send(ended("n2", "node n2 disconnected unexpectedly"));
  t.deepEqual(run.finish(), {
    kind: "incomplete",
    warning:
      "warning: incomplete log stream. some logs could not be retrieved for the following reasons: " +
      "node down1 is not available, node n3 is not available, node n2 disconnected unexpectedly, task t9 has not been scheduled",
  });
});

test("a node whose manager falls silent is lost", (t) => {
  const run = life(false);
  run.send(selected(["n1"]));
  run.send({ type: "nodes.held", holder: "m1", held: [{ nodeId: "n1", attempt: 1 }] });
  for (let ticks = 0; ticks <= logLimits.silentTicksMax; ticks += 1) run.send("announceInterval");
  t.regex((run.finish() as { warning: string }).warning, /node n1 disconnected unexpectedly$/);
});

test("LN2: a follower is notified of a lost node at once, and asks for it again", (t) => {
  const run = life(true);
  run.send(selected(["n1", "n2"]));
  t.is(run.state(), "following");
  run.send({ type: "nodes.held", holder: "m1", held: nodes("n1", "n2").map(({ id }) => ({ nodeId: id, attempt: 1 })) });
  run.send(ended("n1", "node n1 disconnected unexpectedly"));
  t.deepEqual(run.told(), ["node n1 disconnected unexpectedly"]);
  t.deepEqual(run.nodes()["n1"], { phase: "asked", attempt: 2, silentTicks: 0, holder: "", isReported: false });
  // LN1: later messages of the first attempt do not count.
  run.send(ended("n1", "node n1 disconnected unexpectedly"));
  run.send({ type: "nodes.held", holder: "m1", held: [{ nodeId: "n1", attempt: 1 }] });
  t.deepEqual(run.nodes()["n1"], { phase: "asked", attempt: 2, silentTicks: 0, holder: "", isReported: false });
  t.is(run.told().length, 1);
  for (let ticks = 0; ticks < 10; ticks += 1) {
    run.send("announceInterval");
    run.send({ type: "nodes.held", holder: "m1", held: [{ nodeId: "n2", attempt: 1 }] });
  }
  t.deepEqual(run.told().slice(1), ["node n1 is not available"], "told once");
  run.send({ type: "nodes.held", holder: "m1", held: [{ nodeId: "n1", attempt: 2 }] });
  t.is(run.nodes()["n1"]?.phase, "held");
  t.is(run.finish(), undefined);
});

test("LS2: a node that is not available is reported to a follower once for each absence", (t) => {
  const run = life(true);
  const pass = (ticks: number): void => {
    for (let tick = 0; tick < ticks; tick += 1) run.send("announceInterval");
  };
  run.send(selected(["down1", "n2"]));
  t.deepEqual(run.told(), ["node down1 is not available"]);
  pass(10);
  t.deepEqual(run.told(), ["node down1 is not available", "node n2 is not available"]);
  run.send({ type: "nodes.held", holder: "m1", held: [{ nodeId: "down1", attempt: 1 }] });
  run.send(ended("down1", "node down1 disconnected unexpectedly"));
  pass(10);
  t.deepEqual(run.told().slice(2), ["node down1 disconnected unexpectedly", "node down1 is not available"]);
});

test("LN3: another life of a manager does not continue the earlier one's streams: its nodes are lost, and asked again", (t) => {
  const run = life(true);
  run.send(selected(["n1"]));
  run.send({ type: "nodes.held", holder: "m1", held: [{ nodeId: "n1", attempt: 1 }] });
  for (let ticks = 0; ticks <= logLimits.silentTicksMax; ticks += 1) {
    run.send("announceInterval");
    run.send({ type: "nodes.held", holder: "m1 again", held: [{ nodeId: "n1", attempt: 1 }] });
  }
  t.deepEqual(run.told(), ["node n1 disconnected unexpectedly"]);
  run.send({ type: "nodes.held", holder: "m1 again", held: [{ nodeId: "n1", attempt: 2 }] });
  t.is(run.nodes()["n1"]?.holder, "m1 again");
});

test("new nodes of a followed selection are asked", (t) => {
  const run = life(true);
  run.send(selected(["n1"]));
  const effects = run.send(selected(["n1", "n2"]));
  t.deepEqual(Object.keys(announced(effects).nodes), ["n1", "n2"]);
});

test("following ends when nothing is left to follow, once the nodes have sent the rest", (t) => {
  const run = life(true);
  run.send(selected(["n1"]));
  run.send({ type: "nodes.held", holder: "m1", held: [{ nodeId: "n1", attempt: 1 }] });
  const effects = run.send({ type: "selection.changed", nodes: [], unscheduled: [], exists: false });
  t.is(run.state(), "closing");
  t.true(announced(effects).close);
  run.send(ended("n1"));
  t.deepEqual(run.finish(), { kind: "complete" });
});

const removed: LogSubscriptionEvent = { type: "selection.changed", nodes: [], unscheduled: [], exists: false };

test("LS2: following that ends before a node has sent the rest is not complete, and names the node", (t) => {
  const run = life(true);
  run.send(selected(["n1", "n2"]));
  const held = ["n1", "n2"].map((nodeId) => ({ nodeId, attempt: 1 }));
  run.send({ type: "nodes.held", holder: "m1", held });
  run.send(removed);
  run.send(ended("n1"));
  for (let tick = 0; tick <= logLimits.closingTicksMax; tick += 1) {
    t.is(run.state(), "closing");
    run.send("announceInterval");
    run.send({ type: "nodes.held", holder: "m1", held });
  }
  t.deepEqual(run.finish(), {
    kind: "incomplete",
    warning:
      "warning: incomplete log stream. some logs could not be retrieved for the following reasons: node n2 has not sent all its output",
  });
});

test("LS2: a node that was just asked when following ends gets one announcement to answer", (t) => {
  const answering = life(true);
  answering.send(selected(["n1"]));
  answering.send(removed);
  t.is(answering.state(), "closing");
  answering.send({ type: "nodes.held", holder: "m1", held: [{ nodeId: "n1", attempt: 1 }] });
  answering.send("announceInterval");
  answering.send(ended("n1"));
  t.deepEqual(answering.finish(), { kind: "complete" });

  const silent = life(true);
  silent.send(selected(["n1"]));
  silent.send(removed);
  silent.send("announceInterval");
  t.regex((silent.finish() as { warning: string }).warning, /: node n1 has not sent all its output$/);

  const absent = life(true);
  absent.send(selected(["down1"]));
  absent.send(removed);
  t.regex((absent.finish() as { warning: string }).warning, /: node down1 is not available$/);

  const back = life(true);
  back.send(selected(["down1"]));
  back.send({ type: "nodes.held", holder: "m1", held: [{ nodeId: "down1", attempt: 1 }] });
  back.send(removed);
  for (let tick = 0; tick <= logLimits.closingTicksMax; tick += 1) {
    back.send("announceInterval");
    back.send({ type: "nodes.held", holder: "m1", held: [{ nodeId: "down1", attempt: 1 }] });
  }
  t.regex((back.finish() as { warning: string }).warning, /is not available, node down1 has not sent all its output$/);
});

test("LS3: a follower that does not read is cut", (t) => {
  const run = life(true);
  run.send(selected(["n1"]));
  run.send({ type: "follower.stalled", limit: "x" });
  t.is(run.state(), "ended");
  t.deepEqual(run.finish(), { kind: "stalled", limit: "x" });
});

function store(): Replica {
  const manager = testManager();
  const status = (state: TaskState) => TaskStatus.create({ state });
  const ready = NodeStatus.create({ state: NodeStatus_State.READY });
  manager.seed(
    "node",
    Node.create({ id: "n1", status: ready }),
    Node.create({ id: "n2", status: NodeStatus.create({ state: NodeStatus_State.DOWN }) }),
  );
  manager.seed("service", Service.create({ id: "s1" }));
  manager.seed(
    "task",
    Task.create({ id: "t1", serviceId: "s1", nodeId: "n1", status: status(TaskState.RUNNING) }),
    Task.create({ id: "t2", serviceId: "s1", nodeId: "n2", status: status(TaskState.COMPLETE) }),
    Task.create({ id: "t3", serviceId: "s1", status: status(TaskState.PENDING) }),
    Task.create({ id: "t4", serviceId: "s1", nodeId: "n3", status: status(TaskState.ASSIGNED) }),
  );
  return manager.store;
}

test("a selector names services, nodes and tasks; tasks that do not run yet are omitted unless followed", (t) => {
  const replica = store();
  const bySelector = (fields: Partial<LogSelector>, follow: boolean) =>
    selectLogs(LogSelector.create(fields), replica, follow);
  t.deepEqual(bySelector({ serviceIds: ["s1"] }, false), {
    nodes: [
      { id: "n1", isAvailable: true },
      { id: "n2", isAvailable: false },
    ],
    unscheduled: [],
    exists: true,
  });
  const followed = bySelector({ serviceIds: ["s1"] }, true);
  t.deepEqual(
    followed.nodes.map(({ id }) => id),
    ["n1", "n2", "n3"],
  );
  t.deepEqual(followed.unscheduled, ["t3"]);
  t.deepEqual(bySelector({ taskIds: ["t3"] }, false).unscheduled, ["t3"]);
  t.deepEqual(bySelector({ nodeIds: ["n1"] }, false).nodes, [{ id: "n1", isAvailable: true }]);
  t.false(bySelector({ serviceIds: ["gone"], taskIds: ["gone"] }, true).exists);
});

test("a task is selected by any of its three ids, and never by an empty one", (t) => {
  const own = { id: "t1", serviceId: "s1", nodeId: "n1" };
  t.true(isSelected(LogSelector.create({ taskIds: ["t1"] }), own));
  t.true(isSelected(LogSelector.create({ serviceIds: ["s1"] }), own));
  t.true(isSelected(LogSelector.create({ nodeIds: ["n1"] }), own));
  t.false(isSelected(LogSelector.create({ nodeIds: ["n2"], serviceIds: [""] }), { ...own, serviceId: "" }));
  t.is(selectorProblem(null), "log selector must be provided");
  t.is(selectorProblem(LogSelector.create({})), "log selector must not be empty");
});
