// Rollouts that nobody requested: a change of the nodes leaves tasks of an earlier spec behind, long after the update.
import test from "ava";
import {
  Annotations,
  GlobalService,
  NodeSpec,
  NodeSpec_Availability,
  Placement,
  ReplicatedService,
  ServiceSpec,
  TaskSpec,
  TaskState,
  UpdateConfig,
} from "../../proto/gen/messages.ts";
import { ABORT, LOOK, RESUME, ROLLBACK, started, forced, status, versions, act } from "../support/rollout-cluster.ts";
import { testCluster, type TestCluster } from "../support/cluster.ts";

const hourMs = 3_600_000;
const { ACTIVE, PAUSE } = NodeSpec_Availability;

/** Constrained to `disk=ssd` by an update that replaced nothing, an hour before its node loses that label. */
async function unlabelled(): Promise<TestCluster> {
  const cluster = await started({ replicas: 1, update: { parallelism: 1, failureAction: ROLLBACK } });
  await label(cluster, "ssd");
  const placement = Placement.create({ constraints: ["node.labels.disk==ssd"] });
  await cluster.updateService("web", (spec) =>
    ServiceSpec.patch(spec, { task: TaskSpec.patch(spec.task as TaskSpec, { placement }) }),
  );
  await cluster.run(hourMs);
  await label(cluster, "hdd");
  return cluster;
}

async function label(cluster: TestCluster, disk: string): Promise<void> {
  const annotations = Annotations.create({ labels: { disk } });
  await cluster.changeNode("n1", { spec: NodeSpec.create({ annotations, availability: ACTIVE }) });
}

function constraints(cluster: TestCluster): readonly string[] {
  return cluster.store.get("service", "web")?.spec?.task?.placement?.constraints ?? [];
}

test("a label that a node loses long after an update removes the constraint from no service", async (t) => {
  const cluster = await unlabelled();
  await cluster.run(1_000);
  t.is((await act(cluster, LOOK)).rollout?.late, true);
  cluster.changeLeader();
  await cluster.run(700_000);
  t.regex(status(cluster), /^PAUSED: update paused .* did not run within 10m.*; not rolled back, because no update/);
  t.deepEqual(constraints(cluster), ["node.labels.disk==ssd"]);
  t.deepEqual(cluster.picture(), ["1:PENDING@"]);
  await act(cluster, RESUME);
  await cluster.run(700_000);
  t.regex(status(cluster), /^PAUSED/, "resumed it is still nobody's update");
  await act(cluster, ABORT);
  t.deepEqual(constraints(cluster), [], "an operator may roll it back");
});

test("scaling during an unrequested rollout does not make the earlier spec a rollback target", async (t) => {
  const cluster = await unlabelled();
  await cluster.updateService("web", (spec) =>
    ServiceSpec.patch(spec, { replicated: ReplicatedService.create({ replicas: 2 }) }),
  );
  await cluster.run(700_000);
  const { previousSpec, spec } = cluster.store.get("service", "web") ?? {};
  t.is(spec?.replicated?.replicas, 2);
  t.is(previousSpec?.replicated?.replicas, 1);
  for (const one of [spec, previousSpec]) t.deepEqual(one?.task?.placement?.constraints, ["node.labels.disk==ssd"]);
});

test("a node that returns and fails a day after an update of a global service rolls no other node back", async (t) => {
  const cluster = await testCluster(["n1", "n2"]);
  await cluster.addService(
    "web",
    0,
    {},
    {
      replicated: null,
      global: GlobalService.create({}),
      update: UpdateConfig.create({ parallelism: 1, failureAction: ROLLBACK }),
    },
  );
  const open = (availability: NodeSpec_Availability) =>
    cluster.changeNode("n2", { spec: NodeSpec.create({ annotations: Annotations.create({}), availability }) });
  await open(PAUSE);
  await cluster.updateService("web", forced(1));
  await cluster.run(24 * hourMs);
  t.is(status(cluster), "COMPLETED: update completed");
  cluster.outcome = (task) => (task.nodeId === "n2" && task.spec?.forceUpdate === 1 ? TaskState.FAILED : undefined);
  await open(ACTIVE);
  await cluster.run(30_000);
  t.regex(status(cluster), /^PAUSED: .*; not rolled back, because no update was requested$/);
  t.is(versions(cluster), "1");
  t.is(cluster.store.get("service", "web")?.spec?.task?.forceUpdate, 1);
});
