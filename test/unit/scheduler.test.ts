import test, { type ExecutionContext } from "ava";
import { type EventFromLogic } from "xstate";
import { startScheduler, type Scheduler } from "../../actors/orchestration/scheduler.ts";
import { schedulerMachine } from "../../machines/scheduling/scheduler.machine.ts";
import {
  Annotations,
  ContainerSpec,
  DiscreteGenericResource,
  Driver,
  GenericResource,
  Kind,
  Mount,
  Mount_Type,
  NamedGenericResource,
  Node,
  NodeCSIInfo,
  NodeDescription,
  NodeStatus_State,
  Operation,
  Placement,
  ProposeRequest_Mode,
  Removal,
  ResourceRequirements,
  Resources,
  Task,
  TaskState,
  TaskStatus,
  Timestamp,
  Volume,
  VolumeAccessMode,
  VolumeInfo,
  VolumePublishStatus,
  VolumePublishStatus_State,
  VolumeSpec,
} from "../../proto/gen/messages.ts";
import { ChartRun } from "../support/chart-run.ts";
import { testManager, type TestManager } from "../support/manager.ts";
import { containerSpec, inState, pendingTask, pendingTasks, readyNode } from "../support/scheduling.ts";

interface World extends TestManager {
  readonly start: () => Scheduler;
  readonly task: (id: string) => Task;
  /** Runs what is due within this many milliseconds. */
  readonly settle: (ms?: number) => Promise<void>;
}

function world(t: ExecutionContext): World {
  const manager = testManager();
  return Object.assign(manager, {
    start: () => {
      const scheduler = startScheduler(manager.env);
      t.teardown(() => scheduler.stop());
      return scheduler;
    },
    task: (id: string) => manager.store.get("task", id) as Task,
    settle: async (ms = 0) => {
      await manager.clock.run({ untilMs: manager.clock.now() + ms });
    },
  });
}

const reserving = (nanoCpus: number) =>
  containerSpec({ resources: ResourceRequirements.create({ reservations: Resources.create({ nanoCpus }) }) });

test("tasks that wait when it starts are assigned, with SwarmKit's words", async (t) => {
  const { seed, start, settle, task } = world(t);
  seed("node", readyNode("n0"), readyNode("n1"));
  seed(
    "task",
    ...pendingTasks(4),
    pendingTask("new", { status: null }),
    pendingTask("unwanted", { desiredState: TaskState.SHUTDOWN }),
  );
  start();
  await settle();
  t.deepEqual(
    pendingTasks(4).map(({ id }) => task(id).nodeId),
    ["n0", "n1", "n0", "n1"],
  );
  t.is(task("t000").status?.state, TaskState.ASSIGNED);
  t.is(task("t000").status?.message, "scheduler assigned task to node");
  t.is(task("t000").status?.appliedBy, "manager1");
  t.deepEqual([task("new").nodeId, task("unwanted").nodeId], ["", ""]);
});

test("a task that becomes PENDING is assigned at the end of that commit", async (t) => {
  const { seed, start, settle, task, proposals } = world(t);
  seed("node", readyNode("n0"));
  start();
  seed("task", pendingTask("a", { status: null }));
  await settle();
  t.is(proposals.length, 0);
  seed("task", pendingTask("a"));
  seed("task", pendingTask("b"));
  await settle();
  t.deepEqual([task("a").nodeId, task("b").nodeId], ["n0", "n0"]);
  t.is(proposals.length, 1, "two commits, one round");
});

test("a task created for its node is confirmed there, or gets the reason why not", async (t) => {
  const { seed, start, settle, task } = world(t);
  seed("node", readyNode("n0"), readyNode("n1", { cpus: 0 }));
  const spec = reserving(1e9);
  seed("task", pendingTask("a", { nodeId: "n0", slot: 0, spec }), pendingTask("b", { nodeId: "n1", slot: 0, spec }));
  start();
  await settle();
  t.is(task("a").status?.message, "scheduler confirmed task can run on preassigned node");
  t.is(task("b").status?.state, TaskState.PENDING);
  t.is(task("b").status?.err, "insufficient resources on 1 node (host-n1: 1 CPUs requested)");
  t.is(task("b").status?.message, "pending task scheduling");
});

