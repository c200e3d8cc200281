// Rollouts that proceed by themselves: their order, their failures and the consequences, their deadlines.
import test from "ava";
import { deadlineLabel, progressDeadlineLabel } from "../../machines/orchestration/rollout/settings.ts";
import { ingressNetwork } from "../../machines/allocation/new-networks.ts";
import { updatedService } from "../../machines/orchestration/service-update.ts";
import {
  Annotations,
  ContainerSpec,
  Duration,
  EndpointSpec,
  EngineDescription,
  NodeDescription,
  NodeSpec,
  NodeSpec_Availability,
  Operation,
  Placement,
  PortConfig,
  PortConfig_PublishMode,
  ReplicatedService,
  Resources,
  RestartPolicy,
  RestartPolicy_RestartCondition,
  ServiceSpec,
  StoreObject,
  TaskSpec,
  TaskState,
  Version,
  type Task,
} from "../../proto/gen/messages.ts";
import {
  ABORT,
  PAUSE,
  RESUME,
  LOOK,
  ROLLBACK,
  CONTINUE,
  START_FIRST,
  started,
  forced,
  status,
  versions,
  wanted,
  act,
  fail,
} from "../support/rollout-cluster.ts";

test("an update reports that it is in progress, and after the monitor time that it is completed, and when", async (t) => {
  const cluster = await started();
  t.is(cluster.store.get("service", "web")?.updateStatus, null, "a new service has no rollout");
  await cluster.updateService("web", forced(1));
  t.is(versions(cluster), "1 1 1 1");
  t.is(status(cluster), "UPDATING: update in progress");
  await cluster.run(5_000);
  t.is(status(cluster), "COMPLETED: update completed");
  const { startedAt, completedAt } = cluster.store.get("service", "web")?.updateStatus ?? {};
  t.true((completedAt?.seconds ?? 0) - (startedAt?.seconds ?? 0) >= 5);
  t.deepEqual(
    [...cluster.env.host.ids()].filter((id) => id.startsWith("rollout/")),
    [],
  );
});

test("scaling and labels cause no rollout", async (t) => {
  const cluster = await started();
  await cluster.updateService("web", (spec) =>
    ServiceSpec.patch(spec, { replicated: ReplicatedService.create({ replicas: 6 }) }),
  );
  await cluster.updateService("web", (spec) =>
    ServiceSpec.patch(spec, { annotations: Annotations.create({ name: "web", labels: { a: "b" } }) }),
  );
  await cluster.run(10_000);
  t.is(status(cluster), "none: ");
  t.is(cluster.store.count("rollout"), 0);
});

test("a failing task pauses the update, which names it and its reason, and leaves the other slots alone", async (t) => {
  const cluster = await started();
  cluster.alive.clear();
  await cluster.updateService("web", forced(1));
  await cluster.report(
    cluster.tasks().find(({ slot }) => slot === 1)!,
    TaskState.SHUTDOWN,
  );
  const task = wanted(cluster).find(({ spec }) => spec?.forceUpdate === 1)!;
  t.is(task.slot, 1, "slots are updated in ascending order");
  await fail(cluster, task, "No such image: nowhere/none:1");
  t.is(
    status(cluster),
    "PAUSED: update paused due to failure or early termination of task T: No such image: nowhere/none:1",
  );
  t.true(cluster.store.get("service", "web")?.updateStatus?.message.includes(task.id));
  cluster.alive.add("n1");
  await cluster.run(30_000);
  t.is(versions(cluster), "1 0 0 0", "the restart supervisor continues with the slot that had its turn");
  t.regex(status(cluster), /^PAUSED/);
});

