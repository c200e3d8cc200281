// Reports on a global service in progress: counts, reasons and progress.
import test from "ava";
import { convergence } from "../../cli/convergence.ts";
import { countTasks } from "../../machines/orchestration/service-status.ts";
import {
  Annotations,
  GlobalService,
  NodeDescription,
  NodeSpec,
  NodeSpec_Availability,
  NodeStatus,
  NodeStatus_State,
  Placement,
  Platform,
  ServiceSpec,
  TaskSpec,
  TaskState,
  type Reason,
  type Service,
  type Task,
} from "../../proto/gen/messages.ts";
import { testCluster, type TestCluster } from "../support/cluster.ts";

const { ACTIVE, DRAIN, PAUSE } = NodeSpec_Availability;
const global: Partial<ServiceSpec> = { replicated: null, global: GlobalService.create({}) };
const placement = Placement.create({
  constraints: ["node.labels.zone==a"],
  platforms: [Platform.create({ os: "linux" })],
});

function nodeSpec(availability: NodeSpec_Availability, zone = "a"): NodeSpec {
  return NodeSpec.create({ annotations: Annotations.create({ labels: { zone } }), availability });
}

/** Five nodes: two that run a task, one that cannot, one that does not match, one that is drained. */
async function mixedCluster(): Promise<TestCluster> {
  const nodes = ["n1", "n2", "windows", "elsewhere", "drained"];
  const cluster = await testCluster(nodes);
  for (const id of nodes) {
    const description = cluster.store.get("node", id)?.description ?? NodeDescription.create({});
    const platform = Platform.create({ architecture: "x86_64", os: id === "windows" ? "windows" : "linux" });
    await cluster.changeNode(id, {
      description: NodeDescription.patch(description, { platform }),
      spec: nodeSpec(id === "drained" ? DRAIN : ACTIVE, id === "elsewhere" ? "b" : "a"),
    });
  }
  await cluster.addService("web", 0, { placement }, global);
  return cluster;
}

function counts(cluster: TestCluster): readonly [number, number] {
  const service = cluster.store.get("service", "web") as Service;
  const { desired, running } = countTasks(service, cluster.tasks(), (id) => cluster.store.get("node", id));
  return [running, desired];
}

function told(reasons: readonly Reason[]): readonly string[] {
  return reasons.map(({ waitingFor }) => waitingFor);
}

function judge(cluster: TestCluster): ReturnType<typeof convergence> {
  const service = cluster.store.get("service", "web") as Service;
  return convergence(service, cluster.tasks(), cluster.store.all("node"), false);
}

test("a service names the nodes without a task and why, and those whose task waits", async (t) => {
  const cluster = await mixedCluster();
  const [head, late, ...others] = cluster.orchestration.explainService("web");
  t.is(head?.waitingFor, "tasks: 2 of 3 nodes run a task");
  t.deepEqual(head?.tried, ["node host-elsewhere: does not meet node.labels.zone==a", "node host-drained: is drained"]);
  t.regex(late?.waitingFor ?? "", /unsupported platform on 1 node.* \(node host-windows\)$/);
  t.deepEqual(late?.tried, ["node host-windows: runs windows/x86_64"]);
  t.deepEqual(others, []);
});

test("nodes that wait for the same thing are grouped, and paused and lost ones are named", async (t) => {
  const cluster = await testCluster(["n1", "n2", "n3"]);
  await cluster.changeNode("n3", { spec: nodeSpec(PAUSE) });
  cluster.alive.clear();
  await cluster.addService("web", 0, {}, global);
  const [head, ...late] = cluster.orchestration.explainService("web");
  t.is(head?.waitingFor, "tasks: 0 of 2 nodes run a task");
  t.deepEqual(head?.tried, ["node host-n3: is paused, and gets no task until it is active"]);
  t.deepEqual(late.length, 1);
  t.regex(late[0]?.waitingFor ?? "", /\(nodes host-n1, host-n2\)$/);
  await cluster.killNode("n1");
  await cluster.killNode("n2");
  t.deepEqual(told(cluster.orchestration.explainService("web")), ["an eligible node: there is none"]);
});

test("a service whose task runs on every node waits for nothing", async (t) => {
  const cluster = await testCluster(["n1", "n2"]);
  await cluster.addService("web", 0, {}, global);
  t.deepEqual(told(cluster.orchestration.explainService("web")), ["nothing: 2 of 2 nodes run a task"]);
});

test("nodes are counted, also while a task waits for its turn and when a node is lost", async (t) => {
  const cluster = await mixedCluster();
  t.deepEqual(counts(cluster), [2, 3]);
  const [task] = cluster.tasks().filter(({ nodeId }) => nodeId === "n1") as [Task];
  await cluster.report(task, TaskState.FAILED);
  t.deepEqual(counts(cluster), [1, 3], "its successor waits for the restart delay");
  await cluster.run(6_000);
  t.deepEqual(counts(cluster), [2, 3]);
  cluster.orchestration.stop();
  await cluster.changeNode("n2", { status: NodeStatus.create({ state: NodeStatus_State.DOWN }) });
  t.deepEqual(counts(cluster), [1, 3], "nobody knows whether it still runs");
});

test("progress counts the service's matching nodes, and names the one that blocks it", async (t) => {
  const cluster = await mixedCluster();
  t.deepEqual(judge(cluster), {
    kind: "moving",
    done: 2,
    wanted: 3,
    remark: "unsupported platform on 1 node (host-windows: runs windows/x86_64)",
  });
  await cluster.changeNode("windows", { spec: nodeSpec(DRAIN) });
  await cluster.run();
  t.is(judge(cluster).kind, "converged");
});

test("progress starts before the first task exists, and a paused node blocks nobody", async (t) => {
  const cluster = await mixedCluster();
  const service = cluster.store.get("service", "web") as Service;
  t.like(convergence(service, [], cluster.store.all("node"), false), { kind: "moving", done: 0, wanted: 3 });
  await cluster.changeNode("windows", { spec: nodeSpec(DRAIN) });
  await cluster.changeNode("n2", { spec: nodeSpec(PAUSE) });
  await cluster.updateService("web", (spec) =>
    ServiceSpec.patch(spec, { task: TaskSpec.patch(spec.task as TaskSpec, { forceUpdate: 1 }) }),
  );
  await cluster.run(30_000);
  t.is(cluster.tasks().findLast(({ nodeId }) => nodeId === "n2")?.spec?.forceUpdate, 0);
  t.is(judge(cluster).kind, "converged");
});
