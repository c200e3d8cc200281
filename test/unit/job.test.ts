// Jobs from their specs to completion: every actor of the orchestration, a real replica, nodes that behave.
import test from "ava";
import { jobLabel } from "../../machines/orchestration/jobs/labels.ts";
import { taskName } from "../../machines/list-filters.ts";
import { countTasks } from "../../machines/orchestration/service-status.ts";
import {
  Annotations,
  Cluster,
  ClusterSpec,
  Duration,
  GlobalJob,
  NodeSpec,
  NodeSpec_Availability,
  NodeStatus,
  NodeStatus_State,
  OrchestrationConfig,
  Placement,
  Kind,
  Operation,
  Removal,
  ReplicatedJob,
  RestartPolicy,
  RestartPolicy_RestartCondition,
  ServiceSpec,
  TaskSpec,
  TaskState,
  type Service,
  type Task,
} from "../../proto/gen/messages.ts";
import { testCluster, type TestCluster } from "../support/cluster.ts";
import { addJob, jobPicture, jobSpec, updateJob, withLabels } from "../support/jobs.ts";

const slots = (maxConcurrent: number, totalCompletions: number): Partial<ServiceSpec> => ({
  replicatedJob: ReplicatedJob.create({ maxConcurrent, totalCompletions }),
});
const everywhere: Partial<ServiceSpec> = { globalJob: GlobalJob.create() };
const policy = (
  maxAttempts: number,
  condition: RestartPolicy_RestartCondition = RestartPolicy_RestartCondition.ON_FAILURE,
  seconds = 1,
) => ({
  restart: RestartPolicy.create({ condition, maxAttempts, delay: Duration.create({ seconds }) }),
});

function counts(cluster: TestCluster): string {
  const service = cluster.store.get("service", "job") as Service;
  const { running, desired, completed } = countTasks(service, cluster.tasks("job"), (id) =>
    cluster.store.get("node", id),
  );
  return `${running}/${desired} (${completed})`;
}

test("a replicated job fills its slots from 0, never more at once than allowed, until all are done", async (t) => {
  const cluster = await testCluster(["n1", "n2"]);
  await addJob(cluster, slots(2, 5));
  t.deepEqual(jobPicture(cluster), ["0:RUNNING@n1", "1:RUNNING@n2"]);
  t.is(counts(cluster), "2/2 (0)");
  const [first] = cluster.tasks("job");
  t.is(first?.desiredState, TaskState.COMPLETE);
  t.is(first?.jobIteration?.index, 0);
  await cluster.report(first!, TaskState.COMPLETE);
  t.deepEqual(jobPicture(cluster), ["0:COMPLETE@n1", "1:RUNNING@n2", "2:RUNNING@n1"]);
  cluster.outcome = () => TaskState.COMPLETE;
  for (const task of cluster.tasks("job").filter((each) => each.status?.state === TaskState.RUNNING)) {
    await cluster.report(task, TaskState.COMPLETE);
  }
  await cluster.run(1_000);
  t.deepEqual(
    jobPicture(cluster).map((line) => line.split("@")[0]),
    ["0:COMPLETE", "1:COMPLETE", "2:COMPLETE", "3:COMPLETE", "4:COMPLETE"],
  );
  t.is(counts(cluster), "0/0 (5)", "a finished job shows its completed tasks, and wants none");
  t.is(cluster.orchestration.explainService("job")[0]?.waitingFor, "nothing: the job has succeeded, 5 of 5 done");
});

test("slot 0 of a job is named like the other slots", async (t) => {
  const cluster = await testCluster(["n1"]);
  await addJob(cluster, slots(2, 2));
  t.deepEqual(
    cluster.tasks("job").map((task) => taskName(task)),
    cluster.tasks("job").map((task) => `job.${task.slot}.${task.id}`),
  );
});

test("a failed slot is retried after the delay, as often as its policy allows, and then abandoned", async (t) => {
  const cluster = await testCluster(["n1", "n2"]);
  cluster.outcome = (task) => (task.slot === 0 ? TaskState.FAILED : TaskState.COMPLETE);
  await addJob(cluster, slots(1, 3), policy(2));
  t.is(cluster.tasks("job").at(-1)?.desiredState, TaskState.READY, "prepared, and held back by the delay");
  await cluster.run(10_000);
  const tries = cluster.tasks("job").filter(({ slot }) => slot === 0);
  t.is(tries.length, 3);
  t.is(counts(cluster), "0/0 (2)", "the other slots completed anyway");
  const [why] = cluster.orchestration.explainService("job");
  t.is(why?.waitingFor, "nothing: the job has failed, 2 of 3 done and 1 failed");
  cluster.changeLeader();
  await cluster.run(10_000);
  t.is(cluster.tasks("job").filter(({ slot }) => slot === 0).length, 3, "J2: no extra attempt at a change of leader");
});

