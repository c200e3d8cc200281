// Over real processes: a follower answers for what only the leader knows, and tasks move to a node that joins.
import test from "ava";
import { rebalanceLabels } from "../../machines/orchestration/rebalancing/settings.ts";
import {
  Annotations,
  ClusterSpec,
  ControlService,
  Duration,
  GetClusterRequest,
  ListClustersRequest,
  OperatorService,
  PlanRebalanceRequest,
  PlanServiceRequest,
  ResourceRequirements,
  Resources,
  ServiceSpec,
  TaskSpec,
  TaskState,
  UpdateClusterRequest,
  UpdateConfig,
  WhyRequest,
} from "../../proto/gen/messages.ts";
import { ask, createService, runningTasks, sleepers, status, tasks } from "../fixtures/control-client.ts";
import { startAgent, startManager, type TestManager } from "../fixtures/muster.ts";
import { natsServer } from "../fixtures/nats-server.ts";
import { taskProcesses } from "../fixtures/processes.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

const { Why, PlanService, PlanRebalance } = OperatorService.methods;

/** The same kind of task, with more memory than any node has. */
function tooLarge(like: ServiceSpec): TaskSpec {
  const reservations = Resources.create({ memoryBytes: 2 ** 50 });
  const resources = ResourceRequirements.create({ reservations });
  return TaskSpec.patch(like.task ?? TaskSpec.create(), { resources });
}

async function switchOn(manager: TestManager): Promise<void> {
  const { GetCluster, ListClusters, UpdateCluster } = ControlService.methods;
  const { clusters } = await ask(manager, ListClusters, ListClustersRequest.create());
  const clusterId = clusters[0]?.id ?? "";
  const { cluster } = await ask(manager, GetCluster, GetClusterRequest.create({ clusterId }));
  const before = cluster?.spec ?? ClusterSpec.create();
  const labels = { [rebalanceLabels.mode]: "on", [rebalanceLabels.settle]: "2s", [rebalanceLabels.quiet]: "1s" };
  const annotations = Annotations.patch(before.annotations ?? Annotations.create(), { labels });
  const spec = ClusterSpec.patch(before, { annotations });
  const request = { clusterId, clusterVersion: cluster?.meta?.version ?? null, spec };
  await ask(manager, UpdateCluster, UpdateClusterRequest.create(request));
}

test.serial("a follower explains and plans like the leader, and tasks move to a node that joins", async (t) => {
  t.timeout(patient(300_000));
  const { server } = await natsServer(t);
  const nats = server.url.replace("//", `//${server.user}:${server.pass}@`);
  const leader = await startManager(t, { nats });
  const follower = await startManager(t, { nats, join: leader });
  const { managerId } = await status(leader);
  await until("a follower to know its leader", async () => (await status(follower)).leaderId === managerId);
  const near = await startAgent(t, leader, { hostname: "near" });
  const update = UpdateConfig.create({ parallelism: 1, monitor: Duration.create({ seconds: 1 }) });
  const wanted = ServiceSpec.patch(sleepers("web", 4), { update });

  const planned = await ask(follower, PlanService, PlanServiceRequest.create({ spec: wanted }));
  t.like(planned, { created: 4, name: "web" });
  t.deepEqual(
    planned.nodes.map(({ after, name }) => [name, after]),
    [["near", 4]],
  );
  t.is((await tasks(leader)).length, 0, "a plan changes nothing");

  await createService(leader, wanted);
  await until("four running tasks", async () => (await runningTasks(follower)).length === 4);
  t.is(taskProcesses(near.dataDir).length, 4);
  const reasons = async (manager: TestManager, subject: string) =>
    (await ask(manager, Why, WhyRequest.create({ subject }))).reasons.map(({ waitingFor }) => waitingFor);
  t.deepEqual(await reasons(follower, "web"), ["nothing: 4 of 4 tasks run"]);
  t.deepEqual(await reasons(follower, "web"), await reasons(leader, "web"));
  await createService(leader, ServiceSpec.patch(sleepers("never", 1), { task: tooLarge(wanted) }));
  await until("the scheduler's explanation through the follower", async () =>
    (await reasons(follower, "never")).some((text) => /insufficient resources/.test(text)),
  );

  await switchOn(follower);
  const far = await startAgent(t, follower, { hostname: "far" });
  const dry = await ask(follower, PlanRebalance, PlanRebalanceRequest.create());
  t.not(dry.phase, "off");
  await until("two tasks on each node", async () => {
    const running = await runningTasks(follower);
    const settled = running.filter(({ desiredState }) => desiredState === TaskState.RUNNING);
    return settled.length === 4 && taskProcesses(far.dataDir).length === 2 && taskProcesses(near.dataDir).length === 2;
  });
  t.true((await reasons(follower, "web")).some((text) => text.startsWith("rebalancing (")));

  await leader.process.end("SIGKILL");
  // Between a leader's death and its successor's first duties.
  t.regex((await reasons(follower, "web")).join(), /^the leader: /);
  await until(
    "an answer from the new leader",
    async () => (await reasons(follower, "web"))[0] === "nothing: 4 of 4 tasks run",
  );
});