test("during a paused update, an old replica that crashes restarts unchanged", async (t) => {
  const cluster = await started();
  cluster.bad.add(1);
  await cluster.updateService("web", forced(1));
  await cluster.run(1_000);
  t.regex(status(cluster), /^PAUSED/);
  await cluster.report(
    wanted(cluster).find(({ slot }) => slot === 3)!,
    TaskState.FAILED,
  );
  await cluster.run(10_000);
  t.is(versions(cluster), "0 0 0");
  const successor = wanted(cluster).find(({ slot }) => slot === 3);
  t.is(successor?.spec?.forceUpdate, 0);
  t.is(successor?.specVersion?.index, 0);
  t.regex(status(cluster), /^PAUSED/);
});

test("during an update, an old replica that crashes before its slot's turn restarts unchanged", async (t) => {
  const cluster = await started({ update: { parallelism: 1, delay: Duration.create({ seconds: 60 }) } });
  await cluster.updateService("web", forced(1));
  t.is(versions(cluster), "1 0 0 0");
  await cluster.report(
    wanted(cluster).find(({ slot }) => slot === 4)!,
    TaskState.FAILED,
  );
  await cluster.run(10_000);
  t.is(versions(cluster), "1 0 0 0");
});

test("with the action rollback the service and its tasks return to the previous spec", async (t) => {
  const cluster = await started({ update: { parallelism: 2, failureAction: ROLLBACK } });
  cluster.bad.add(1);
  const before = cluster.store.get("service", "web")!;
  await cluster.updateService("web", forced(1));
  await cluster.run(1_000);
  t.regex(status(cluster), /^ROLLBACK_STARTED: update rolled back due to failure or early termination of task T/);
  await cluster.run(20_000);
  t.regex(
    status(cluster),
    /^ROLLBACK_COMPLETED: rollback completed; update rolled back due to failure or early termination of task T[^:]*: reported$/,
  );
  t.is(versions(cluster), "0 0 0 0");
  const after = cluster.store.get("service", "web")!;
  t.is(after.spec?.task?.forceUpdate, 0);
  t.is(after.specVersion?.index, before.specVersion?.index);
  t.is(after.previousSpec, null);
});

test("a rollback that fails ends permanently as rollback paused", async (t) => {
  const cluster = await started({
    update: { parallelism: 1, failureAction: ROLLBACK },
    rollback: { parallelism: 1, failureAction: ROLLBACK },
  });
  cluster.bad.add(0).add(1);
  await cluster.updateService("web", forced(1));
  await cluster.run(20_000);
  t.regex(status(cluster), /^ROLLBACK_PAUSED: rollback paused due to failure or early termination of task T/);
  await cluster.run(600_000);
  t.regex(status(cluster), /^ROLLBACK_PAUSED/);
  await act(cluster, RESUME);
  cluster.bad.clear();
  await cluster.run(60_000);
  t.is(versions(cluster), "0 0 0 0");
  t.regex(status(cluster), /^ROLLBACK_COMPLETED/);
});

test("without a previous spec a failing update pauses and says so", async (t) => {
  const cluster = await started({ update: { parallelism: 1, failureAction: ROLLBACK } });
  cluster.bad.add(1);
  const stored = cluster.store.get("service", "web")!;
  const service = updatedService(stored, forced(1)(stored.spec!), stored.meta?.version ?? Version.create(), 0);
  const update = StoreObject.create({ service: { ...service, previousSpec: null } });
  await cluster.propose(Operation.create({ update }));
  await cluster.run(1_000);
  t.regex(status(cluster), /^PAUSED: update paused due to .*; it cannot be rolled back: there is no previous spec$/);
});