test("attempts of one slot are not charged to another, nor to its next iteration", async (t) => {
  const cluster = await testCluster(["n1"]);
  cluster.outcome = () => TaskState.FAILED;
  await addJob(cluster, slots(2, 2), policy(1));
  await cluster.run(10_000);
  t.is(cluster.tasks("job").length, 4);
  await updateJob(cluster, (spec) => spec);
  await cluster.run(10_000);
  const ofNext = cluster.tasks("job").filter((task) => task.jobIteration?.index === 1);
  t.is(ofNext.length, 4, "an update that changes nothing repeats the work");
});

test("a job treats any as on-failure, and none as no retry", async (t) => {
  const cluster = await testCluster(["n1"]);
  cluster.outcome = () => TaskState.COMPLETE;
  await addJob(cluster, slots(1, 1), policy(0, RestartPolicy_RestartCondition.ANY));
  await cluster.run(20_000);
  t.is(cluster.tasks("job").length, 1);
  cluster.outcome = () => TaskState.FAILED;
  await updateJob(cluster, (spec) =>
    ServiceSpec.patch(spec, {
      task: TaskSpec.patch(spec.task as TaskSpec, policy(0, RestartPolicy_RestartCondition.NONE)),
    }),
  );
  await cluster.run(20_000);
  t.is(cluster.tasks("job").filter((task) => task.jobIteration?.index === 1).length, 1);
});

test("an update repeats the work, and waits for the running tasks of the last iteration", async (t) => {
  const cluster = await testCluster(["n1"]);
  await addJob(cluster, slots(2, 4));
  cluster.stops = () => false;
  await updateJob(cluster, (spec) => ServiceSpec.patch(spec, slots(2, 6)));
  t.is(cluster.tasks("job").filter((task) => task.jobIteration?.index === 1).length, 0, "J3: two still run");
  const old = cluster.tasks("job");
  await cluster.report(old[0]!, TaskState.SHUTDOWN);
  t.deepEqual(
    cluster
      .tasks("job")
      .map((task) => `${task.slot}/${task.jobIteration?.index}`)
      .toSorted(),
    ["0/1", "1/0"],
  );
  await cluster.run(61_000);
  t.is(
    cluster.tasks("job").filter((task) => task.jobIteration?.index === 1).length,
    2,
    "a task that does not stop is awaited for a minute at most",
  );
});

test("nothing of earlier iterations stays in removed slots and nodes", async (t) => {
  const cluster = await testCluster(["n1", "n2"]);
  cluster.outcome = () => TaskState.COMPLETE;
  await addJob(cluster, slots(5, 5));
  await addJob(cluster, everywhere, {}, "all");
  await cluster.run(1_000);
  await cluster.propose(Operation.create({ remove: Removal.create({ kind: Kind.KIND_NODE, id: "n2" }) }));
  await updateJob(cluster, (spec) => ServiceSpec.patch(spec, slots(1, 1)));
  await updateJob(cluster, (spec) => spec, "all");
  await cluster.run(1_000);
  for (const name of ["job", "all"])
    t.deepEqual(
      cluster.tasks(name).map(({ jobIteration }) => jobIteration?.index),
      [0, 1],
    );
});

test("a lost node's slot is done elsewhere, and a late success counts once", async (t) => {
  const cluster = await testCluster(["n1", "n2"]);
  await addJob(cluster, slots(1, 1));
  const [task] = cluster.tasks("job");
  await cluster.killNode(task!.nodeId);
  t.deepEqual(jobPicture(cluster), [`0:RUNNING@${task!.nodeId === "n1" ? "n2" : "n1"}`]);
  // The node is back and reports that the work was done.
  await cluster.report(task!, TaskState.COMPLETE);
  await cluster.run(1_000);
  t.is(counts(cluster), "0/0 (1)");
  t.is(cluster.tasks("job")[1]?.status?.state, TaskState.SHUTDOWN, "J1: the second attempt is stopped");
  t.is(cluster.tasks("job").length, 2);
});

