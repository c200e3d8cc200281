/** Network policy: the cost of a change for a manager that calculates for 100 nodes, and the memory that it needs. */
import { PolicyFeed } from "../machines/policy/feed.ts";
import { PolicyGraph } from "../machines/policy/graph.ts";
import type { NodeView } from "../machines/policy/node-view.ts";
import { encodePolicyObject, resourceNameOf } from "../machines/policy/objects.ts";
import {
  Annotations,
  Network,
  NetworkAttachment,
  NetworkPolicy,
  NetworkSpec,
  Node,
  NodeDescription,
  PolicyPeer,
  PolicyRule,
  PolicySelector,
  Resource,
  Service,
  ServiceSpec,
  Task,
  TaskState,
  TaskStatus,
} from "../proto/gen/messages.ts";
import { table } from "./table.ts";

const nodes = 100;

function serviceOf(at: number, zone = "a"): Service {
  const annotations = Annotations.create({ name: `s${at}`, labels: { app: `a${at}`, zone } });
  return Service.create({ id: `service${at}`, spec: ServiceSpec.create({ annotations }) });
}

const network = Network.create({
  id: "net",
  spec: NetworkSpec.create({ annotations: Annotations.create({ name: "net" }) }),
});

function taskOf(at: number, services: number): Task {
  const address = `10.${(at >> 16) & 255}.${(at >> 8) & 255}.${at & 255}/8`;
  return Task.create({
    id: `task${at}`,
    serviceId: `service${at % services}`,
    nodeId: `node${Math.floor(at / services) % nodes}`,
    slot: at,
    status: TaskStatus.create({ state: TaskState.RUNNING }),
    networks: [NetworkAttachment.create({ network, addresses: [address] })],
  });
}

/** Each service admits one other. */
function policyOf(at: number, services: number): Resource {
  const selector = PolicySelector.create({ text: `app == 'a${(at + 1) % services}'` });
  const object = NetworkPolicy.create({
    name: `p${at}`,
    selector: `app == 'a${at}'`,
    appliesIngress: true,
    ingress: [PolicyRule.create({ action: "allow", source: PolicyPeer.create({ selector }) })],
  });
  return Resource.create({
    id: `p${at}`,
    annotations: Annotations.create({ name: resourceNameOf("NetworkPolicy", object.name) }),
    kind: "NetworkPolicy",
    payload: encodePolicyObject({ kind: "NetworkPolicy", object }),
  });
}

function measure(times: number, work: (at: number) => void): { readonly p50: number; readonly p99: number } {
  const durations: number[] = [];
  for (let at = 0; at < times; at++) {
    const startedAt = performance.now();
    work(at);
    durations.push(performance.now() - startedAt);
  }
  durations.sort((a, b) => a - b);
  return { p50: durations[Math.floor(times * 0.5)] as number, p99: durations[Math.floor(times * 0.99)] as number };
}

function run(tasks: number, services: number, times: number): readonly (readonly string[])[] {
  const heapBefore = process.memoryUsage().heapUsed;
  const service = new Map(Array.from({ length: services }, (_, at) => [`service${at}`, serviceOf(at)]));
  const task = new Map(Array.from({ length: tasks }, (_, at) => [`task${at}`, taskOf(at, services)]));
  const node = new Map(
    Array.from({ length: nodes }, (_, at) => [
      `node${at}`,
      Node.create({ id: `node${at}`, description: NodeDescription.create({ hostname: `n${at}` }) }),
    ]),
  );
  const byService = Map.groupBy(task.values(), ({ serviceId }) => serviceId);
  const graph = new PolicyGraph();
  const feed = new PolicyFeed(graph, {
    task: (id) => task.get(id),
    service: (id) => service.get(id),
    node: (id) => node.get(id),
    nodes: () => node.values(),
    tasksByService: (id) => byService.get(id) ?? [],
    tasksByNode: () => [],
  });
  const dirty = new Set<NodeView>();
  const settle = (): void => {
    for (const view of dirty) view.take(1);
    dirty.clear();
  };
  const startedAt = performance.now();
  for (const each of node.values()) feed.nodeChanged(null, each);
  for (const each of service.values()) feed.serviceChanged(null, each);
  for (const each of task.values()) feed.taskChanged(null, each);
  for (let at = 0; at < services; at++) feed.resourceChanged(null, policyOf(at, services));
  for (const id of node.keys()) {
    const view: NodeView = graph.follow(id, () => dirty.add(view));
    dirty.add(view);
  }
  settle();
  const wholeMs = performance.now() - startedAt;
  const heapMb = (process.memoryUsage().heapUsed - heapBefore) / 2 ** 20;
  const comes = measure(times, (at) => {
    const fresh = taskOf(tasks + at, services);
    task.set(fresh.id, fresh);
    feed.taskChanged(null, fresh);
    settle();
  });
  const goes = measure(times, (at) => {
    const old = task.get(`task${tasks + at}`) as Task;
    task.delete(old.id);
    feed.taskChanged(old, null);
    settle();
  });
  const labelled = measure(Math.min(times, services), (at) => {
    const id = `service${at}`;
    const old = service.get(id) as Service;
    const fresh = serviceOf(at, "b");
    service.set(id, fresh);
    feed.serviceChanged(old, fresh);
    settle();
  });
  const changed = measure(Math.min(times, services), (at) => {
    feed.resourceChanged(policyOf(at, services), policyOf(at, services));
    settle();
  });
  const row = (what: string, { p50, p99 }: { readonly p50: number; readonly p99: number }): readonly string[] => [
    `${tasks} tasks, ${services} policies`,
    what,
    p50.toFixed(3),
    p99.toFixed(3),
  ];
  return [
    [`${tasks} tasks, ${services} policies`, `initial calculation (${heapMb.toFixed(0)} MB)`, wholeMs.toFixed(0), ""],
    row("task added", comes),
    row("task removed", goes),
    row(`label of a service with ${tasks / services} tasks changed`, labelled),
    row("rules of a policy changed", changed),
  ];
}

export function policyTable(short: boolean): Promise<string> {
  const [tasks, services, times] = short ? [2_000, 50, 100] : [10_000, 500, 200];
  const rows = run(tasks, services, times);
  const title = `Network policy: cost of a change for ${nodes} nodes, in milliseconds`;
  return Promise.resolve(table(title, ["load", "change", "p50", "p99"], rows));
}
