// A global service from its spec to its tasks: every actor of the orchestration, a real replica, nodes that behave.
import test from "ava";
import { globalMachine } from "../../machines/orchestration/global.machine.ts";
import {
  Annotations,
  Duration,
  GlobalService,
  Kind,
  Meta,
  NodeSpec,
  NodeSpec_Availability,
  NodeStatus,
  NodeStatus_State,
  Operation,
  Placement,
  Platform,
  Removal,
  ResourceRequirements,
  Resources,
  RestartPolicy,
  RestartPolicy_RestartCondition,
  Service,
  ServiceSpec,
  StoreObject,
  Task,
  TaskPatch,
  TaskSpec,
  TaskState,
  TaskStatus,
  UpdateConfig,
  UpdateConfig_UpdateOrder,
  UpdateStatus,
  UpdateStatus_UpdateState,
  Version,
} from "../../proto/gen/messages.ts";
import { ChartRun } from "../support/chart-run.ts";
import { testCluster, type TestCluster } from "../support/cluster.ts";

const { ACTIVE, DRAIN, PAUSE } = NodeSpec_Availability;
const global: Partial<ServiceSpec> = { replicated: null, global: GlobalService.create({}) };
const delayMs = 5_000;

async function globalCluster(
  nodes: readonly string[],
  fields: Partial<TaskSpec> = {},
  more: Partial<ServiceSpec> = {},
): Promise<TestCluster> {
  const cluster = await testCluster(nodes);
  await cluster.addService("web", 0, fields, { ...global, ...more });
  return cluster;
}

function nodeSpec(availability: NodeSpec_Availability, labels: Readonly<Record<string, string>> = {}): NodeSpec {
  return NodeSpec.create({ annotations: Annotations.create({ labels }), availability });
}

function withTask(fields: Partial<TaskSpec>): (spec: ServiceSpec) => ServiceSpec {
  return (spec) => ServiceSpec.patch(spec, { task: TaskSpec.patch(spec.task as TaskSpec, fields) });
}

function onNode(cluster: TestCluster, nodeId: string): readonly Task[] {
  return cluster.tasks().filter((task) => task.nodeId === nodeId);
}

const zoneA = { placement: Placement.create({ constraints: ["node.labels.zone==a"] }) };

test("a global service has one task on each node, created for that node and without a slot", async (t) => {
  const cluster = await globalCluster(["n1", "n2", "n3"]);
  t.deepEqual(cluster.picture(), ["0:RUNNING@n1", "0:RUNNING@n2", "0:RUNNING@n3"]);
  t.is(cluster.tasks()[0]?.status?.state, TaskState.RUNNING);
});

test("the tasks of all nodes share one proposal for each step", async (t) => {
  const nodes = Array.from({ length: 50 }, (_, at) => `n${at}`);
  const cluster = await testCluster(nodes);
  cluster.alive.clear();
  const before = cluster.proposals.length;
  await cluster.addService("web", 0, {}, global);
  t.is(cluster.proposals.length - before, 4, "the service, creation, allocation, placement");
});

test("a node that joins gets its task, and the others keep theirs", async (t) => {
  const cluster = await globalCluster(["n1"]);
  const [first] = cluster.tasks();
  await cluster.addNode("n2");
  t.deepEqual(cluster.picture(), ["0:RUNNING@n1", "0:RUNNING@n2"]);
  t.is(onNode(cluster, "n1")[0]?.id, first?.id);
});

test("a node without a description gets no task until it registers", async (t) => {
  const cluster = await globalCluster(["n1"]);
  await cluster.addNode("n2", { description: null, status: NodeStatus.create({ state: NodeStatus_State.UNKNOWN }) });
  t.deepEqual(cluster.picture(), ["0:RUNNING@n1"]);
  await cluster.addNode("n2");
  t.deepEqual(cluster.picture(), ["0:RUNNING@n1", "0:RUNNING@n2"]);
});