test("a rollback that is rejected pauses the update with the reason; it succeeds once the cause is gone", async (t) => {
  const ports = (published: number, publishMode: PortConfig_PublishMode) => ({
    endpoint: EndpointSpec.create({
      ports: [PortConfig.create({ targetPort: 80, publishedPort: published, publishMode })],
    }),
  });
  const { HOST, INGRESS } = PortConfig_PublishMode;
  const cluster = await started({
    nodes: ["n1", "n2"],
    replicas: 2,
    update: { parallelism: 1, failureAction: ROLLBACK },
  });
  await cluster.propose(Operation.create({ create: StoreObject.create({ network: ingressNetwork("ingress") }) }));
  await cluster.updateService("web", (spec) => ServiceSpec.patch(spec, ports(80, HOST)));
  await cluster.run(20_000);
  t.regex(status(cluster), /^COMPLETED/);
  await cluster.updateService("web", (spec) => ServiceSpec.patch(forced(1)(spec), { endpoint: null }));
  await cluster.addService("other", 0, {}, ports(80, INGRESS));
  await fail(
    cluster,
    wanted(cluster).find(({ spec }) => spec?.forceUpdate === 1)!,
    "boom",
  );
  t.regex(
    status(cluster),
    /^PAUSED: update paused due to .*; it cannot be rolled back: port '80' is already in use by service 'other' \(other\) as an ingress port$/,
  );
  const refused = await act(cluster, ABORT).then(() => "done", String);
  t.regex(refused, /port '80' is already in use by service 'other'/);
  await cluster.removeService("other");
  await act(cluster, ABORT);
  await cluster.run(60_000);
  t.regex(status(cluster), /^ROLLBACK_COMPLETED/);
  t.is(versions(cluster), "0 0");
});

test("with the action continue it goes through all slots and reports how many failed", async (t) => {
  const cluster = await started({
    replicas: 3,
    update: { parallelism: 1, failureAction: CONTINUE },
    task: { restart: RestartPolicy.create({ condition: RestartPolicy_RestartCondition.NONE }) },
  });
  cluster.bad.add(1);
  await cluster.updateService("web", forced(1));
  await cluster.run(10_000);
  t.is(status(cluster), "COMPLETED: update completed; 3 tasks failed");
});

test("as many may fail as the ratio allows", async (t) => {
  const update = { parallelism: 1, maxFailureRatio: 0.5 };
  const restart = RestartPolicy.create({ condition: RestartPolicy_RestartCondition.NONE });
  const cluster = await started({ update, task: { restart } });
  const failing = new Set([1, 2]);
  cluster.outcome = (task) => (task.spec?.forceUpdate === 1 && failing.has(task.slot) ? TaskState.FAILED : undefined);
  await cluster.updateService("web", forced(1));
  await cluster.run(10_000);
  t.is(status(cluster), "COMPLETED: update completed; 2 tasks failed");
  failing.add(3);
  cluster.outcome = (task) => (task.spec?.forceUpdate === 2 && failing.has(task.slot) ? TaskState.FAILED : undefined);
  await cluster.updateService("web", forced(2));
  await cluster.run(10_000);
  t.regex(status(cluster), /^PAUSED/);
});

test("the restart supervisor's replacements of failed tasks count, and their slot is one failed slot", async (t) => {
  const update = { parallelism: 1, maxFailureRatio: 0.25, delay: Duration.create({ seconds: 10 }) };
  const restart = RestartPolicy.create({
    condition: RestartPolicy_RestartCondition.ANY,
    delay: Duration.create({ seconds: 1 }),
  });
  const cluster = await started({ update, task: { restart }, replicas: 4 });
  const failing = new Set([1]);
  cluster.outcome = (task) => (task.spec?.forceUpdate === 1 && failing.has(task.slot) ? TaskState.FAILED : undefined);
  await cluster.updateService("web", forced(1));
  await cluster.run(5_000);
  t.is((await act(cluster, LOOK)).rollout?.failedSlots, 1);
  cluster.changeLeader();
  await cluster.run(12_000);
  const { rollout } = await act(cluster, LOOK);
  t.true((rollout?.failures ?? 0) > 10);
  t.is(rollout?.failedSlots, 1, "another leader knows the slot");
  t.regex(status(cluster), /^UPDATING/, "one slot of four may fail");
  failing.add(4);
  await cluster.run(30_000);
  t.regex(status(cluster), /^PAUSED/, "the second is one too many");
  t.is((await act(cluster, LOOK)).rollout?.failedSlots, 2);
  failing.clear();
  await act(cluster, RESUME);
  t.like((await act(cluster, LOOK)).rollout, { failures: 0, failedSlots: 0 });
});