test("a task that no node accepts says why, and is placed by any change that helps, which clears the reason", async (t) => {
  const manager = world(t);
  const { seed, start, settle, task, store, proposals } = manager;
  seed("node", readyNode("n0", { state: NodeStatus_State.DOWN }));
  const labelled = containerSpec({ placement: Placement.create({ constraints: ["node.labels.zone==a"] }) });
  const running = inState(pendingTask("big", { spec: reserving(4e9), serviceId: "big" }), TaskState.RUNNING, {
    nodeId: "n0",
  });
  seed(
    "task",
    pendingTask("a", { spec: labelled, serviceId: "a" }),
    pendingTask("b", { spec: reserving(2e9), serviceId: "b" }),
    running,
  );
  start();
  await settle();
  t.is(task("a").status?.err, "no suitable node (1 node not available for new tasks)");
  const written = store.version;
  await settle(60_000);
  t.is(store.version, written, "nothing is written again while nothing changes");

  seed("node", readyNode("n0"));
  await settle(1_000);
  t.is(task("a").status?.err, "no suitable node (scheduling constraints not satisfied on 1 node)");
  t.is(task("b").status?.err, "no suitable node (insufficient resources on 1 node)");

  seed("task", inState(running, TaskState.FAILED));
  await settle();
  t.is(task("b").nodeId, "n0");
  t.is(task("b").status?.err, "");
  seed("node", readyNode("n1", { labels: { zone: "a" } }));
  await settle();
  t.is(task("a").nodeId, "n1");
  t.true(proposals.length < 8);
});

test("removing a task frees its resources", async (t) => {
  const { seed, start, settle, task, env } = world(t);
  seed("node", readyNode("n0"));
  seed(
    "task",
    inState(pendingTask("big", { spec: reserving(4e9) }), TaskState.RUNNING, { nodeId: "n0" }),
    pendingTask("b", { spec: reserving(2e9) }),
  );
  start();
  await settle();
  t.is(task("b").nodeId, "");
  const remove = Operation.create({ remove: Removal.create({ kind: Kind.KIND_TASK, id: "big" }) });
  await env.proposer.propose({ operations: [remove], mode: ProposeRequest_Mode.ATOMIC, timeoutMs: 1_000 });
  await settle();
  t.is(task("b").nodeId, "n0");
});

test("named generic resources are assigned once", async (t) => {
  const { seed, start, settle, task } = world(t);
  const named = ["x", "y"].map((value) =>
    GenericResource.create({ namedResourceSpec: NamedGenericResource.create({ kind: "gpu", value }) }),
  );
  const generic = [
    GenericResource.create({ discreteResourceSpec: DiscreteGenericResource.create({ kind: "gpu", value: 1 }) }),
  ];
  const spec = containerSpec({
    resources: ResourceRequirements.create({ reservations: Resources.create({ generic }) }),
  });
  seed("node", readyNode("n0", { generic: named }));
  seed("task", ...pendingTasks(3, { spec }));
  start();
  await settle();
  const given = pendingTasks(3).map(({ id }) =>
    task(id)
      .assignedGenericResources.map((each) => each.namedResourceSpec?.value)
      .join(),
  );
  t.deepEqual(given, ["x", "y", ""]);
  t.is(task("t002").status?.err, "no suitable node (insufficient resources on 1 node)");
});

test("decisions that the ledger skips are made again, on the state that caused the skip", async (t) => {
  const { seed, start, settle, task, env } = world(t);
  seed("node", readyNode("n0"), readyNode("n1"));
  seed("task", pendingTask("a"));
  const { proposer } = env;
  let isFirst = true;
  (env as { proposer: typeof env.proposer }).proposer = {
    propose: (proposal) => {
      // The node dies while the assignment is on its way.
      if (isFirst) seed("node", readyNode("n0", { state: NodeStatus_State.DOWN }));
      isFirst = false;
      return proposer.propose(proposal);
    },
  };
  start();
  await settle();
  t.is(task("a").nodeId, "");
  await settle(1_000);
  t.is(task("a").nodeId, "n1");
});