test("a drained node's task is shut down, and replaced when the node is active again", async (t) => {
  const cluster = await globalCluster(["n1", "n2"]);
  await cluster.changeNode("n2", { spec: nodeSpec(DRAIN) });
  t.deepEqual(cluster.picture(), ["0:RUNNING@n1"]);
  t.is(onNode(cluster, "n2")[0]?.status?.state, TaskState.SHUTDOWN);
  await cluster.changeNode("n2", { spec: nodeSpec(ACTIVE) });
  t.deepEqual(cluster.picture(), ["0:RUNNING@n1", "0:RUNNING@n2"]);
  t.is(onNode(cluster, "n2").length, 2);
});

test("a task that must not be restarted is still replaced after a drain", async (t) => {
  const restart = RestartPolicy.create({ condition: RestartPolicy_RestartCondition.NONE });
  const cluster = await globalCluster(["n1"], { restart });
  await cluster.changeNode("n1", { spec: nodeSpec(DRAIN) });
  t.deepEqual(cluster.picture(), []);
  await cluster.changeNode("n1", { spec: nodeSpec(ACTIVE) });
  t.deepEqual(cluster.picture(), ["0:RUNNING@n1"]);
});

test("the task of a lost node is shut down; when the node returns the old one stops before the new one runs", async (t) => {
  const cluster = await globalCluster(["n1", "n2"]);
  await cluster.killNode("n2");
  t.deepEqual(cluster.picture(), ["0:RUNNING@n1"]);
  cluster.stops = () => false;
  cluster.alive.add("n2");
  await cluster.changeNode("n2", { status: NodeStatus.create({ state: NodeStatus_State.READY }) });
  t.deepEqual(cluster.picture(), ["0:READY@n2", "0:RUNNING@n1"]);
  cluster.stops = () => true;
  await cluster.report(onNode(cluster, "n2")[0]!, TaskState.SHUTDOWN);
  await cluster.run();
  t.deepEqual(cluster.picture(), ["0:RUNNING@n1", "0:RUNNING@n2"]);
});

test("a node that is only UNKNOWN or DISCONNECTED keeps its task", async (t) => {
  const cluster = await globalCluster(["n1"]);
  const [task] = cluster.tasks();
  for (const state of [NodeStatus_State.UNKNOWN, NodeStatus_State.DISCONNECTED, NodeStatus_State.READY]) {
    await cluster.changeNode("n1", { status: NodeStatus.create({ state }) });
    t.deepEqual(cluster.picture(), ["0:RUNNING@n1"]);
  }
  t.is(cluster.tasks()[0]?.id, task?.id);
});

test("a paused node keeps its task, gets no new one, and has none restarted or updated", async (t) => {
  const cluster = await globalCluster(["n1", "n2"]);
  await cluster.changeNode("n1", { spec: nodeSpec(PAUSE) });
  await cluster.addNode("n3", { spec: nodeSpec(PAUSE) });
  t.deepEqual(cluster.picture(), ["0:RUNNING@n1", "0:RUNNING@n2"]);
  await cluster.updateService("web", withTask({ forceUpdate: 1 }));
  await cluster.run(delayMs);
  t.is(onNode(cluster, "n1").length, 1);
  t.is(onNode(cluster, "n2").at(-1)?.spec?.forceUpdate, 1);
  await cluster.report(onNode(cluster, "n1")[0]!, TaskState.FAILED);
  await cluster.run(2 * delayMs);
  t.deepEqual(cluster.picture(), ["0:RUNNING@n2"]);
  await cluster.changeNode("n1", { spec: nodeSpec(ACTIVE) });
  await cluster.changeNode("n3", { spec: nodeSpec(ACTIVE) });
  t.deepEqual(cluster.picture(), ["0:RUNNING@n1", "0:RUNNING@n2", "0:RUNNING@n3"]);
  t.is(onNode(cluster, "n1").at(-1)?.spec?.forceUpdate, 1);
});

