// A replicated service from its spec to its tasks: every actor of the orchestration, a real replica, nodes that behave.
import test from "ava";
import {
  NodeSpec,
  NodeSpec_Availability,
  Placement,
  ReplicatedService,
  Resources,
  ResourceRequirements,
  RestartPolicy,
  RestartPolicy_RestartCondition,
  Duration,
  Operation,
  Removal,
  Kind,
  Service,
  ServiceSpec,
  Task,
  TaskSpec,
  TaskState,
  TaskStatus,
  UpdateConfig,
  Annotations,
} from "../../proto/gen/messages.ts";
import { execSpec, testCluster } from "../support/cluster.ts";

function scaled(replicas: number): (spec: ServiceSpec) => ServiceSpec {
  return (spec) => ServiceSpec.patch(spec, { replicated: ReplicatedService.create({ replicas }) });
}

function withTask(fields: Partial<TaskSpec>): (spec: ServiceSpec) => ServiceSpec {
  return (spec) => ServiceSpec.patch(spec, { task: TaskSpec.patch(spec.task as TaskSpec, fields) });
}

test("a service's tasks run, spread over the nodes, and share its spec", async (t) => {
  const cluster = await testCluster(["n1", "n2", "n3"]);
  await cluster.addService("web", 6);
  t.deepEqual(cluster.picture(), [
    "1:RUNNING@n1",
    "2:RUNNING@n2",
    "3:RUNNING@n3",
    "4:RUNNING@n1",
    "5:RUNNING@n2",
    "6:RUNNING@n3",
  ]);
  const [first, ...others] = cluster.tasks();
  t.true(
    others.every((task) => task.spec === first?.spec),
    "the replica keeps one copy of the spec",
  );
  t.is(first?.serviceAnnotations?.name, "web");
});

test("all the tasks of a service share one proposal for each step", async (t) => {
  const cluster = await testCluster(["n1"]);
  const before = cluster.proposals.length;
  cluster.alive.clear();
  await cluster.addService("web", 100);
  t.is(cluster.proposals.length - before, 4, "the service, creation, allocation, placement");
});

test("scaling up again fills the lowest free slot", async (t) => {
  const cluster = await testCluster(["n1", "n2"]);
  await cluster.addService("web", 3);
  const second = cluster.tasks().find((task) => task.slot === 2);
  await cluster.updateService("web", scaled(2));
  t.deepEqual(cluster.picture(), ["1:RUNNING@n1", "2:RUNNING@n2"], "slot 3 is the second copy on n1");
  t.is(cluster.tasks().length, 2, "the tasks of the removed slot are deleted once they have stopped");
  await cluster.propose(Operation.create({ remove: Removal.create({ kind: Kind.KIND_TASK, id: second?.id ?? "" }) }));
  await cluster.updateService("web", scaled(3));
  t.deepEqual(
    cluster.picture().map((line) => line.slice(0, 1)),
    ["1", "2", "3"],
  );
});

test("a failed task's successor waits for the restart delay, and is ready by then", async (t) => {
  const cluster = await testCluster(["n1"]);
  await cluster.addService("web", 1);
  const [task] = cluster.tasks();
  await cluster.report(task!, TaskState.FAILED);
  await cluster.run(4_000);
  t.deepEqual(cluster.picture(), ["1:READY@n1"]);
  const [why] = cluster.orchestration.explainTask(cluster.tasks()[1]!);
  t.regex(why?.waitingFor ?? "", /restart delay/);
  t.is(why?.atDeadline, "retries");
  t.truthy(why?.deadline);
  await cluster.run(1_000);
  t.deepEqual(cluster.picture(), ["1:RUNNING@n1"]);
  t.is(cluster.tasks().length, 2);
});

test("the restart delay continues under another leader", async (t) => {
  const cluster = await testCluster(["n1"]);
  await cluster.addService("web", 1);
  await cluster.report(cluster.tasks()[0]!, TaskState.FAILED);
  await cluster.run(3_000);
  cluster.changeLeader();
  await cluster.run(1_000);
  t.deepEqual(cluster.picture(), ["1:READY@n1"]);
  await cluster.run(1_000);
  t.deepEqual(cluster.picture(), ["1:RUNNING@n1"]);
});

test("a new leader finishes what its predecessor had not begun", async (t) => {
  const cluster = await testCluster(["n1"]);
  cluster.orchestration.stop();
  await cluster.addService("web", 2);
  t.deepEqual(cluster.picture(), []);
  cluster.changeLeader();
  await cluster.run();
  t.deepEqual(cluster.picture(), ["1:RUNNING@n1", "2:RUNNING@n1"]);
});

