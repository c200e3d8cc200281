// Tasks that a service keeps on a node that is DOWN: every actor of the orchestration, a real replica, nodes that behave.
import test, { type ExecutionContext } from "ava";
import { checkDisconnectLabels, disconnectLabel } from "../../machines/orchestration/on-disconnect.ts";
import {
  Annotations,
  GlobalJob,
  GlobalService,
  NodeSpec,
  NodeSpec_Availability,
  NodeStatus,
  NodeStatus_State,
  ReplicatedJob,
  ReplicatedService,
  ServiceSpec,
  TaskSpec,
  TaskState,
  type Task,
} from "../../proto/gen/messages.ts";
import { testCluster, type TestCluster } from "../support/cluster.ts";
import { addJob, jobPicture } from "../support/jobs.ts";

const keep = { [disconnectLabel.mode]: "keep" };
const after10m = { [disconnectLabel.after]: "10m" };
const minuteMs = 60_000;

function labelled(labels: Readonly<Record<string, string>>, name = "web"): Partial<ServiceSpec> {
  return { annotations: Annotations.create({ name, labels: { ...labels } }) };
}

async function serviceWith(labels: Readonly<Record<string, string>>, more: Partial<ServiceSpec> = {}) {
  const cluster = await testCluster(["n1", "n2"]);
  await cluster.addService("web", 2, {}, { ...labelled(labels), ...more });
  return cluster;
}

async function bringBack(cluster: TestCluster, id: string): Promise<void> {
  cluster.alive.add(id);
  await cluster.changeNode(id, { status: NodeStatus.create({ state: NodeStatus_State.READY }) });
}

const both = ["1:RUNNING@n1", "2:RUNNING@n2"];
const moved = ["1:RUNNING@n1", "2:RUNNING@n1"];

function wantedOn(cluster: TestCluster, nodeId: string): Task {
  return cluster.tasks().find((task) => task.nodeId === nodeId && task.desiredState === TaskState.RUNNING) as Task;
}

function idOn(cluster: TestCluster, nodeId: string): string {
  return wantedOn(cluster, nodeId).id;
}

function waitOn(cluster: TestCluster, nodeId: string): string | undefined {
  return cluster.orchestration.explainTask(wantedOn(cluster, nodeId))[0]?.wokenBy;
}

test("without labels, the tasks of a DOWN node are replaced at once", async (t) => {
  const cluster = await serviceWith({});
  t.deepEqual(cluster.picture(), both);
  await cluster.killNode("n2");
  t.deepEqual(cluster.picture(), moved);
});

test("with keep, a task stays on its DOWN node, under every leader, and goes on when the node returns (K1, K2)", async (t) => {
  const cluster = await serviceWith(keep);
  const id = idOn(cluster, "n2");
  await cluster.killNode("n2");
  await cluster.run(30 * minuteMs);
  cluster.changeLeader();
  await cluster.run(90 * minuteMs);
  t.deepEqual(cluster.picture(), both);
  t.is(waitOn(cluster, "n2"), "the node's return: its service keeps tasks on nodes that are down (on-disconnect keep)");
  await bringBack(cluster, "n2");
  t.is(idOn(cluster, "n2"), id);
  t.is(cluster.tasks().length, 2);
});

test("a task is replaced once its node has been DOWN for the service's time, also by a new leader (K1, K2)", async (t) => {
  const cluster = await serviceWith(after10m);
  const id = idOn(cluster, "n2");
  await cluster.killNode("n2");
  await cluster.run(6 * minuteMs);
  t.regex(
    waitOn(cluster, "n2") ?? "",
    /^the node's return, or its replacement elsewhere in (?:239s|240s|4m) \(disconnect-after\)$/,
  );
  cluster.changeLeader();
  await cluster.run(3.9 * minuteMs);
  t.deepEqual(cluster.picture(), both);
  await cluster.run(0.2 * minuteMs);
  t.deepEqual(cluster.picture(), moved);
  await bringBack(cluster, "n2");
  await cluster.run(minuteMs);
  t.deepEqual(cluster.picture(), moved, "the replacement stays");
  t.is(cluster.store.get("task", id)?.desiredState, TaskState.SHUTDOWN);
});

test("a change of the labels takes effect on tasks that are kept already", async (t) => {
  const cluster = await serviceWith(keep);
  await cluster.killNode("n2");
  await cluster.run(minuteMs);
  t.deepEqual(cluster.picture(), both);
  await cluster.updateService("web", (spec) => ServiceSpec.patch(spec, labelled({})));
  t.deepEqual(cluster.picture(), moved);
});