test("only nodes that meet the constraints have a task, and a label adds or removes it", async (t) => {
  const cluster = await testCluster(["n1", "n2"]);
  await cluster.changeNode("n1", { spec: nodeSpec(ACTIVE, { zone: "a" }) });
  await cluster.addService("web", 0, zoneA, global);
  t.deepEqual(cluster.picture(), ["0:RUNNING@n1"]);
  await cluster.changeNode("n2", { spec: nodeSpec(ACTIVE, { zone: "a" }) });
  t.deepEqual(cluster.picture(), ["0:RUNNING@n1", "0:RUNNING@n2"]);
  await cluster.changeNode("n1", { spec: nodeSpec(ACTIVE, { zone: "b" }) });
  await cluster.run(2 * delayMs);
  t.deepEqual(cluster.picture(), ["0:RUNNING@n2"]);
  await cluster.updateService(
    "web",
    withTask({ placement: Placement.create({ constraints: ["node.labels.zone==b"] }) }),
  );
  await cluster.run(2 * delayMs);
  t.deepEqual(cluster.picture(), ["0:RUNNING@n1"]);
});

test("the tasks of a removed node are deleted", async (t) => {
  const cluster = await globalCluster(["n1", "n2"]);
  await cluster.report(onNode(cluster, "n2")[0]!, TaskState.FAILED);
  await cluster.run(2 * delayMs);
  t.is(onNode(cluster, "n2").length, 2);
  await cluster.propose(Operation.create({ remove: Removal.create({ kind: Kind.KIND_NODE, id: "n2" }) }));
  await cluster.run();
  t.is(onNode(cluster, "n2").length, 0);
  t.deepEqual(cluster.picture(), ["0:RUNNING@n1"]);
});

test("a removed service leaves nothing, including tasks created for it at that moment", async (t) => {
  const cluster = await globalCluster(["n1", "n2"]);
  await cluster.addNode("n3");
  await cluster.removeService("web");
  await cluster.run();
  t.is(cluster.tasks().length, 0);
});

test("a failed task is replaced on its own node after the restart delay", async (t) => {
  const cluster = await globalCluster(["n1", "n2"]);
  await cluster.report(onNode(cluster, "n1")[0]!, TaskState.FAILED);
  await cluster.run(delayMs - 1_000);
  t.deepEqual(cluster.picture(), ["0:READY@n1", "0:RUNNING@n2"]);
  await cluster.run(1_500);
  t.deepEqual(cluster.picture(), ["0:RUNNING@n1", "0:RUNNING@n2"]);
});

test("attempts are counted for each node separately, and a new leader continues the count", async (t) => {
  const restart = RestartPolicy.create({
    condition: RestartPolicy_RestartCondition.ANY,
    maxAttempts: 2,
    delay: Duration.create({}),
  });
  const cluster = await globalCluster(["n1", "n2"], { restart });
  for (let attempt = 0; attempt < 2; attempt += 1) {
    await cluster.report(onNode(cluster, "n1").at(-1)!, TaskState.FAILED);
    cluster.changeLeader();
    await cluster.run();
  }
  t.deepEqual(cluster.picture(), ["0:RUNNING@n1", "0:RUNNING@n2"]);
  await cluster.report(onNode(cluster, "n1").at(-1)!, TaskState.FAILED);
  cluster.changeLeader();
  await cluster.run(2 * delayMs);
  t.deepEqual(cluster.picture(), ["0:RUNNING@n2"]);
  t.is(onNode(cluster, "n1").length, 3);
  await cluster.report(onNode(cluster, "n2").at(-1)!, TaskState.FAILED);
  await cluster.run();
  t.deepEqual(cluster.picture(), ["0:RUNNING@n2"], "n2 has its own attempts");
});

test("an update goes from node to node, as many at a time as the update config says", async (t) => {
  const update = UpdateConfig.create({ parallelism: 2, monitor: Duration.create({}) });
  const cluster = await globalCluster(["n1", "n2", "n3", "n4", "n5"], {}, { update });
  let busiest = 0;
  cluster.store.watch(() => {
    const changing = cluster
      .tasks()
      .filter(
        (task) => task.desiredState <= TaskState.RUNNING && (task.status?.state ?? TaskState.NEW) < TaskState.RUNNING,
      );
    busiest = Math.max(busiest, changing.length);
  });
  await cluster.updateService("web", withTask({ forceUpdate: 1 }));
  await cluster.run(20_000);
  t.is(busiest, 2);
  const wanted = cluster.tasks().filter((task) => task.desiredState <= TaskState.RUNNING);
  t.true(wanted.every((task) => task.spec?.forceUpdate === 1));
  t.deepEqual(wanted.map((task) => task.nodeId).sort(), ["n1", "n2", "n3", "n4", "n5"]);
});