test("with two attempts an always failing task is created three times, and a new spec starts over", async (t) => {
  const cluster = await testCluster(["n1"]);
  cluster.outcome = () => TaskState.FAILED;
  const restart = RestartPolicy.create({
    condition: RestartPolicy_RestartCondition.ANY,
    delay: Duration.create({ nanos: 1e8 }),
    maxAttempts: 2,
  });
  await cluster.addService("web", 1, { restart });
  await cluster.run(5_000);
  t.is(cluster.tasks().length, 3);
  t.deepEqual(cluster.picture(), []);
  const [why] = cluster.orchestration.explainTask(cluster.tasks()[2]!);
  t.regex(why?.waitingFor ?? "", /not restarted .*at most 2 attempts/);
  await cluster.updateService("web", withTask({ forceUpdate: 1 }));
  await cluster.run(5_000);
  t.is(cluster.tasks().filter((task) => task.spec?.forceUpdate === 1).length, 3);
});

test("a completed task is not repeated if its policy says so, but an update repeats it", async (t) => {
  const cluster = await testCluster(["n1"]);
  const restart = RestartPolicy.create({ condition: RestartPolicy_RestartCondition.NONE });
  await cluster.addService("web", 1, { restart });
  await cluster.report(cluster.tasks()[0]!, TaskState.COMPLETE);
  await cluster.run(20_000);
  t.is(cluster.tasks().length, 1);
  await cluster.updateService("web", (spec) =>
    ServiceSpec.patch(spec, { annotations: Annotations.create({ name: "web", labels: { a: "b" } }) }),
  );
  await cluster.run(10_000);
  t.is(cluster.tasks().length, 1, "a changed label replaces no task");
  await cluster.updateService("web", withTask({ forceUpdate: 1 }));
  t.deepEqual(cluster.picture(), ["1:RUNNING@n1"]);
});

test("on-failure restarts a failure and not a success", async (t) => {
  const cluster = await testCluster(["n1"]);
  await cluster.addService("web", 2, {
    restart: RestartPolicy.create({ condition: RestartPolicy_RestartCondition.ON_FAILURE }),
  });
  const [one, two] = cluster.tasks();
  await cluster.report(one!, TaskState.COMPLETE);
  await cluster.report(two!, TaskState.FAILED);
  await cluster.run(6_000);
  t.deepEqual(cluster.picture(), ["2:RUNNING@n1"]);
});

test("the tasks of a node that is down run elsewhere at once", async (t) => {
  const cluster = await testCluster(["n1", "n2"]);
  await cluster.addService("web", 4);
  await cluster.killNode("n1");
  t.deepEqual(cluster.picture(), ["1:RUNNING@n2", "2:RUNNING@n2", "3:RUNNING@n2", "4:RUNNING@n2"]);
});

test("a drained node's tasks start elsewhere once they have stopped, without a restart delay", async (t) => {
  const cluster = await testCluster(["n1", "n2"]);
  await cluster.addService("web", 2);
  cluster.stops = () => false;
  await cluster.changeNode("n1", { spec: NodeSpec.create({ availability: NodeSpec_Availability.DRAIN }) });
  t.deepEqual(cluster.picture(), ["1:READY@n2", "2:RUNNING@n2"]);
  const waiting = cluster.tasks().find((task) => task.desiredState === TaskState.READY);
  t.regex(cluster.orchestration.explainTask(waiting!)[0]?.waitingFor ?? "", /to stop on node host-n1/);
  const draining = cluster.tasks().find((task) => task.nodeId === "n1");
  await cluster.report(draining!, TaskState.SHUTDOWN);
  t.deepEqual(cluster.picture(), ["1:RUNNING@n2", "2:RUNNING@n2"]);
});

test("a predecessor that does not stop is awaited for a minute at most", async (t) => {
  const cluster = await testCluster(["n1", "n2"]);
  await cluster.addService("web", 1);
  cluster.stops = () => false;
  await cluster.changeNode("n1", { spec: NodeSpec.create({ availability: NodeSpec_Availability.DRAIN }) });
  await cluster.run(59_000);
  t.deepEqual(cluster.picture(), ["1:READY@n2"]);
  await cluster.run(1_500);
  t.deepEqual(cluster.picture(), ["1:RUNNING@n2"]);
});