test("a task that did not run yet, or whose node is drained or removed, is replaced (K1)", async (t) => {
  const cluster = await serviceWith(keep, { replicated: ReplicatedService.create({ replicas: 0 }) });
  cluster.alive.delete("n2");
  await cluster.updateService("web", (spec) =>
    ServiceSpec.patch(spec, { replicated: ReplicatedService.create({ replicas: 2 }) }),
  );
  t.deepEqual(cluster.picture(), ["1:RUNNING@n1", "2:ASSIGNED@n2"]);
  await cluster.killNode("n2");
  t.deepEqual(cluster.picture(), moved);

  const drained = await serviceWith(keep);
  await drained.killNode("n2");
  await drained.changeNode("n2", { spec: NodeSpec.create({ availability: NodeSpec_Availability.DRAIN }) });
  t.deepEqual(drained.picture(), moved);

  const removed = await serviceWith(keep);
  await removed.killNode("n2");
  removed.drop("node", "n2");
  await removed.run();
  t.deepEqual(removed.picture(), moved);
});

test("scaling down removes a kept task first, and an update replaces it in its turn (V8)", async (t) => {
  const cluster = await serviceWith(keep);
  await cluster.killNode("n1");
  await cluster.updateService("web", (spec) =>
    ServiceSpec.patch(spec, { replicated: ReplicatedService.create({ replicas: 1 }) }),
  );
  t.deepEqual(cluster.picture(), ["2:RUNNING@n2"]);

  const updated = await serviceWith(keep);
  await updated.killNode("n2");
  await updated.updateService("web", (spec) =>
    ServiceSpec.patch(spec, { task: TaskSpec.patch(spec.task as TaskSpec, { forceUpdate: 1 }) }),
  );
  await updated.run(minuteMs);
  t.deepEqual(updated.picture(), moved);
});

test("a global service keeps its task on a DOWN node, unless the spec changed meanwhile (G2)", async (t) => {
  const global = { replicated: null, global: GlobalService.create({}) };
  const everywhere = ["0:RUNNING@n1", "0:RUNNING@n2"];
  const plain = await serviceWith({}, global);
  await plain.killNode("n2");
  t.deepEqual(plain.picture(), ["0:RUNNING@n1"]);

  const cluster = await serviceWith(keep, global);
  const id = idOn(cluster, "n2");
  await cluster.killNode("n2");
  await cluster.run(minuteMs);
  t.deepEqual(cluster.picture(), everywhere);
  await bringBack(cluster, "n2");
  t.is(idOn(cluster, "n2"), id);

  await cluster.killNode("n2");
  await cluster.updateService("web", (spec) =>
    ServiceSpec.patch(spec, { task: TaskSpec.patch(spec.task as TaskSpec, { forceUpdate: 1 }) }),
  );
  await cluster.run(minuteMs);
  t.deepEqual(cluster.picture(), ["0:RUNNING@n1"]);
  await bringBack(cluster, "n2");
  await cluster.run(minuteMs);
  t.deepEqual(cluster.picture(), everywhere);
  t.not(idOn(cluster, "n2"), id);
});

test("jobs keep their tasks, too", async (t) => {
  const kinds: readonly Partial<ServiceSpec>[] = [
    { replicatedJob: ReplicatedJob.create({ maxConcurrent: 2, totalCompletions: 2 }) },
    { globalJob: GlobalJob.create() },
  ];
  for (const kind of kinds) {
    const cluster = await testCluster(["n1", "n2"]);
    await addJob(cluster, { ...kind, ...labelled(after10m, "job") });
    const before = jobPicture(cluster);
    await cluster.killNode("n2");
    await cluster.run(9 * minuteMs);
    t.deepEqual(jobPicture(cluster), before);
    const unwanted = () => cluster.tasks("job").filter((task) => task.desiredState > TaskState.COMPLETE).length;
    t.is(unwanted(), 0);
    await cluster.run(3 * minuteMs);
    t.is(unwanted(), 1);
  }
});

function sentence(labels: Readonly<Record<string, string>>): string | undefined {
  return checkDisconnectLabels(ServiceSpec.create(labelled(labels)))?.message;
}

test("wrong labels are refused", (t: ExecutionContext) => {
  const { after, mode } = disconnectLabel;
  for (const right of [{}, keep, after10m, { [mode]: "replace", [after]: "0" }, { [after]: "24h" }])
    t.is(sentence(right), undefined);
  t.is(sentence({ [mode]: "wait" }), `invalid value 'wait' for label ${mode}: expected one of replace, keep`);
  for (const wrong of ["soon", "-1m", "24h1ms", ""]) {
    const expected =
      "expected a duration such as 10m, at most 24h (tasks of a node that is down for longer are orphaned)";
    t.is(sentence({ [after]: wrong }), `invalid value '${wrong}' for label ${after}: ${expected}`);
  }
  t.is(
    sentence({ ...keep, ...after10m }),
    `label ${after} has no effect with ${mode}=keep: remove one of the two labels`,
  );
});
