// Which tasks are deleted, and which never are.
import test from "ava";
import { isAbandoned, reapable, type SlotFacts } from "../../machines/orchestration/reaper.machine.ts";
import { spentAttempts } from "../../machines/orchestration/restart.machine.ts";
import { timestampOf } from "../../proto/time.ts";
import {
  Annotations,
  Cluster,
  ClusterSpec,
  ContainerStatus,
  Duration,
  Meta,
  NodeSpec,
  NodeSpec_Availability,
  OrchestrationConfig,
  RestartPolicy,
  RestartPolicy_RestartCondition,
  ServiceSpec,
  Task,
  TaskSpec,
  TaskState,
  TaskStatus,
} from "../../proto/gen/messages.ts";
import { testCluster } from "../support/cluster.ts";

function task(id: string, state: TaskState, desired: TaskState, fields: Partial<Task> = {}): Task {
  return Task.create({ id, nodeId: "n1", desiredState: desired, status: TaskStatus.create({ state }), ...fields });
}

const exited = ContainerStatus.create({ exitCode: 1 });
const failed = (id: string): Task =>
  task(id, TaskState.FAILED, TaskState.SHUTDOWN, {
    status: TaskStatus.create({ state: TaskState.FAILED, container: exited }),
  });
const running = task("running", TaskState.RUNNING, TaskState.RUNNING);

function reaped(tasks: readonly Task[], facts: Partial<SlotFacts> = {}): readonly string[] {
  return reapable({ tasks, historyLimit: 3, hasService: true, hasNode: () => true, ...facts }).map(({ id }) => id);
}

test("a slot keeps its newest tasks, including the running one", (t) => {
  t.deepEqual(reaped([failed("a"), failed("b"), running]), []);
  t.deepEqual(reaped([failed("a"), failed("b"), failed("c"), failed("d"), running]), ["a", "b"]);
  t.deepEqual(reaped([failed("a"), failed("b"), failed("c"), failed("d"), running], { historyLimit: -1 }), []);
  t.deepEqual(reaped([failed("a"), running], { historyLimit: 0 }), ["a"]);
});

test("a task that may still run is never deleted to save space", (t) => {
  const stopping = task("stopping", TaskState.RUNNING, TaskState.SHUTDOWN);
  t.deepEqual(reaped([stopping, failed("a"), running], { historyLimit: 1 }), ["a"]);
});

test("the predecessor of a waiting successor stays until the successor runs", (t) => {
  const waiting = task("waiting", TaskState.READY, TaskState.READY);
  t.deepEqual(reaped([failed("a"), failed("b"), waiting], { historyLimit: 0 }), ["a"]);
  t.deepEqual(reaped([failed("a"), failed("b"), running], { historyLimit: 0 }), ["a", "b"]);
});

test("enough tasks stay to count the attempts that the policy allows", (t) => {
  const spec = TaskSpec.create({ restart: RestartPolicy.create({ maxAttempts: 4 }) });
  const tasks = ["a", "b", "c", "d", "e", "f"].map((id) => Task.patch(failed(id), { spec }));
  t.deepEqual(reaped(tasks), ["a"]);
});

test("attempts within the window stay while they count, with their end times", (t) => {
  const spec = TaskSpec.create({
    restart: RestartPolicy.create({ maxAttempts: 100_000, window: Duration.create({ seconds: 60 }) }),
  });
  const tasks = Array.from({ length: 600 }, (_, second) =>
    Task.patch(failed(`t${second}`), {
      spec,
      meta: Meta.create({ createdAt: timestampOf(second * 1_000) }),
      status: TaskStatus.create({
        state: TaskState.FAILED,
        appliedAt: timestampOf(second * 1_000 + 1),
        container: exited,
      }),
    }),
  );
  const gone = new Set(reaped(tasks));
  const left = tasks.filter(({ id }) => !gone.has(id));
  t.is(left.length, 61);
  const newest = tasks.at(-1) as Task;
  t.is(spentAttempts(newest, left), spentAttempts(newest, tasks));
});

test("a lost task does not displace an attempt", (t) => {
  const spec = TaskSpec.create({ restart: RestartPolicy.create({ maxAttempts: 2 }) });
  const lost = (id: string): Task => task(id, TaskState.ORPHANED, TaskState.SHUTDOWN, { spec });
  const tried = (id: string): Task => Task.patch(failed(id), { spec });
  const tasks = [tried("a"), tried("b"), lost("c"), tried("d"), lost("e"), Task.patch(running, { spec })];
  t.deepEqual(reaped(tasks, { historyLimit: 2 }), ["a", "c", "e"]);
});

