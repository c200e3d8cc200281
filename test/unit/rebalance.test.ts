// Rebalancing over a whole orchestration: when it moves, how much, and when it does not.
import test from "ava";
import { movedFrom } from "../../machines/orchestration/rebalancing/moves.ts";
import {
  Annotations,
  Cluster,
  ClusterSpec,
  Duration,
  NodeStatus,
  NodeStatus_State,
  Placement,
  PlanRebalanceRequest,
  ReplicatedService,
  ResourceRequirements,
  Resources,
  ServiceSpec,
  TaskState,
  UpdateConfig,
  UpdateConfig_UpdateOrder,
  type Task,
} from "../../proto/gen/messages.ts";
import { testCluster, type TestCluster } from "../support/cluster.ts";

const minute = 60_000;

/** On for all services, with limits that suit a test. */
function on(labels: Readonly<Record<string, string>> = {}): Cluster {
  const annotations = Annotations.create({ name: "default", labels: { "muster.rebalance": "on", ...labels } });
  return Cluster.create({ id: "cluster", spec: ClusterSpec.create({ annotations }) });
}

function update(fields: Partial<UpdateConfig>): Partial<ServiceSpec> {
  return { update: UpdateConfig.create({ monitor: Duration.create({ seconds: 5 }), ...fields }) };
}

function counts(cluster: TestCluster, serviceId = "web"): Readonly<Record<string, number>> {
  const found: Record<string, number> = {};
  for (const { nodeId } of running(cluster, serviceId)) found[nodeId] = (found[nodeId] ?? 0) + 1;
  return found;
}

function running(cluster: TestCluster, serviceId = "web"): readonly Task[] {
  return cluster
    .tasks(serviceId)
    .filter(({ status, desiredState }) => status?.state === TaskState.RUNNING && desiredState === TaskState.RUNNING);
}

function moved(cluster: TestCluster, serviceId = "web"): readonly Task[] {
  return cluster.tasks(serviceId).filter((task) => movedFrom(task) !== "");
}

/** Six tasks on one node; then another joins. */
async function lopsided(fields: Partial<ServiceSpec> = {}, settings: Cluster | null = on()): Promise<TestCluster> {
  const cluster = await testCluster(["n1"]);
  if (settings !== null) cluster.seed("cluster", settings);
  await cluster.addService("web", 6, {}, fields);
  await cluster.run(10 * minute);
  await cluster.addNode("n2");
  return cluster;
}

async function phase(cluster: TestCluster): Promise<string> {
  return cluster.orchestration.planRebalance(PlanRebalanceRequest.create()).phase;
}

test("nothing moves where rebalancing is not switched on", async (t) => {
  const cluster = await lopsided({}, null);
  await cluster.run(60 * minute);
  t.deepEqual(counts(cluster), { n1: 6 });
  t.is(await phase(cluster), "off");
});

test("when a node has joined and settled, tasks move to it one at a time until it has its share", async (t) => {
  const cluster = await lopsided();
  let least = 6;
  const watch = cluster.store.watch(() => {
    least = Math.min(least, running(cluster).length);
  });
  await cluster.run(30_000);
  t.deepEqual(counts(cluster), { n1: 6 }, "the node has yet to settle");
  t.is(await phase(cluster), "settling");
  await cluster.run(10 * minute);
  watch.unsubscribe();
  t.deepEqual(counts(cluster), { n1: 3, n2: 3 });
  t.is(least, 5, "never fewer running than the update config allows");
  t.is(moved(cluster).length, 3);
  t.is(await phase(cluster), "watching");
  await cluster.run(120 * minute);
  t.is(moved(cluster).length, 3, "balanced tasks stay where they are");
});

test("a task that has just started stays where it is, although its nodes have long settled", async (t) => {
  const cluster = await testCluster(["n1", "n2"]);
  cluster.seed("cluster", on());
  const resources = (cpus: number) =>
    ResourceRequirements.create({ reservations: Resources.create({ nanoCpus: cpus * 1e9 }) });
  // Fills the second node, so that all tasks of the service start on the first one.
  const placement = Placement.create({ constraints: ["node.id == n2"] });
  await cluster.addService("full", 1, { placement, resources: resources(4) });
  await cluster.run(10 * minute);
  await cluster.addService("web", 4, { resources: resources(0.5) });
  await cluster.run(1_000);
  await cluster.removeService("full");
  await cluster.run(50_000);
  t.deepEqual(counts(cluster), { n1: 4 });
  await cluster.run(5 * minute);
  t.deepEqual(counts(cluster), { n1: 2, n2: 2 });
});

test("a service's own label overrides the cluster's", async (t) => {
  const off = { annotations: Annotations.create({ name: "web", labels: { "muster.rebalance": "off" } }) };
  const left = await lopsided(off);
  await left.run(20 * minute);
  t.deepEqual(counts(left), { n1: 6 });
  const label = { annotations: Annotations.create({ name: "web", labels: { "muster.rebalance": "on" } }) };
  const chosen = await lopsided(label, null);
  await chosen.run(20 * minute);
  t.deepEqual(counts(chosen), { n1: 3, n2: 3 });
});