test("failures counted so far stay counted under another leader", async (t) => {
  const update = { parallelism: 1, maxFailureRatio: 0.25, delay: Duration.create({ seconds: 10 }) };
  const restart = RestartPolicy.create({ condition: RestartPolicy_RestartCondition.NONE });
  const cluster = await started({ update, task: { restart } });
  cluster.outcome = (task) => (task.spec?.forceUpdate === 1 && task.slot !== 2 ? TaskState.FAILED : undefined);
  await cluster.updateService("web", forced(1));
  await cluster.run(1_000);
  t.is(versions(cluster), "1 0 0", "slot 1 has failed, slot 2 runs, and the delay after it has begun");
  cluster.changeLeader();
  await cluster.run(8_000);
  t.is(versions(cluster), "1 0 0", "the delay continues where it was");
  t.regex(status(cluster), /^UPDATING/, "one of four may fail");
  await cluster.run(2_000);
  t.regex(status(cluster), /^PAUSED/, "the second is one too many");
  t.is(versions(cluster), "1 0");
});

test("a failure that no leader saw is counted by the next", async (t) => {
  const cluster = await started();
  cluster.alive.clear();
  await cluster.updateService("web", forced(1));
  await cluster.report(
    cluster.tasks().find(({ slot }) => slot === 1)!,
    TaskState.SHUTDOWN,
  );
  cluster.orchestration.stop();
  await fail(
    cluster,
    wanted(cluster).find(({ spec }) => spec?.forceUpdate === 1)!,
    "no such file",
  );
  cluster.changeLeader();
  await cluster.run();
  t.is(status(cluster), "PAUSED: update paused due to failure or early termination of task T: no such file");
});

test("a task that ran for long enough before it crashed is not a failure for the next leader either", async (t) => {
  const delay = Duration.create({ seconds: 60 });
  const cluster = await started({ update: { parallelism: 1, delay, failureAction: ROLLBACK } });
  await cluster.updateService("web", forced(1));
  await cluster.run(50_000);
  await fail(
    cluster,
    wanted(cluster).find(({ slot }) => slot === 1)!,
    "crash after 50 s",
  );
  await cluster.run(8_000);
  t.is(versions(cluster), "1 0 0 0", "it was restarted");
  cluster.changeLeader();
  await cluster.run(1_000);
  t.is((await act(cluster, LOOK)).rollout?.failures, 0);
  t.is(status(cluster), "UPDATING: update in progress");
});

test("a task that ends within the monitor time is a failure, and one that ends later is not", async (t) => {
  const update = { parallelism: 1, monitor: Duration.create({ seconds: 20 }) };
  const cluster = await started({ update, replicas: 1 });
  await cluster.updateService("web", forced(1));
  await cluster.run(10_000);
  t.regex(status(cluster), /^UPDATING/);
  await cluster.report(wanted(cluster)[0]!, TaskState.COMPLETE);
  await cluster.run();
  t.regex(status(cluster), /^PAUSED/);
  await cluster.updateService("web", forced(2));
  await cluster.run(21_000);
  t.regex(status(cluster), /^COMPLETED/);
  await cluster.report(wanted(cluster)[0]!, TaskState.FAILED);
  await cluster.run();
  t.regex(status(cluster), /^COMPLETED/);
});

test("a task that may complete, and does, is not a failure", async (t) => {
  const restart = RestartPolicy.create({ condition: RestartPolicy_RestartCondition.NONE });
  const cluster = await started({ replicas: 2, task: { restart } });
  cluster.outcome = (task) => (task.spec?.forceUpdate === 1 ? TaskState.COMPLETE : undefined);
  await cluster.updateService("web", forced(1));
  await cluster.run(10_000);
  t.is(status(cluster), "COMPLETED: update completed");
});