test("a paused job starts nothing and forgets nothing, a stopped one ends its tasks, and a resumed one continues", async (t) => {
  const cluster = await testCluster(["n1"]);
  await addJob(cluster, slots(2, 4));
  const [first] = cluster.tasks("job");
  await cluster.report(first!, TaskState.COMPLETE);
  await updateJob(cluster, withLabels({ [jobLabel.state]: "paused" }));
  const [, second, third] = cluster.tasks("job");
  await cluster.report(second!, TaskState.COMPLETE);
  await cluster.run(10_000);
  t.deepEqual(jobPicture(cluster), ["0:COMPLETE@n1", "1:COMPLETE@n1", "2:RUNNING@n1"]);
  t.regex(cluster.orchestration.explainService("job")[0]?.waitingFor ?? "", /an operator to resume it/);
  await updateJob(cluster, withLabels({ [jobLabel.state]: "stopped" }));
  await cluster.run(1_000);
  t.is(cluster.store.get("task", third!.id)?.status?.state, TaskState.SHUTDOWN);
  t.is(cluster.tasks("job").length, 3);
  cluster.outcome = () => TaskState.COMPLETE;
  await updateJob(cluster, withLabels({}));
  await cluster.run(10_000);
  t.is(cluster.store.get("service", "job")?.jobStatus?.jobIteration?.index, 0, "no new iteration");
  t.deepEqual(
    jobPicture(cluster).filter((line) => line.includes("COMPLETE")),
    ["0:COMPLETE@n1", "1:COMPLETE@n1", "2:COMPLETE@n1", "3:COMPLETE@n1"],
  );
});

test("a task without retries that is stopped, drained or lost has not failed, and completes afterwards", async (t) => {
  const never = policy(0, RestartPolicy_RestartCondition.NONE);
  const explanation = (cluster: TestCluster): string =>
    cluster.orchestration.explainService("job")[0]?.waitingFor ?? "";
  for (const fields of [slots(1, 1), everywhere]) {
    const cluster = await testCluster(["n1"]);
    await addJob(cluster, fields, never);
    await updateJob(cluster, withLabels({ [jobLabel.state]: "stopped" }));
    await cluster.run(1_000);
    t.is(explanation(cluster), "an operator to resume it: it is stopped, 0 of 1 done");
    await updateJob(cluster, withLabels({}));
    await cluster.run(1_000);
    t.deepEqual(jobPicture(cluster), ["0:RUNNING@n1"]);
    await cluster.changeNode("n1", { spec: NodeSpec.create({ availability: NodeSpec_Availability.DRAIN }) });
    await cluster.run(1_000);
    await cluster.changeNode("n1", { spec: NodeSpec.create({ availability: NodeSpec_Availability.ACTIVE }) });
    await cluster.run(1_000);
    t.deepEqual(jobPicture(cluster), ["0:RUNNING@n1"]);
    await cluster.report(cluster.tasks("job").at(-1)!, TaskState.FAILED);
    await cluster.run(20_000);
    t.regex(explanation(cluster), /the job has failed, 0 of 1 done and 1 failed/, "once it did fail, it is");
  }
  const cluster = await testCluster(["n1", "n2"]);
  await addJob(cluster, slots(1, 1), never);
  const [first] = cluster.tasks("job");
  await cluster.killNode(first?.nodeId ?? "");
  await cluster.run(1_000);
  t.deepEqual(jobPicture(cluster), [first?.nodeId === "n1" ? "0:RUNNING@n2" : "0:RUNNING@n1"]);
});

test("a job with a time to live is removed when that has passed since its end, also under another leader", async (t) => {
  const cluster = await testCluster(["n1"]);
  cluster.outcome = () => TaskState.COMPLETE;
  await addJob(cluster, { ...slots(1, 1), ...withLabels({ [jobLabel.ttl]: "30s" })(jobSpec()) });
  await cluster.run(20_000);
  cluster.changeLeader();
  await cluster.run(9_000);
  t.truthy(cluster.store.get("service", "job"));
  await cluster.run(2_000);
  t.is(cluster.store.get("service", "job"), undefined);
  await cluster.run(1_000);
  t.is(cluster.store.count("task"), 0);
});

test("a job that failed in each slot keeps only the configured history and what it needs", async (t) => {
  const cluster = await testCluster(["n1"]);
  cluster.seed(
    "cluster",
    Cluster.create({
      id: "c",
      spec: ClusterSpec.create({ orchestration: OrchestrationConfig.create({ taskHistoryRetentionLimit: 0 }) }),
    }),
  );
  cluster.outcome = (task) => (task.slot === 0 ? TaskState.FAILED : TaskState.COMPLETE);
  await addJob(cluster, slots(3, 3), policy(0, RestartPolicy_RestartCondition.ON_FAILURE, 1));
  await cluster.run(20_000);
  t.deepEqual(
    cluster
      .tasks("job")
      .filter(({ slot }) => slot > 0)
      .map((task) => task.status?.state),
    [TaskState.COMPLETE, TaskState.COMPLETE],
    "R2: completed tasks stay, or they would be repeated",
  );
  t.true(cluster.tasks("job").length <= 4, `${cluster.tasks("job").length} tasks`);
});