test("as many tasks move at once as the update config allows, and the next ones after its delay", async (t) => {
  const cluster = await lopsided(update({ parallelism: 2, delay: Duration.create({ seconds: 120 }) }));
  await cluster.run(75_000);
  t.deepEqual(counts(cluster), { n1: 4, n2: 2 });
  t.is(await phase(cluster), "watchingMoves");
  await cluster.run(100_000);
  t.deepEqual(counts(cluster), { n1: 4, n2: 2 });
  await cluster.run(30_000);
  t.deepEqual(counts(cluster), { n1: 3, n2: 3 });
});

test("no round and no window has more moves than its budget", async (t) => {
  const labels = { "muster.rebalance.round": "2", "muster.rebalance.moves": "3", "muster.rebalance.window": "30m" };
  const cluster = await testCluster(["n1"]);
  cluster.seed("cluster", on(labels));
  await cluster.addService("web", 20, {}, update({ parallelism: 0 }));
  await cluster.run(10 * minute);
  await cluster.addNode("n2");
  await cluster.run(64_000);
  t.is(moved(cluster).length, 2);
  await cluster.run(20 * minute);
  t.is(moved(cluster).length, 3);
  t.regex(cluster.orchestration.explainService("web").at(-1)?.waitingFor ?? "", /budget of 3 moves is used up/);
  // A new leader derives them from their tasks.
  cluster.changeLeader();
  await cluster.run(5 * minute);
  t.is(moved(cluster).length, 3);
  await cluster.run(15 * minute);
  t.is(moved(cluster).length, 6);
});

test("a round without moves says so, and does not blame the budget", async (t) => {
  const cluster = await testCluster(["n1"]);
  cluster.seed("cluster", on({ "muster.rebalance.round": "0" }));
  await cluster.addService("web", 4);
  await cluster.addNode("n2");
  await cluster.run(10 * minute);
  t.regex(
    cluster.orchestration.explainService("web").at(-1)?.waitingFor ?? "",
    /label muster.rebalance.round allows no moves per round/,
  );
});

test("nothing moves while a node is missing, nor for a while afterwards", async (t) => {
  const cluster = await lopsided();
  await cluster.addNode("n3");
  await cluster.changeNode("n3", { status: NodeStatus.create({ state: NodeStatus_State.DISCONNECTED }) });
  await cluster.run(30 * minute);
  t.deepEqual(counts(cluster), { n1: 6 });
  t.is(await phase(cluster), "paused");
  t.regex(cluster.orchestration.explainService("web").at(-1)?.waitingFor ?? "", /paused.*host-n3 is disconnected/);
  await cluster.changeNode("n3", { status: NodeStatus.create({ state: NodeStatus_State.READY }) });
  await cluster.run(4 * minute);
  t.deepEqual(counts(cluster), { n1: 6 });
  await cluster.run(20 * minute);
  t.deepEqual(counts(cluster), { n1: 2, n2: 2, n3: 2 });
});

test("a node that is down for long no longer counts as an incident", async (t) => {
  const cluster = await testCluster(["n1", "dead"]);
  cluster.seed("cluster", on());
  await cluster.killNode("dead");
  await cluster.addService("web", 4);
  await cluster.run(10 * minute);
  await cluster.addNode("n2");
  await cluster.run(20 * minute);
  t.deepEqual(counts(cluster), { n1: 2, n2: 2 });
});

test("a service with failing tasks stays where it is until they have run for a while", async (t) => {
  const cluster = await lopsided();
  const [victim] = running(cluster);
  await cluster.report(victim as Task, TaskState.FAILED);
  await cluster.run(4 * minute);
  t.is(moved(cluster).length, 0);
  await cluster.run(20 * minute);
  const { n1 = 0, n2 = 0 } = counts(cluster);
  t.is(n1 + n2, 6);
  t.true(Math.abs(n1 - n2) <= 1);
});

test("a moved task that does not run blocks all moves, and its failure ends the moves of its service", async (t) => {
  const cluster = await lopsided();
  cluster.outcome = (task) => (movedFrom(task) === "" ? undefined : TaskState.FAILED);
  await cluster.run(3 * minute);
  t.is(moved(cluster).length, 1, "one was attempted");
  t.is(running(cluster).length, 6, "and its slot got another task");
  t.regex(cluster.orchestration.explainService("web").at(-1)?.waitingFor ?? "", /failed recently/);
});