test("a paused node keeps its tasks", async (t) => {
  const cluster = await testCluster(["n1", "n2"]);
  await cluster.addService("web", 2);
  await cluster.changeNode("n1", { spec: NodeSpec.create({ availability: NodeSpec_Availability.PAUSE }) });
  await cluster.run(10_000);
  t.deepEqual(cluster.picture(), ["1:RUNNING@n1", "2:RUNNING@n2"]);
});

test("a task that fits nowhere says why, and is placed when a suitable node joins", async (t) => {
  const cluster = await testCluster(["n1"]);
  const placement = Placement.create({ constraints: ["node.labels.disk==ssd"] });
  await cluster.addService("web", 1, { placement });
  t.is(cluster.tasks()[0]?.status?.err, "no suitable node (scheduling constraints not satisfied on 1 node)");
  const why = cluster.orchestration.explainService("web");
  t.true(
    why.some(({ waitingFor }) => waitingFor.includes("scheduling constraints")),
    JSON.stringify(why),
  );
  await cluster.addNode("n2", {
    spec: NodeSpec.create({ annotations: Annotations.create({ labels: { disk: "ssd" } }) }),
  });
  t.deepEqual(cluster.picture(), ["1:RUNNING@n2"]);
  t.is(cluster.tasks()[0]?.status?.err, "");
});

test("on a full node an update puts the new task where the old one stops", async (t) => {
  const cluster = await testCluster(["n1"]);
  const resources = ResourceRequirements.create({ reservations: Resources.create({ memoryBytes: 5e9 }) });
  await cluster.addService("web", 1, { resources });
  await cluster.updateService("web", withTask({ forceUpdate: 1 }));
  t.deepEqual(cluster.picture(), ["1:RUNNING@n1"]);
});

test("an update replaces one task after the other, and never has more than one away", async (t) => {
  const cluster = await testCluster(["n1", "n2"]);
  await cluster.addService("web", 4);
  let fewest = 4;
  const watch = cluster.store.watch(() => {
    const running = cluster.tasks().filter((task) => task.status?.state === TaskState.RUNNING).length;
    fewest = Math.min(fewest, running);
  });
  t.teardown(() => watch.unsubscribe());
  await cluster.updateService("web", withTask({ forceUpdate: 1 }));
  await cluster.run(1_000);
  t.is(fewest, 3);
  t.is(cluster.picture().length, 4);
  t.true(
    cluster
      .tasks()
      .filter((task) => task.desiredState === TaskState.RUNNING)
      .every((task) => task.spec?.forceUpdate === 1),
  );
});

test("an update with parallelism 0 replaces all at once, and one with a delay pauses between", async (t) => {
  const cluster = await testCluster(["n1"]);
  await cluster.addService("web", 3, {}, { update: UpdateConfig.create({ parallelism: 0 }) });
  await cluster.updateService("web", withTask({ forceUpdate: 1 }));
  t.is(updated(1), 3);
  const update = UpdateConfig.create({ parallelism: 1, delay: Duration.create({ seconds: 10 }) });
  await cluster.updateService("web", (spec) => ServiceSpec.patch(withTask({ forceUpdate: 2 })(spec), { update }));
  t.is(updated(2), 1);
  t.regex(cluster.orchestration.explainService("web")[0]?.waitingFor ?? "", /^the rollout: 2 of 3 tasks/);
  await cluster.run(10_000);
  t.is(updated(2), 2);
  await cluster.run(10_000);
  t.is(updated(2), 3);
  await cluster.run(5_000);
  t.is(cluster.orchestration.explainService("web")[0]?.waitingFor, "nothing: 3 of 3 tasks run");

  function updated(count: number): number {
    return cluster.tasks().filter(({ spec, desiredState, status }) => {
      return spec?.forceUpdate === count && desiredState === TaskState.RUNNING && status?.state === TaskState.RUNNING;
    }).length;
  }
});

test("a new spec that does not run goes no further than its first slot, and the next update succeeds", async (t) => {
  const cluster = await testCluster(["n1"]);
  await cluster.addService("web", 3);
  cluster.outcome = (task) => (task.spec?.forceUpdate === 1 ? TaskState.FAILED : undefined);
  await cluster.updateService("web", withTask({ forceUpdate: 1 }));
  await cluster.run(60_000);
  const current = cluster.tasks().filter((task) => task.desiredState <= TaskState.RUNNING);
  t.is(current.filter((task) => task.status?.state === TaskState.RUNNING && task.spec?.forceUpdate === 0).length, 2);
  await cluster.updateService("web", withTask({ forceUpdate: 2 }));
  await cluster.run(10_000);
  t.is(
    cluster.tasks().filter((task) => task.spec?.forceUpdate === 2 && task.status?.state === TaskState.RUNNING).length,
    3,
  );
});