test("no more slots than the parallelism are in progress, in ascending order", async (t) => {
  const cluster = await started({ replicas: 12, update: { parallelism: 3 } });
  const order: number[] = [];
  let most = 0;
  const watch = cluster.store.watch(({ changes }) => {
    for (const change of changes) {
      if (change.table === "task" && change.action === "create") order.push(change.object.slot);
    }
    const away = wanted(cluster).filter((task) => task.status?.state !== TaskState.RUNNING).length;
    most = Math.max(most, away);
  });
  t.teardown(() => watch.unsubscribe());
  await cluster.updateService("web", forced(1));
  await cluster.run(1_000);
  t.is(most, 3);
  t.deepEqual(
    order,
    Array.from({ length: 12 }, (_, at) => at + 1),
  );
});

test("a slot that is down is repaired before a running one is updated", async (t) => {
  const cluster = await started({ replicas: 2 });
  cluster.outcome = (task) => (task.spec?.forceUpdate === 1 && task.slot === 2 ? TaskState.FAILED : undefined);
  await cluster.updateService("web", forced(1));
  await cluster.run(20_000);
  t.regex(status(cluster), /^PAUSED/);
  t.is(versions(cluster), "1");
  let fewest = 2;
  const watch = cluster.store.watch(
    () => (fewest = Math.min(fewest, versions(cluster).split(" ").filter(Boolean).length)),
  );
  t.teardown(() => watch.unsubscribe());
  await cluster.updateService("web", forced(2));
  await cluster.run(30_000);
  t.is(versions(cluster), "2 2");
  t.is(fewest, 1);
});

test("a rollback starts with the slot that the update broke", async (t) => {
  const monitor = Duration.create({ seconds: 1 });
  const delay = Duration.create({ seconds: 30 });
  const cluster = await started({
    update: { parallelism: 1, monitor, failureAction: ROLLBACK },
    rollback: { parallelism: 1, delay },
  });
  cluster.outcome = (task) => (task.spec?.forceUpdate === 1 && task.slot === 4 ? TaskState.FAILED : undefined);
  await cluster.updateService("web", forced(1));
  await cluster.run(5_000);
  t.regex(status(cluster), /^ROLLBACK_STARTED/);
  t.is(versions(cluster), "1 1 1 0");
});

test("start-first never has fewer running tasks, and stops the old one when the new one runs", async (t) => {
  const cluster = await started({ update: { parallelism: 2, order: START_FIRST } });
  let fewest = 4;
  let most = 0;
  const watch = cluster.store.watch(() => {
    const running = cluster.tasks().filter((task) => task.status?.state === TaskState.RUNNING).length;
    fewest = Math.min(fewest, running);
    most = Math.max(most, wanted(cluster).length);
  });
  t.teardown(() => watch.unsubscribe());
  await cluster.updateService("web", forced(1));
  await cluster.run(6_000);
  t.is(fewest, 4);
  t.is(most, 6, "two at once");
  t.is(versions(cluster), "1 1 1 1");
  t.regex(status(cluster), /^COMPLETED/);
});

test("a start-first update that fails keeps the old tasks, and is not retried while it is paused", async (t) => {
  const cluster = await started({ update: { parallelism: 1, order: START_FIRST } });
  cluster.bad.add(1);
  await cluster.updateService("web", forced(1));
  await cluster.run(60_000);
  t.regex(status(cluster), /^PAUSED/);
  t.is(versions(cluster), "0 0 0 0");
  t.is(wanted(cluster).length, 4);
  cluster.bad.clear();
  await act(cluster, RESUME);
  await cluster.run(10_000);
  t.is(versions(cluster), "1 1 1 1");
  t.regex(status(cluster), /^COMPLETED/);
});

