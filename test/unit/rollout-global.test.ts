// Rollouts of global services, node by node.
import test from "ava";
import {
  Annotations,
  Duration,
  GlobalService,
  NodeSpec,
  NodeSpec_Availability,
  TaskState,
  UpdateConfig,
} from "../../proto/gen/messages.ts";
import { testCluster, type TestCluster } from "../support/cluster.ts";
import { ABORT, START_FIRST, forced, status, act } from "../support/rollout-cluster.ts";

/** A global service `web` on three nodes. */
async function startedGlobal(update: Partial<UpdateConfig>): Promise<TestCluster> {
  const cluster = await testCluster(["n1", "n2", "n3"]);
  await cluster.addService(
    "web",
    0,
    {},
    { replicated: null, global: GlobalService.create({}), update: UpdateConfig.create(update) },
  );
  return cluster;
}

function onNodes(cluster: TestCluster): string {
  return cluster
    .tasks()
    .filter((task) => task.desiredState <= TaskState.RUNNING && task.status?.state === TaskState.RUNNING)
    .map((task) => `${task.nodeId}:${task.spec?.forceUpdate}`)
    .sort()
    .join(" ");
}

test("a global service is rolled out node by node, and pauses when a node's task fails", async (t) => {
  const cluster = await startedGlobal({ parallelism: 1, delay: Duration.create({ seconds: 10 }) });
  t.is(onNodes(cluster), "n1:0 n2:0 n3:0");
  await cluster.updateService("web", forced(1));
  t.is(onNodes(cluster), "n1:1 n2:0 n3:0");
  t.is(status(cluster), "UPDATING: update in progress");
  await cluster.run(30_000);
  t.is(onNodes(cluster), "n1:1 n2:1 n3:1");
  t.is(status(cluster), "COMPLETED: update completed");
  cluster.outcome = (task) => (task.spec?.forceUpdate === 2 && task.nodeId === "n2" ? TaskState.FAILED : undefined);
  await cluster.updateService("web", forced(2));
  await cluster.run(60_000);
  t.is(onNodes(cluster), "n1:2 n3:1");
  t.regex(status(cluster), /^PAUSED/);
  await act(cluster, ABORT);
  await cluster.run(60_000);
  t.is(onNodes(cluster), "n1:1 n2:1 n3:1");
  t.is(status(cluster), "ROLLBACK_COMPLETED: rollback completed; update rolled back: an operator aborted it");
});

test("a global service's task on a paused node waits for the node, and the rollout does not wait for it", async (t) => {
  const cluster = await startedGlobal({ parallelism: 1 });
  const availability = (value: NodeSpec_Availability) =>
    cluster.changeNode("n2", { spec: NodeSpec.create({ annotations: Annotations.create({}), availability: value }) });
  await availability(NodeSpec_Availability.PAUSE);
  await cluster.updateService("web", forced(1));
  await cluster.run(10_000);
  t.is(onNodes(cluster), "n1:1 n2:0 n3:1");
  t.is(status(cluster), "COMPLETED: update completed");
  await availability(NodeSpec_Availability.ACTIVE);
  await cluster.run(10_000);
  t.is(onNodes(cluster), "n1:1 n2:1 n3:1");
  t.is(status(cluster), "COMPLETED: update completed");
});

test("start-first on a global service has two tasks on a node for a moment, never none", async (t) => {
  const cluster = await startedGlobal({ parallelism: 1, order: START_FIRST });
  let fewest = 3;
  const watch = cluster.store.watch(() => {
    fewest = Math.min(fewest, cluster.tasks().filter((task) => task.status?.state === TaskState.RUNNING).length);
  });
  t.teardown(() => watch.unsubscribe());
  await cluster.updateService("web", forced(1));
  await cluster.run(10_000);
  t.is(onNodes(cluster), "n1:1 n2:1 n3:1");
  t.is(fewest, 3);
  t.is(status(cluster), "COMPLETED: update completed");
});