test("a global job runs once on each matching node, also on one that joins later", async (t) => {
  const cluster = await testCluster(["n1", "n2"]);
  cluster.outcome = () => TaskState.COMPLETE;
  const placement = Placement.create({ constraints: ["node.labels.disk!=none"] });
  await addJob(cluster, everywhere, { placement });
  t.deepEqual(jobPicture(cluster), ["0:COMPLETE@n1", "0:COMPLETE@n2"]);
  t.is(cluster.orchestration.explainService("job")[0]?.waitingFor, "nothing: the job has succeeded, 2 of 2 done");
  await cluster.addNode("n3");
  await cluster.addNode("n4", {
    spec: NodeSpec.create({ annotations: Annotations.create({ labels: { disk: "none" } }) }),
  });
  await cluster.run(1_000);
  t.deepEqual(jobPicture(cluster), ["0:COMPLETE@n1", "0:COMPLETE@n2", "0:COMPLETE@n3"]);
  t.is(counts(cluster), "0/0 (3)");
});

test("a global job's attempts are counted by node, and end there", async (t) => {
  const cluster = await testCluster(["n1", "n2"]);
  cluster.outcome = (task) => (task.nodeId === "n1" ? TaskState.FAILED : TaskState.COMPLETE);
  await addJob(cluster, everywhere, policy(2));
  await cluster.run(20_000);
  const on = (nodeId: string): number => cluster.tasks("job").filter((task) => task.nodeId === nodeId).length;
  t.deepEqual([on("n1"), on("n2")], [3, 1]);
  cluster.changeLeader();
  await cluster.run(20_000);
  t.deepEqual([on("n1"), on("n2")], [3, 1]);
});

test("a global job's task stays on a silent node, leaves a drained one, and comes back to it", async (t) => {
  const cluster = await testCluster(["n1", "n2"]);
  await addJob(cluster, everywhere);
  await cluster.killNode("n1");
  await cluster.run(10_000);
  t.deepEqual(jobPicture(cluster), ["0:RUNNING@n1", "0:RUNNING@n2"], "J7: no other node can do it");
  cluster.alive.add("n1");
  await cluster.changeNode("n1", { status: NodeStatus.create({ state: NodeStatus_State.READY }) });
  await cluster.changeNode("n2", { spec: NodeSpec.create({ availability: NodeSpec_Availability.DRAIN }) });
  await cluster.run(1_000);
  t.deepEqual(jobPicture(cluster), ["0:RUNNING@n1"]);
  await cluster.changeNode("n2", { spec: NodeSpec.create({ availability: NodeSpec_Availability.ACTIVE }) });
  await cluster.run(10_000);
  t.deepEqual(jobPicture(cluster), ["0:RUNNING@n1", "0:RUNNING@n2"]);
  await updateJob(cluster, (spec) => spec);
  await cluster.run(1_000);
  t.deepEqual(
    cluster
      .tasks("job")
      .filter((task) => task.status?.state === TaskState.RUNNING)
      .map((task) => task.jobIteration?.index),
    [1, 1],
  );
});

test("a global job does not wait for a task that failed on a node which was drained before the next attempt", async (t) => {
  const cluster = await testCluster(["n1", "n2"]);
  const explanation = (): string => cluster.orchestration.explainService("job")[0]?.waitingFor ?? "";
  await addJob(cluster, everywhere);
  const [one, two] = ["n1", "n2"].map((id) => cluster.tasks("job").find(({ nodeId }) => nodeId === id) as Task);
  await cluster.report(one as Task, TaskState.COMPLETE);
  // A paused node keeps its task, and gets no successor of one that fails.
  await cluster.changeNode("n2", { spec: NodeSpec.create({ availability: NodeSpec_Availability.PAUSE }) });
  await cluster.report(two as Task, TaskState.FAILED);
  await cluster.run(60_000);
  t.regex(explanation(), /1 of 2 done/);
  await cluster.changeNode("n2", { spec: NodeSpec.create({ availability: NodeSpec_Availability.DRAIN }) });
  await cluster.run(60_000);
  t.is(explanation(), "nothing: the job has succeeded, 1 of 1 done");
  await cluster.changeNode("n2", { spec: NodeSpec.create({ availability: NodeSpec_Availability.ACTIVE }) });
  await cluster.run(10_000);
  t.regex(explanation(), /1 of 2 done/);
  t.is(cluster.tasks("job").filter(({ nodeId }) => nodeId === "n2").length, 2, "the failed one, and its successor");
});