test("a waiting rollback keeps stating why it was started", async (t) => {
  const cluster = await started({ update: { parallelism: 2, failureAction: ROLLBACK } });
  cluster.bad.add(1);
  const { outcome } = cluster;
  let isSlow = true;
  cluster.outcome = (task) => outcome(task) ?? (isSlow ? TaskState.STARTING : undefined);
  await cluster.updateService("web", forced(1));
  await cluster.run(20_000);
  const reason = "ROLLBACK_STARTED: update rolled back due to failure or early termination of task T";
  t.regex(status(cluster), new RegExp(`^${reason}.*: waiting for task T `));
  isSlow = false;
  for (const task of wanted(cluster))
    if (task.status?.state === TaskState.STARTING) await cluster.report(task, TaskState.RUNNING);
  await cluster.run(1);
  t.true(status(cluster).startsWith(reason));
  t.false(status(cluster).includes("waits"));
  await cluster.run(20_000);
  t.regex(
    status(cluster),
    /^ROLLBACK_COMPLETED: rollback completed; update rolled back due to failure or early termination of task T[^:]*: reported$/,
  );
});

test("a start-first task that never runs blocks only its slot, and its old task survives a change of leader", async (t) => {
  const cluster = await started({ update: { parallelism: 1, order: START_FIRST } });
  cluster.outcome = (task) => (task.spec?.forceUpdate === 1 ? TaskState.STARTING : undefined);
  await cluster.updateService("web", forced(1));
  await cluster.run(20_000);
  cluster.changeLeader();
  await cluster.run(20_000);
  t.is(versions(cluster), "0 0 0 0");
  t.is(wanted(cluster).length, 5);
});

test("a task without a node is named while it delays the update, and counts as failed after its deadline", async (t) => {
  const cluster = await started({ labels: { [progressDeadlineLabel]: "2m" } });
  const placement = Placement.create({ constraints: ["node.labels.disk==ssd"] });
  await cluster.updateService("web", (spec) =>
    ServiceSpec.patch(spec, { task: TaskSpec.patch(spec.task as TaskSpec, { placement }) }),
  );
  await cluster.run(20_000);
  const reason = "no suitable node (scheduling constraints not satisfied on 1 node)";
  t.is(status(cluster), `UPDATING: update in progress: waiting for task T (slot 1), PENDING: ${reason}`);
  const why = cluster.orchestration.explainService("web").map(({ waitingFor }) => waitingFor);
  t.true(
    why.some((text) => text.includes("slot 1") && text.includes(reason)),
    why.join("\n"),
  );
  const seen = await act(cluster, LOOK);
  t.is(seen.phase, "updating");
  t.like(seen, { waiting: 3, changing: 1, done: 0, failed: 0 });
  t.is(seen.blockers[0]?.state, "PENDING");
  await cluster.run(120_000);
  t.is(
    status(cluster),
    `PAUSED: update paused due to failure or early termination of task T: it did not run within 2m: ${reason}`,
  );
  t.is(versions(cluster), "0 0 0");
});

test("the reason for a waiting update is kept current, and an old task that does not stop is named", async (t) => {
  const cluster = await started({ replicas: 2 });
  const available = (availability: NodeSpec_Availability) =>
    cluster.changeNode("n1", { spec: NodeSpec.create({ annotations: Annotations.create({}), availability }) });
  cluster.stops = () => false;
  await available(NodeSpec_Availability.PAUSE);
  await cluster.updateService("web", forced(1));
  await cluster.run(12_000);
  const waits = "UPDATING: update in progress: waiting for task T (slot 1)";
  t.is(status(cluster), `${waits}, which has not stopped: RUNNING on node n1`);
  t.is((await act(cluster, LOOK)).blockers[0]?.state, "RUNNING");
  const old = cluster.tasks().find(({ desiredState, slot }) => slot === 1 && desiredState === TaskState.SHUTDOWN)!;
  await cluster.report(old, TaskState.SHUTDOWN);
  await cluster.run(45_000);
  t.true(status(cluster).startsWith(`${waits}, PENDING: no suitable node`));
  cluster.outcome = (task) => (task.spec?.forceUpdate === 1 ? TaskState.PREPARING : undefined);
  await available(NodeSpec_Availability.ACTIVE);
  await cluster.run(45_000);
  t.true(status(cluster).startsWith(`${waits}, PREPARING`));
});

