// Which tasks are forgotten, and which never are.
import test from "ava";
import { isAbandoned, reapable, type SlotFacts } from "../../machines/orchestration/reaper.ts";
import {
  Cluster,
  ClusterSpec,
  OrchestrationConfig,
  RestartPolicy,
  Task,
  TaskSpec,
  TaskState,
  TaskStatus,
} from "../../proto/gen/messages.ts";
import { testCluster } from "../support/cluster.ts";

function task(id: string, state: TaskState, desired: TaskState, fields: Partial<Task> = {}): Task {
  return Task.create({ id, nodeId: "n1", desiredState: desired, status: TaskStatus.create({ state }), ...fields });
}

const failed = (id: string): Task => task(id, TaskState.FAILED, TaskState.SHUTDOWN);
const running = task("running", TaskState.RUNNING, TaskState.RUNNING);

function reaped(tasks: readonly Task[], facts: Partial<SlotFacts> = {}): readonly string[] {
  return reapable({ tasks, historyLimit: 3, hasService: true, hasNode: () => true, ...facts }).map(({ id }) => id);
}

test("of a slot the newest tasks stay, the running one among them", (t) => {
  t.deepEqual(reaped([failed("a"), failed("b"), running]), []);
  t.deepEqual(reaped([failed("a"), failed("b"), failed("c"), failed("d"), running]), ["a", "b"]);
  t.deepEqual(reaped([failed("a"), failed("b"), failed("c"), failed("d"), running], { historyLimit: -1 }), []);
  t.deepEqual(reaped([failed("a"), running], { historyLimit: 0 }), ["a"]);
});

test("what may still run is never deleted to save space", (t) => {
  const stopping = task("stopping", TaskState.RUNNING, TaskState.SHUTDOWN);
  t.deepEqual(reaped([stopping, failed("a"), running], { historyLimit: 1 }), ["a"]);
});

test("what a waiting successor follows stays until the successor runs", (t) => {
  const waiting = task("waiting", TaskState.READY, TaskState.READY);
  t.deepEqual(reaped([failed("a"), failed("b"), waiting], { historyLimit: 0 }), ["a"]);
  t.deepEqual(reaped([failed("a"), failed("b"), running], { historyLimit: 0 }), ["a", "b"]);
});

test("enough tasks stay to count the attempts that the policy allows", (t) => {
  const spec = TaskSpec.create({ restart: RestartPolicy.create({ maxAttempts: 4 }) });
  const tasks = ["a", "b", "c", "d", "e", "f"].map((id) => Task.patch(failed(id), { spec }));
  t.deepEqual(reaped(tasks), ["a"]);
});

test("a task that is to be removed goes when nothing of it can run", (t) => {
  const remove = TaskState.REMOVE;
  t.deepEqual(reaped([task("a", TaskState.PENDING, remove), task("b", TaskState.SHUTDOWN, remove)]), ["a", "b"]);
  t.deepEqual(reaped([task("a", TaskState.RUNNING, remove)]), []);
  t.deepEqual(reaped([task("a", TaskState.RUNNING, remove)], { hasNode: () => false }), ["a"]);
});

test("an orphan of a service that is gone is forgotten", (t) => {
  const orphan = task("a", TaskState.ORPHANED, TaskState.SHUTDOWN);
  t.deepEqual(reaped([orphan]), []);
  t.deepEqual(reaped([orphan], { hasService: false }), ["a"]);
});

test("only what never had a node is ended here", (t) => {
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
