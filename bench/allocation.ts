/** The cost of giving tasks their addresses, in isolation, at 1×, 10× and 100×. */
import { Allocation, type Plans } from "../machines/allocation/allocation.ts";
import {
  Annotations,
  Network,
  NetworkAttachmentConfig,
  NetworkSpec,
  Service,
  ServiceSpec,
  Task,
  TaskSpec,
  TaskState,
  TaskStatus,
  type NetworkAttachment,
} from "../proto/gen/messages.ts";

type Row = readonly [part: string, muster: string, peer: string];

/** As in actors/orchestration/allocator.ts. */
const roundTasks = 5_000;

/** Tasks of one service in one network with space for a million. */
export function allocating(tasks: number): Row {
  const networks = new Map<string, Network>();
  const services = new Map<string, Service>();
  const view = {
    network: (id: string) => networks.get(id),
    service: (id: string) => services.get(id),
    defaultPools: () => ({ pools: ["10.0.0.0/8"], length: 12 }),
    nodeCount: () => 1_000,
  };
  const allocation = new Allocation(view);
  const net = Network.create({
    id: "net",
    spec: NetworkSpec.create({ annotations: Annotations.create({ name: "net" }) }),
  });
  const decided = allocation.decideNetwork(net);
  if (decided.kind !== "network") throw new Error("the network was not allocated");
  networks.set("net", decided.network);
  allocation.followNetwork("net", decided.network);
  const spec = TaskSpec.create({ networks: [NetworkAttachmentConfig.create({ target: "net" })] });
  const service = Service.create({ id: "web", spec: ServiceSpec.create({ task: spec }) });
  const endpoint = allocation.decideEndpoint(service);
  if (endpoint.kind !== "endpoint") throw new Error("the service was not allocated");
  const stored = Service.patch(service, { endpoint: endpoint.endpoint });
  services.set("web", stored);
  allocation.followService("web", stored);

  const status = TaskStatus.create({ state: TaskState.NEW });
  const created = Array.from({ length: tasks }, (_, at) =>
    Task.create({ id: `task${at}`, serviceId: "web", spec, status, desiredState: TaskState.RUNNING }),
  );
  const given: (readonly NetworkAttachment[])[] = [];
  const giving = timed(() => {
    let plans: Plans = new Map();
    for (const [at, task] of created.entries()) {
      if (at % roundTasks === 0) plans = new Map();
      const decision = allocation.decideTask(task, plans);
      if (decision.kind !== "ready") throw new Error(`task ${task.id} was not allocated`);
      given.push(decision.networks);
    }
  });
  const written = created.map((task, at) =>
    Task.patch(task, { networks: given[at] ?? [], nodeId: `node${at % view.nodeCount()}` }),
  );
  const following = timed(() => written.forEach((task) => allocation.followTask(task.id, task)));
  const next = new Allocation(view);
  next.followNetwork("net", decided.network);
  const claiming = timed(() => written.forEach((task) => next.followTask(task.id, task)));
  const releasing = timed(() => written.forEach((task) => allocation.followTask(task.id, null)));
  const each = (ms: number): string => `${((ms / tasks) * 1_000).toFixed(1)} µs`;
  return [
    `allocator: an address for each of ${tasks} tasks`,
    `per task: allocate ${each(giving)}, follow ${each(following)}, release ${each(releasing)}; claim by the next leader ${each(claiming)}`,
    "",
  ];
}

/** CPU time of this process in milliseconds, which excludes other processes on the machine. */
function timed(work: () => void): number {
  const before = process.cpuUsage();
  work();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1_000;
}