test("the progress deadline continues under another leader", async (t) => {
  const cluster = await started({ labels: { [progressDeadlineLabel]: "60s" } });
  cluster.outcome = (task) => (task.spec?.forceUpdate === 1 ? TaskState.STARTING : undefined);
  await cluster.updateService("web", forced(1));
  await cluster.run(50_000);
  cluster.changeLeader();
  await cluster.run(8_000);
  t.regex(status(cluster), /^UPDATING/);
  await cluster.run(4_000);
  t.regex(status(cluster), /^PAUSED/);
});

test("the deadline of the whole rollout pauses it, or rolls it back", async (t) => {
  const labels = { [deadlineLabel]: "1m30s" };
  const delay = Duration.create({ seconds: 60 });
  const cluster = await started({ labels, update: { parallelism: 1, delay } });
  await cluster.updateService("web", forced(1));
  await cluster.run(95_000);
  t.is(status(cluster), "PAUSED: update paused: its deadline has passed with 2 slots remaining");
  const other = await started({ labels, update: { parallelism: 1, delay, failureAction: ROLLBACK } });
  await other.updateService("web", forced(1));
  await other.run(120_000);
  t.regex(status(other), /^ROLLBACK_COMPLETED/);
  t.is(versions(other), "0 0 0 0");
});

test("tasks that stop slowly, within their grace period, do not make the deadline roll a rollout back", async (t) => {
  const container = ContainerSpec.create({ image: "x", stopGracePeriod: Duration.create({ seconds: 3_600 }) });
  const update = { parallelism: 1, failureAction: ROLLBACK };
  const cluster = await started({ replicas: 3, update, task: { generic: null, container } });
  const resources = Resources.create({ nanoCpus: 4e9, memoryBytes: 8e9 });
  await cluster.changeNode("n1", {
    description: NodeDescription.create({ hostname: "n1", resources, engine: EngineDescription.create({}) }),
  });
  await cluster.run(2_000);
  t.is(versions(cluster), "0 0 0");
  const isStopping = (task: Task): boolean =>
    task.desiredState === TaskState.SHUTDOWN && task.status?.state === TaskState.RUNNING;
  cluster.stops = () => false;
  await cluster.updateService("web", forced(1));
  for (let at = 0; at < 3; at += 1) {
    await cluster.run(25 * 60_000);
    for (const task of cluster.tasks().filter(isStopping)) await cluster.report(task, TaskState.SHUTDOWN);
  }
  await cluster.run(20_000);
  t.is(status(cluster), "COMPLETED: update completed");
});

test("a slot that fails for long keeps its last task of the earlier spec, so that a new leader recognises its state", async (t) => {
  const restart = RestartPolicy.create({
    condition: RestartPolicy_RestartCondition.ANY,
    delay: Duration.create({ seconds: 1 }),
  });
  const cluster = await started({ replicas: 2, update: { parallelism: 1, maxFailureRatio: 1 }, task: { restart } });
  cluster.bad.add(1);
  await cluster.updateService("web", forced(1));
  await cluster.run(1_000);
  await act(cluster, PAUSE);
  await cluster.run(30_000);
  const first = cluster.tasks().filter(({ slot }) => slot === 1);
  t.true(first.length >= 5);
  t.is(first[0]?.spec?.forceUpdate, 0);
});

test("a rollout of many slots examines only those that change", async (t) => {
  const cluster = await started({ replicas: 200, update: { parallelism: 1 }, nodes: ["n1", "n2"] });
  let looked = 0;
  const real = cluster.store.tasksByService.bind(cluster.store);
  cluster.store.tasksByService = (id) => {
    looked += 1;
    return real(id);
  };
  await cluster.updateService("web", forced(1));
  await cluster.run(10_000);
  t.is(status(cluster), "COMPLETED: update completed");
  t.true(looked < 10, `all tasks were examined ${looked} times`);
});
