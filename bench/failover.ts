/** How long a cluster does without a lost part: a killed worker, a paused worker, its killed leader. Default settings. */
import {
  Annotations,
  Any,
  ControlService,
  CreateServiceRequest,
  ExecSpec,
  GenericRuntimeSpec,
  GetServiceRequest,
  ListNodesRequest,
  ListTasksRequest,
  NodeStatus_State,
  OperatorService,
  ReplicatedService,
  ServiceSpec,
  StatusRequest,
  TaskSpec,
  TaskState,
  UpdateServiceRequest,
  type Node,
  type Task,
} from "../proto/gen/messages.ts";
import { Cluster, kill, type Manager } from "./cluster.ts";
import { until } from "./peers.ts";
import { seconds, table } from "./table.ts";

const { CreateService, GetService, ListNodes, ListTasks, UpdateService } = ControlService.methods;
const blipMs = 3_000;
/** SwarmKit 20.10 on a 2-core machine (issue 2, "How fast"); not measured again here. */
const peer = {
  down: "12.7 s (measured earlier)",
  elsewhere: "20-24 s (measured earlier)",
  nextWrite: "9-28 s (measured earlier)",
} as const;

type Row = readonly [measurement: string, muster: string, wanted: string, peer: string];

function sleepers(replicas: number): ServiceSpec {
  const exec = ExecSpec.create({ command: "sleep", args: ["600"] });
  const payload = Any.create({ type_url: "type.muster.dev/muster.v1.ExecSpec", value: ExecSpec.encode(exec) });
  return ServiceSpec.create({
    annotations: Annotations.create({ name: "web" }),
    task: TaskSpec.create({ generic: GenericRuntimeSpec.create({ kind: "exec", payload }) }),
    replicated: ReplicatedService.create({ replicas }),
  });
}

async function tasksOf(manager: Manager): Promise<readonly Task[]> {
  return (await manager.ask(ListTasks, ListTasksRequest.create())).tasks;
}

async function runningTasks(manager: Manager): Promise<readonly Task[]> {
  return (await tasksOf(manager)).filter(
    ({ desiredState, status }) => desiredState === TaskState.RUNNING && status?.state === TaskState.RUNNING,
  );
}

async function nodeCalled(manager: Manager, hostname: string): Promise<Node> {
  const { nodes } = await manager.ask(ListNodes, ListNodesRequest.create());
  const found = nodes.find(({ description }) => description?.hostname === hostname);
  if (found === undefined) throw new Error(`unknown node ${hostname}`);
  return found;
}

/** Runs `work` in a new cluster. */
async function inCluster<Result>(work: (cluster: Cluster) => Promise<Result>): Promise<Result> {
  const cluster = new Cluster();
  try {
    return await work(cluster);
  } finally {
    await cluster.end();
  }
}

async function run(manager: Manager, replicas: number): Promise<string> {
  const { service } = await manager.ask(CreateService, CreateServiceRequest.create({ spec: sleepers(replicas) }));
  if (service === null) throw new Error("no service in the answer");
  await until(`${replicas} running tasks`, async () => (await runningTasks(manager)).length === replicas);
  return service.id;
}

function stopwatch(): () => number {
  const startedAt = performance.now();
  return () => (performance.now() - startedAt) / 1_000;
}

/** The pause comes before the kill, so one cluster shows both. */
async function workerLoss(replicas: number): Promise<Row[]> {
  return await inCluster(async (cluster) => {
    const manager = await cluster.manager();
    const lost = await cluster.agent(manager, "lost");
    await cluster.agent(manager, "kept");
    await run(manager, replicas);
    const kept = await nodeCalled(manager, "kept");

    const before = new Set((await runningTasks(manager)).map(({ id }) => id));
    lost.process.child.kill("SIGSTOP");
    await new Promise((resolve) => setTimeout(resolve, blipMs));
    lost.process.child.kill("SIGCONT");
    // As long again, to catch tasks that would be replaced late.
    await new Promise((resolve) => setTimeout(resolve, blipMs));
    const moved = (await tasksOf(manager)).filter(({ id }) => !before.has(id)).length;

    const tasks = lost.taskPids();
    if (tasks.length === 0) throw new Error("no task runs on the agent chosen for the kill");
    const elapsed = stopwatch();
    await lost.process.end("SIGKILL");
    for (const pid of tasks) kill(pid);
    await until("DOWN", async () => (await nodeCalled(manager, "lost")).status?.state === NodeStatus_State.DOWN);
    const down = elapsed();
    await until("the tasks on the other node", async () => {
      const running = await runningTasks(manager);
      return running.length === replicas && running.every(({ nodeId }) => nodeId === kept.id);
    });
    const elsewhere = elapsed();
    return [
      ["worker killed: marked DOWN after", seconds(down), "", peer.down],
      [`worker killed: its ${tasks.length} tasks run elsewhere after`, seconds(elsewhere), "8 s", peer.elsewhere],
      [`worker paused for ${blipMs / 1_000} s: tasks moved`, String(moved), "0", ""],
    ];
  });
}

async function leaderLoss(replicas: number): Promise<Row[]> {
  return await inCluster(async (cluster) => {
    const nats = await cluster.nats();
    const leader = await cluster.manager(nats);
    const follower = await cluster.manager(nats, leader);
    await cluster.agent(leader, "near");
    const far = await cluster.agent(follower, "far");
    const status = async (manager: Manager) =>
      await manager.ask(OperatorService.methods.Status, StatusRequest.create());
    const { managerId } = await status(leader);
    await until("the follower's leader", async () => (await status(follower)).leaderId === managerId);
    const serviceId = await run(leader, replicas);
    const sessionsBefore = far.sessions().length;

    const elapsed = stopwatch();
    await leader.process.end("SIGKILL");
    const write = async (): Promise<boolean> => {
      const { service } = await follower.ask(GetService, GetServiceRequest.create({ serviceId }));
      if (service === null || service.spec === null) return false;
      const annotations = Annotations.create({ name: "web", labels: { written: "after" } });
      const spec = ServiceSpec.patch(service.spec, { annotations });
      const request = UpdateServiceRequest.create({ serviceId, serviceVersion: service.meta?.version ?? null, spec });
      await follower.ask(UpdateService, request);
      return true;
    };
    await until("an accepted write", () => write().catch(() => false), 60_000);
    const nextWrite = elapsed();
    // Until the killed manager's node is here too: by then any node that would register again has done so.
    await until("both nodes at the surviving manager", async () => (await status(follower)).sessions === 2);
    const registrations = far.sessions().length - sessionsBefore;
    return [
      ["leader killed: next write accepted after", seconds(nextWrite), "6 s", peer.nextWrite],
      ["leader killed: sessions of the other manager that registered again", String(registrations), "0", ""],
    ];
  });
}

export async function failoverTable(short: boolean): Promise<string> {
  const replicas = short ? 4 : 20;
  const rows = [...(await workerLoss(replicas)), ...(await leaderLoss(replicas))];
  return table("Failover: default settings, one run", ["event", "muster", "target (max)", "dockerd 20.10"], rows);
}