test("a global job completes without a node that stays silent, and the node's work counts when it is back", async (t) => {
  const cluster = await testCluster(["n1", "n2"]);
  const explanation = (): string => cluster.orchestration.explainService("job")[0]?.waitingFor ?? "";
  await addJob(cluster, everywhere);
  const [one, two] = ["n1", "n2"].map((id) => cluster.tasks("job").find(({ nodeId }) => nodeId === id) as Task);
  await cluster.killNode("n1");
  await cluster.report(two as Task, TaskState.COMPLETE);
  await cluster.run(30_000);
  t.regex(explanation(), /its tasks: 1 of 2 done/, "J7: it may come back with its task");
  cluster.changeLeader();
  await cluster.run(60_000);
  t.is(explanation(), "nothing: the job has succeeded, 1 of 1 done");
  await cluster.changeNode("n1", { status: NodeStatus.create({ state: NodeStatus_State.READY }) });
  t.is(cluster.tasks("job").at(-1)?.desiredState, TaskState.READY, "not beside what the node may still run");
  await cluster.report(one as Task, TaskState.COMPLETE);
  await cluster.run(1_000);
  t.is(explanation(), "nothing: the job has succeeded, 2 of 2 done");
  t.deepEqual(jobPicture(cluster), ["0:COMPLETE@n2"]);
  t.is(cluster.store.get("task", one?.id ?? "")?.status?.state, TaskState.COMPLETE);
  t.is(cluster.tasks("job").filter(({ status }) => status?.state === TaskState.RUNNING).length, 0);
});

test("a global job's task that a silent node did not finish is stopped when it is back, and repeated there", async (t) => {
  const cluster = await testCluster(["n1"]);
  await addJob(cluster, everywhere);
  await cluster.killNode("n1");
  await cluster.run(70_000);
  cluster.alive.add("n1");
  await cluster.changeNode("n1", { status: NodeStatus.create({ state: NodeStatus_State.READY }) });
  await cluster.report(cluster.tasks("job")[0] as Task, TaskState.SHUTDOWN);
  await cluster.run(1_000);
  t.deepEqual(
    cluster.tasks("job").map(({ status }) => status?.state),
    [TaskState.SHUTDOWN, TaskState.RUNNING],
  );
});

test("a removed job leaves nothing", async (t) => {
  const cluster = await testCluster(["n1", "n2", "n3"]);
  await addJob(cluster, slots(3, 6));
  await cluster.killNode("n3");
  await cluster.removeService("job");
  await cluster.run(1_000);
  t.deepEqual(
    cluster.tasks("job").map(({ nodeId }) => nodeId),
    ["n3"],
    "a lost node's possibly running tasks are remembered until it reports",
  );
  t.deepEqual(
    [...cluster.env.host.ids()].filter((id) => id.startsWith("job/")),
    [],
  );
});

test("a removed job leaves nothing of tasks that never had a node", async (t) => {
  const cluster = await testCluster(["n1"]);
  await addJob(cluster, slots(3, 6), { placement: Placement.create({ constraints: ["node.id==nowhere"] }) });
  t.is(cluster.tasks("job").length, 3);
  await cluster.removeService("job");
  await cluster.run(1_000);
  t.is(cluster.store.count("task"), 0);
});

test("a thousand slots are completed with never more than allowed at once", async (t) => {
  const cluster = await testCluster(["n1"]);
  let most = 0;
  const watch = cluster.store.watch(() => {
    const wanted = cluster.tasks("job").filter(({ desiredState, status }) => {
      return desiredState <= TaskState.COMPLETE && (status?.state ?? 0) < TaskState.COMPLETE;
    });
    most = Math.max(most, wanted.length);
  });
  t.teardown(() => watch.unsubscribe());
  cluster.outcome = () => TaskState.COMPLETE;
  await addJob(cluster, slots(300, 1_000));
  await cluster.run(1_000);
  t.is(counts(cluster), "0/0 (1000)");
  t.is(most, 300);
  t.deepEqual(
    cluster
      .tasks("job")
      .map(({ slot }) => slot)
      .toSorted((a, b) => a - b),
    Array.from({ length: 1_000 }, (_, slot) => slot),
  );
});