test("a dry run shows the moves and why, and changes nothing", async (t) => {
  const cluster = await lopsided({}, null);
  await cluster.run(20 * minute);
  const before = cluster.store.version;
  const plan = cluster.orchestration.planRebalance(PlanRebalanceRequest.create({ all: true }));
  t.is(cluster.store.version, before);
  t.deepEqual(
    plan.moves.map(({ round, fromNodeId, nodeId, order, why }) => `${round} ${fromNodeId} ${nodeId} ${order} ${why}`),
    [
      "1 n1 n2 stop-first node host-n1 has 6 tasks of the service, node host-n2 has 0",
      "2 n1 n2 stop-first node host-n1 has 5 tasks of the service, node host-n2 has 1",
      "3 n1 n2 stop-first node host-n1 has 4 tasks of the service, node host-n2 has 2",
    ],
  );
  t.is(plan.phase, "off");
  t.is(plan.movesLeft, 60);
  t.deepEqual(cluster.orchestration.planRebalance(PlanRebalanceRequest.create()).moves, []);
});

test("a dry run shows the moves that then happen", async (t) => {
  const cluster = await testCluster(["n1", "n2"]);
  await cluster.addService("web", 7);
  await cluster.addService("api", 3);
  await cluster.run(10 * minute);
  await cluster.addNode("n3");
  await cluster.addNode("n4");
  await cluster.run(10 * minute);
  const { moves } = cluster.orchestration.planRebalance(PlanRebalanceRequest.create({ all: true }));
  t.true(moves.length >= 3);
  const wanted: Record<string, number> = {};
  for (const id of ["web", "api"]) {
    for (const task of running(cluster, id)) {
      const move = moves.find(({ taskId }) => taskId === task.id);
      const key = `${id}@${move?.nodeId ?? task.nodeId}`;
      wanted[key] = (wanted[key] ?? 0) + 1;
    }
  }
  cluster.seed("cluster", on());
  await cluster.run(30 * minute);
  const found: Record<string, number> = {};
  for (const id of ["web", "api"]) {
    for (const { nodeId } of running(cluster, id)) found[`${id}@${nodeId}`] = (found[`${id}@${nodeId}`] ?? 0) + 1;
  }
  t.deepEqual(found, wanted);
});

test("single tasks of many services move to level the nodes' loads", async (t) => {
  const cluster = await testCluster(["n1"]);
  cluster.seed("cluster", on());
  for (const id of ["a", "b", "c", "d"]) await cluster.addService(id, 1);
  await cluster.run(10 * minute);
  await cluster.addNode("n2");
  await cluster.run(20 * minute);
  const all = ["a", "b", "c", "d"].flatMap((id) => running(cluster, id)).map(({ nodeId }) => nodeId);
  t.deepEqual(all.toSorted(), ["n1", "n1", "n2", "n2"]);
});

for (const mode of ["off", "on"])
  test(`other services' tasks count once they have stayed on a node, even without a notification (theirs is ${mode})`, async (t) => {
    const cluster = await testCluster(["n1", "n2"]);
    cluster.seed("cluster", on());
    for (const id of ["a", "b", "c", "d"]) await cluster.addService(id, 1);
    await cluster.run(10 * minute);
    const fields = { annotations: Annotations.create({ name: "pinned", labels: { "muster.rebalance": mode } }) };
    const placement = Placement.create({ constraints: ["node.id == n1"] });
    await cluster.addService("pinned", 4, { placement }, fields);
    await cluster.run(10 * minute);
    t.deepEqual(counts(cluster, "pinned"), { n1: 4 });
    t.deepEqual(
      ["a", "b", "c", "d"].flatMap((id) => running(cluster, id)).map(({ nodeId }) => nodeId),
      ["n2", "n2", "n2", "n2"],
    );
  });

test("a concurrent move and scaling leave one task in each slot", async (t) => {
  const cluster = await lopsided();
  await cluster.run(61_900);
  await cluster.updateService("web", (spec) =>
    ServiceSpec.patch(spec, { replicated: ReplicatedService.create({ replicas: 3 }) }),
  );
  await cluster.run(10 * minute);
  t.is(running(cluster).length, 3);
  t.is(cluster.tasks().filter(({ desiredState }) => desiredState <= TaskState.RUNNING).length, 3);
});

test("a new leader continues a round in progress", async (t) => {
  const cluster = await lopsided(update({ parallelism: 1, delay: Duration.create({ seconds: 30 }) }));
  await cluster.run(63_000);
  t.is(moved(cluster).length, 1);
  for (let change = 0; change < 4; change += 1) {
    cluster.changeLeader();
    await cluster.run(10_000);
  }
  t.true(moved(cluster).length <= 2);
  await cluster.run(30 * minute);
  t.deepEqual(counts(cluster), { n1: 3, n2: 3 });
});

test("with start-first a task runs elsewhere before its predecessor is stopped", async (t) => {
  const cluster = await lopsided(update({ order: UpdateConfig_UpdateOrder.START_FIRST, parallelism: 1 }));
  let least = 6;
  const watch = cluster.store.watch(() => {
    least = Math.min(least, running(cluster).length);
  });
  await cluster.run(20 * minute);
  watch.unsubscribe();
  t.is(least, 6);
  t.deepEqual(counts(cluster), { n1: 3, n2: 3 });
});