test("the task that fills its slot stays, whatever the limit, and no unwanted task besides", (t) => {
  const onFailure = TaskSpec.create({
    restart: RestartPolicy.create({ condition: RestartPolicy_RestartCondition.ON_FAILURE }),
  });
  const done = task("done", TaskState.COMPLETE, TaskState.SHUTDOWN, { spec: onFailure });
  const stopping = task("stopping", TaskState.RUNNING, TaskState.SHUTDOWN, { spec: onFailure });
  t.deepEqual(reaped([failed("a"), stopping, done], { historyLimit: 0 }), ["a"]);
  t.deepEqual(reaped([failed("a"), failed("b")], { historyLimit: 0 }), ["a", "b"], "nothing says that it is filled");
});

test("even without history, completed work is not repeated, neither by an update nor by the next leader", async (t) => {
  const cluster = await testCluster(["n1"]);
  const orchestration = OrchestrationConfig.create({ taskHistoryRetentionLimit: 0 });
  cluster.seed("cluster", Cluster.create({ id: "c", spec: ClusterSpec.create({ orchestration }) }));
  const restart = RestartPolicy.create({ condition: RestartPolicy_RestartCondition.ON_FAILURE });
  await cluster.addService("web", 2, { restart });
  const [first] = cluster.tasks();
  await cluster.report(first as Task, TaskState.COMPLETE);
  await cluster.run(20_000);
  const rest = cluster.picture();
  t.is(rest.length, 1);
  await cluster.updateService("web", (spec) =>
    ServiceSpec.patch(spec, { annotations: Annotations.create({ name: "web", labels: { a: "b" } }) }),
  );
  await cluster.run(20_000);
  cluster.changeLeader();
  await cluster.run(20_000);
  t.deepEqual(cluster.picture(), rest);
});

test("a drain in between returns no attempts", async (t) => {
  const cluster = await testCluster(["n1", "n2"]);
  const failures = new Set<string>();
  cluster.store.watch(({ changes }) => {
    for (const { table, object } of changes)
      if (table === "task" && object.status?.state === TaskState.FAILED) failures.add(object.id);
  });
  cluster.outcome = () => TaskState.FAILED;
  const restart = RestartPolicy.create({ maxAttempts: 6, condition: RestartPolicy_RestartCondition.ANY });
  await cluster.addService("web", 1, { restart });
  await cluster.run(12_000);
  cluster.outcome = () => undefined;
  await cluster.run(6_000);
  const running = cluster.tasks().at(-1) as Task;
  t.is(running.status?.state, TaskState.RUNNING);
  cluster.outcome = () => TaskState.FAILED;
  await cluster.changeNode(running.nodeId, { spec: NodeSpec.create({ availability: NodeSpec_Availability.DRAIN }) });
  await cluster.run(60_000);
  t.is(failures.size, 7);
  t.deepEqual(cluster.picture(), [], "and then the slot is abandoned");
});

test("a task with desired state REMOVE is deleted when nothing of it can run", (t) => {
  const remove = TaskState.REMOVE;
  t.deepEqual(reaped([task("a", TaskState.PENDING, remove), task("b", TaskState.SHUTDOWN, remove)]), ["a", "b"]);
  t.deepEqual(reaped([task("a", TaskState.RUNNING, remove)]), []);
  t.deepEqual(reaped([task("a", TaskState.RUNNING, remove)], { hasNode: () => false }), ["a"]);
});

test("an orphan of a removed service is deleted", (t) => {
  const orphan = task("a", TaskState.ORPHANED, TaskState.SHUTDOWN);
  t.deepEqual(reaped([orphan]), []);
  t.deepEqual(reaped([orphan], { hasService: false }), ["a"]);
});

test("only tasks that never had a node are ended here", (t) => {
  t.true(isAbandoned(task("a", TaskState.PENDING, TaskState.SHUTDOWN)));
  t.true(isAbandoned(task("a", TaskState.NEW, TaskState.SHUTDOWN)));
  t.false(isAbandoned(task("a", TaskState.ASSIGNED, TaskState.SHUTDOWN)));
  t.false(isAbandoned(task("a", TaskState.PENDING, TaskState.RUNNING)));
  t.false(isAbandoned(task("a", TaskState.PENDING, TaskState.REMOVE)));
});

test("a lower history limit takes effect at once", async (t) => {
  const cluster = await testCluster(["n1"]);
  await cluster.addService("web", 1);
  for (let round = 0; round < 3; round += 1) {
    const last = cluster.tasks().at(-1);
    await cluster.report(last!, TaskState.FAILED);
    await cluster.run(6_000);
  }
  t.is(cluster.tasks().length, 4);
  const orchestration = OrchestrationConfig.create({ taskHistoryRetentionLimit: 2 });
  cluster.seed("cluster", Cluster.create({ id: "c", spec: ClusterSpec.create({ orchestration }) }));
  await cluster.run();
  t.is(cluster.tasks().length, 2);
});