test("a node that can never run the task says why, and does not delay an update of the others", async (t) => {
  const placement = Placement.create({ platforms: [Platform.create({ os: "linux" })] });
  const cluster = await testCluster(["n1", "n2"]);
  for (const [id, os] of [
    ["n1", "linux"],
    ["n2", "linux"],
    ["a0", "windows"],
  ] as const) {
    if (id === "a0") await cluster.addNode(id);
    const description = cluster.store.get("node", id)?.description ?? null;
    t.truthy(description);
    await cluster.changeNode(id, {
      description: description && { ...description, platform: Platform.create({ architecture: "x86_64", os }) },
    });
  }
  await cluster.addService("web", 0, { placement }, global);
  t.deepEqual(cluster.picture(), ["0:PENDING@a0", "0:RUNNING@n1", "0:RUNNING@n2"]);
  t.regex(onNode(cluster, "a0")[0]?.status?.err ?? "", /^unsupported platform on 1 node/);
  await cluster.updateService("web", withTask({ forceUpdate: 1 }));
  await cluster.run(30_000);
  t.true(
    cluster
      .tasks()
      .filter((task) => task.desiredState <= TaskState.RUNNING)
      .every((task) => task.spec?.forceUpdate === 1),
  );
  t.deepEqual(cluster.picture(), ["0:PENDING@a0", "0:RUNNING@n1", "0:RUNNING@n2"]);
});

test("a spec that no longer fits goes no further than the first node", async (t) => {
  const cluster = await globalCluster(["n1", "n2", "n3"]);
  const resources = ResourceRequirements.create({ reservations: Resources.create({ nanoCpus: 99e9 }) });
  await cluster.updateService("web", withTask({ resources }));
  await cluster.run(30_000);
  t.deepEqual(cluster.picture(), ["0:PENDING@n1", "0:RUNNING@n2", "0:RUNNING@n3"]);
});

test("a start-first update never has fewer running tasks than nodes, and ends with one on each", async (t) => {
  const update = UpdateConfig.create({
    parallelism: 1,
    order: UpdateConfig_UpdateOrder.START_FIRST,
    monitor: Duration.create({}),
  });
  const cluster = await globalCluster(["n1", "n2", "n3"], {}, { update });
  let [least, most] = [9, 0];
  cluster.store.watch(() => {
    const nodes = cluster
      .tasks()
      .filter(({ desiredState, status }) => desiredState === TaskState.RUNNING && status?.state === TaskState.RUNNING);
    least = Math.min(least, new Set(nodes.map(({ nodeId }) => nodeId)).size);
    most = Math.max(most, nodes.length);
  });
  await cluster.updateService("web", withTask({ forceUpdate: 1 }));
  await cluster.run(30_000);
  t.deepEqual([least, most], [3, 4]);
  t.deepEqual(cluster.picture(), ["0:RUNNING@n1", "0:RUNNING@n2", "0:RUNNING@n3"]);
  t.is(cluster.store.get("service", "web")?.updateStatus?.state, UpdateStatus_UpdateState.COMPLETED);
});

test("a node that returns during a paused update gets the task it had, and a new one gets the service's", async (t) => {
  const cluster = await globalCluster(["n1", "n2"]);
  const service = cluster.store.get("service", "web") as Service;
  const spec = withTask({ forceUpdate: 1 })(service.spec as ServiceSpec);
  const updateStatus = UpdateStatus.create({ state: UpdateStatus_UpdateState.PAUSED, message: "paused" });
  const specVersion = Version.create({ index: cluster.store.version });
  await cluster.changeNode("n2", { spec: nodeSpec(DRAIN) });
  cluster.seed("service", Service.patch(service, { spec, specVersion, updateStatus }));
  await cluster.changeNode("n2", { spec: nodeSpec(ACTIVE) });
  await cluster.addNode("n3");
  await cluster.run(10_000);
  t.deepEqual(cluster.picture(), ["0:RUNNING@n1", "0:RUNNING@n2", "0:RUNNING@n3"]);
  t.deepEqual(
    ["n1", "n2", "n3"].map((id) => onNode(cluster, id).at(-1)?.spec?.forceUpdate),
    [0, 0, 1],
  );
});