test("without a leader it retries at a measured pace, and nothing stays charged", async (t) => {
  const manager = world(t);
  const { seed, start, settle, task, proposals } = manager;
  seed("node", readyNode("n0"));
  seed("task", pendingTask("a", { spec: reserving(4e9) }), pendingTask("b", { serviceId: "b", spec: reserving(5e9) }));
  manager.leaderless = true;
  const scheduler = start();
  await settle(2_000);
  t.is(task("a").nodeId, "");
  t.true(proposals.length > 2 && proposals.length <= 22, `${proposals.length} proposals`);
  t.true(scheduler.explain(task("a")).length > 0);
  manager.leaderless = false;
  await settle(1_000);
  t.is(task("a").nodeId, "n0");
  t.is(task("b").status?.err, "no suitable node (insufficient resources on 1 node)");
});

test("it explains what a task waits for, node by node, and says nothing about other tasks", async (t) => {
  const { seed, start, settle, task } = world(t);
  seed("node", readyNode("n0"), readyNode("n1", { state: NodeStatus_State.DOWN }));
  seed(
    "task",
    pendingTask("a", { spec: reserving(5e9) }),
    inState(pendingTask("r"), TaskState.RUNNING, { nodeId: "n0" }),
  );
  const scheduler = start();
  await settle();
  const [reason] = scheduler.explain(task("a"));
  t.is(
    reason?.waitingFor,
    "a node to run on: no suitable node (1 node not available for new tasks; insufficient resources on 1 node)",
  );
  t.deepEqual(reason?.tried, ["node host-n0: 5 CPUs requested, 4 free", "node host-n1: is not READY and ACTIVE"]);
  t.deepEqual(scheduler.explain(task("r")), []);
});

test("tasks that keep failing on a node go to another", async (t) => {
  const { seed, start, settle, task } = world(t);
  seed("node", readyNode("n0"), readyNode("n1"));
  start();
  seed("task", ...pendingTasks(5, {}, "f").map((failing) => inState(failing, TaskState.RUNNING, { nodeId: "n0" })));
  seed("task", ...pendingTasks(5, {}, "f").map((failing) => inState(failing, TaskState.FAILED, { nodeId: "n0" })));
  seed("task", ...pendingTasks(3));
  await settle();
  t.deepEqual(
    pendingTasks(3).map(({ id }) => task(id).nodeId),
    ["n1", "n1", "n1"],
  );
});

test("a node that kept failing a service under an earlier leader is avoided by the next", async (t) => {
  const { seed, start, settle, task, clock } = world(t);
  await settle(600_000);
  const at = Timestamp.create({ seconds: Math.floor(clock.now() / 1_000) - 60 });
  seed("node", readyNode("n0"), readyNode("n1"));
  seed(
    "task",
    ...pendingTasks(5, {}, "f").map((failed) =>
      Task.patch(failed, {
        nodeId: "n0",
        status: TaskStatus.create({ state: TaskState.REJECTED, appliedAt: at, timestamp: Timestamp.create() }),
      }),
    ),
    ...pendingTasks(2),
  );
  start();
  await settle();
  t.deepEqual([task("t000").nodeId, task("t001").nodeId], ["n1", "n1"]);
});

test("when a node is removed, reasons that mention it are updated, with no other event", async (t) => {
  const { seed, start, settle, task, env } = world(t);
  seed("node", readyNode("n0", { state: NodeStatus_State.DOWN }), readyNode("n1"));
  seed("task", pendingTask("a", { spec: reserving(9e9) }), pendingTask("b", { nodeId: "n0", slot: 0 }));
  start();
  await settle();
  t.is(
    task("a").status?.err,
    "no suitable node (1 node not available for new tasks; insufficient resources on 1 node)",
  );
  const remove = Operation.create({ remove: Removal.create({ kind: Kind.KIND_NODE, id: "n0" }) });
  await env.proposer.propose({ operations: [remove], mode: ProposeRequest_Mode.ATOMIC, timeoutMs: 1_000 });
  await settle(1_000);
  t.is(task("a").status?.err, "no suitable node (insufficient resources on 1 node)");
});