test("scaling, and a placement change that the nodes meet, replace nothing", async (t) => {
  const cluster = await testCluster(["n1", "n2"]);
  await cluster.addService("web", 2);
  const before = cluster.tasks().map(({ id }) => id);
  await cluster.updateService("web", scaled(3));
  await cluster.updateService(
    "web",
    withTask({ placement: Placement.create({ constraints: ["node.hostname!=other"] }) }),
  );
  await cluster.run(10_000);
  t.deepEqual(
    before.filter((id) => cluster.store.get("task", id)?.desiredState === TaskState.RUNNING),
    before,
  );
  await cluster.updateService("web", withTask({ placement: Placement.create({ constraints: ["node.id==n2"] }) }));
  await cluster.run(10_000);
  t.deepEqual(cluster.picture(), ["1:RUNNING@n2", "2:RUNNING@n2", "3:RUNNING@n2"]);
});

test("scaling down removes pending tasks first", async (t) => {
  const cluster = await testCluster(["n1"]);
  const resources = ResourceRequirements.create({ reservations: Resources.create({ memoryBytes: 3e9 }) });
  await cluster.addService("web", 4, { resources });
  t.is(cluster.picture().filter((line) => line.includes("RUNNING")).length, 2);
  await cluster.updateService("web", scaled(2));
  t.deepEqual(cluster.picture(), ["1:RUNNING@n1", "2:RUNNING@n1"]);
  t.is(cluster.tasks().length, 2);
});

test("the highest copy on the fullest node is removed first", async (t) => {
  const cluster = await testCluster(["n1"]);
  await cluster.addService("web", 2);
  await cluster.addNode("n2");
  await cluster.updateService("web", scaled(4));
  t.deepEqual(cluster.picture(), ["1:RUNNING@n1", "2:RUNNING@n1", "3:RUNNING@n2", "4:RUNNING@n2"]);
  await cluster.updateService("web", scaled(2));
  t.deepEqual(cluster.picture(), ["1:RUNNING@n1", "3:RUNNING@n2"]);
});

test("a removed service leaves nothing, including tasks whose removal no leader saw", async (t) => {
  const cluster = await testCluster(["n1"]);
  const placement = Placement.create({ constraints: ["node.id==nowhere"] });
  await cluster.addService("web", 3);
  await cluster.addService("stuck", 3, { placement });
  await cluster.removeService("web");
  t.is(cluster.store.count("task"), 3);
  cluster.orchestration.stop();
  await cluster.removeService("stuck");
  cluster.changeLeader();
  await cluster.run();
  t.is(cluster.store.count("task"), 0);
  t.deepEqual(
    [...cluster.env.host.ids()].filter((id) => id.startsWith("replicated/")),
    [],
  );
});

test("without a leader decisions wait, and are made once", async (t) => {
  const cluster = await testCluster(["n1"]);
  await cluster.addService("web", 1);
  cluster.leaderless = true;
  cluster.seed(
    "service",
    Service.patch(cluster.store.get("service", "web")!, {
      spec: scaled(3)(cluster.store.get("service", "web")!.spec!),
    }),
  );
  await cluster.run(1_000);
  t.is(cluster.picture().length, 1);
  cluster.leaderless = false;
  await cluster.run(1_000);
  t.deepEqual(cluster.picture(), ["1:RUNNING@n1", "2:RUNNING@n1", "3:RUNNING@n1"]);
});

test("two wanted tasks in one slot become one", async (t) => {
  const cluster = await testCluster(["n1"]);
  await cluster.addService("web", 1);
  const [task] = cluster.tasks();
  cluster.seed(
    "task",
    Task.patch(task!, {
      id: "twin",
      nodeId: "",
      status: TaskStatus.create({ state: TaskState.NEW }),
      spec: execSpec(),
    }),
  );
  await cluster.run();
  t.deepEqual(cluster.picture(), ["1:RUNNING@n1"]);
  t.is(
    cluster.store.get("task", "twin")?.status?.state,
    TaskState.SHUTDOWN,
    "it never had a node, and reports that it is over",
  );
});

test("a slot keeps five tasks as its history", async (t) => {
  const cluster = await testCluster(["n1"]);
  cluster.outcome = () => TaskState.FAILED;
  await cluster.addService("web", 1, {
    restart: RestartPolicy.create({
      condition: RestartPolicy_RestartCondition.ANY,
      delay: Duration.create({ nanos: 1e8 }),
    }),
  });
  await cluster.run(10_000);
  t.is(cluster.tasks().length, 5);
});