test("a change of leader creates no task twice, whatever was in progress", async (t) => {
  const cluster = await testCluster(["n1", "n2", "n3"]);
  await cluster.addService("web", 0, {}, global);
  for (let change = 0; change < 5; change += 1) {
    cluster.changeLeader();
    await cluster.addNode(`m${change}`);
  }
  cluster.changeLeader();
  await cluster.run(1_000);
  t.is(cluster.tasks().length, 8);
  t.is(cluster.picture().length, 8);
});

test("after all nodes were lost and came back each has exactly one task", async (t) => {
  const cluster = await globalCluster(["n1", "n2", "n3"]);
  for (const id of ["n1", "n2", "n3"]) await cluster.killNode(id);
  cluster.changeLeader();
  await cluster.run();
  for (const id of ["n1", "n2", "n3"]) {
    cluster.alive.add(id);
    await cluster.changeNode(id, { status: NodeStatus.create({ state: NodeStatus_State.READY }) });
    t.is(
      cluster.picture().find((line) => line.endsWith(id)),
      `0:READY@${id}`,
      "the earlier task is not known to have ended",
    );
    // It came back with its tasks running, and is told to stop them.
    for (const task of onNode(cluster, id)) {
      if (task.desiredState === TaskState.SHUTDOWN) await cluster.report(task, TaskState.SHUTDOWN);
    }
  }
  await cluster.run(1_000);
  t.deepEqual(cluster.picture(), ["0:RUNNING@n1", "0:RUNNING@n2", "0:RUNNING@n3"]);
  const running = cluster.tasks().filter((task) => task.status?.state === TaskState.RUNNING);
  t.is(running.length, 3);
});

test("the ledger allows a service one wanted task of a spec version on a node", async (t) => {
  const cluster = await globalCluster(["n1"]);
  const [task] = cluster.tasks();
  const twin = (fields: Partial<Task>): Operation =>
    Operation.create({
      create: StoreObject.create({
        task: Task.create({
          serviceId: "web",
          nodeId: "n1",
          desiredState: TaskState.RUNNING,
          specVersion: task?.specVersion ?? null,
          status: TaskStatus.create({}),
          meta: Meta.create({}),
          ...fields,
        }),
      }),
    });
  cluster.orchestration.stop();
  await cluster.propose(twin({ id: "same" }));
  t.is(cluster.store.get("task", "same"), undefined);
  await cluster.propose(
    twin({ id: "x", specVersion: Version.create({ index: 99 }) }),
    twin({ id: "y", specVersion: Version.create({ index: 99 }) }),
  );
  t.truthy(cluster.store.get("task", "x"), "a start-first update has two for a while");
  t.is(cluster.store.get("task", "y"), undefined, "not even within one append");
  const stop = Operation.create({ task: TaskPatch.create({ id: task?.id ?? "", desiredState: TaskState.SHUTDOWN }) });
  await cluster.propose(stop, twin({ id: "next" }));
  t.truthy(cluster.store.get("task", "next"), "the first was ended before");
  await cluster.propose(
    twin({ id: "far", nodeId: "n2" }),
    twin({ id: "slot", slot: 1 }),
    twin({ id: "other", serviceId: "db" }),
  );
  t.deepEqual(
    ["far", "slot", "other"].map((id) => cluster.store.get("task", id)?.id),
    ["far", "slot", "other"],
  );
});

test("the orchestrator decides once more if something happened while it wrote", (t) => {
  const run = new ChartRun(globalMachine, { serviceId: "s" });
  t.is(run.state, "gathering");
  run.send({ type: "round.due" }, { type: "decision.made", verdict: { nextMs: -1 } }, { type: "work.arrived" });
  t.is(run.state, "writing");
  run.send({ type: "decision.written" });
  t.is(run.state, "gathering");
  t.deepEqual(run.names, ["gather"]);
  run.send({ type: "round.due" }, { type: "round.done", verdict: { nextMs: 700 } });
  t.is(run.state, "waiting");
  t.is(run.send({ type: "service.removed" }).snapshot.status, "done");
});