test("a task gets its cluster volume when that is created, and the volume is published where the task is", async (t) => {
  const { seed, start, settle, task, store } = world(t);
  const csiInfo = [NodeCSIInfo.create({ pluginName: "csi", nodeId: "n0" })];
  const node = readyNode("n0");
  seed(
    "node",
    Node.patch(node, { description: NodeDescription.patch(node.description as NodeDescription, { csiInfo }) }),
  );
  const mounts = [Mount.create({ type: Mount_Type.CLUSTER, source: "data", target: "/data" })];
  seed("task", pendingTask("a", { spec: containerSpec({ container: ContainerSpec.create({ mounts }) }) }));
  const volume = Volume.create({
    id: "v",
    spec: VolumeSpec.create({
      annotations: Annotations.create({ name: "data" }),
      driver: Driver.create({ name: "csi" }),
      accessMode: VolumeAccessMode.create(),
    }),
  });
  seed("volume", volume);
  start();
  await settle();
  t.is(task("a").status?.err, "no suitable node (cannot fulfill requested CSI volume mounts on 1 node)");
  seed("volume", Volume.patch(volume, { volumeInfo: VolumeInfo.create({ volumeId: "csi-v" }) }));
  await settle(1_000);
  t.is(task("a").nodeId, "n0");
  t.deepEqual(
    task("a").volumes.map(({ id, source, target }) => [id, source, target]),
    [["v", "data", "/data"]],
  );
  const published = (): unknown => store.get("volume", "v")?.publishStatus.map(({ nodeId, state }) => [nodeId, state]);
  t.deepEqual(published(), [["n0", VolumePublishStatus_State.PENDING_PUBLISH]]);
  const stored = store.get("volume", "v") as Volume;
  const isPublished = VolumePublishStatus.create({ nodeId: "n0", state: VolumePublishStatus_State.PUBLISHED });
  seed("volume", Volume.patch(stored, { publishStatus: [isPublished] }));
  seed("task", inState(task("a"), TaskState.COMPLETE));
  await settle(1_000);
  t.deepEqual(published(), [["n0", VolumePublishStatus_State.PENDING_NODE_UNPUBLISH]]);
});

test("after stop it decides nothing", async (t) => {
  const { seed, start, settle, task } = world(t);
  seed("node", readyNode("n0"));
  const scheduler = start();
  seed("task", pendingTask("a"));
  scheduler.stop();
  scheduler.stop();
  await settle(1_000);
  t.is(task("a").nodeId, "");
});

function chart(...events: readonly EventFromLogic<typeof schedulerMachine>[]) {
  const run = new ChartRun(schedulerMachine, { proposalsMax: 1, retryMs: 200 }).send(...events);
  return { value: run.snapshot.value, effects: run.all().map(({ type }) => type) };
}

test("one tick is requested, however many commits bring work", (t) => {
  const { value, effects } = chart({ type: "work.arrived" }, { type: "work.arrived" });
  t.is(value.rounds, "gathering");
  t.deepEqual(effects, ["gather"]);
});

test("with the maximum number of proposals in progress, the next round waits for one to settle", (t) => {
  const busy = [
    { type: "work.arrived" },
    { type: "round.due" },
    { type: "proposal.sent" },
    { type: "round.done", verdict: { isPartial: true, hasStale: false } },
    { type: "round.due" },
  ] as const;
  t.is(chart(...busy).value.rounds, "full");
  const { value, effects } = chart(...busy, { type: "proposal.settled", returned: 1 });
  t.deepEqual(value, { rounds: "gathering", proposals: "none", later: "holding" });
  t.deepEqual(effects, ["gather", "decide", "gather", "gather"]);
});
