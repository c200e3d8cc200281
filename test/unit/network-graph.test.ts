import test from "ava";
import fc from "fast-check";
import { createNetworks } from "../../actors/networks.ts";
import { NetworkFollower } from "../../actors/agent/network-follower.ts";
import { networkLabels } from "../../machines/driver/labels.ts";
import { NetworkFeed } from "../../machines/networks/feed.ts";
import { NetworkGraph, type NetworkView } from "../../machines/networks/graph.ts";
import { networkPiecesOf } from "../../machines/networks/pieces.ts";
import { FollowedNetworks, type NetworksState } from "../../machines/networks/state.ts";
import {
  Annotations,
  EngineDescription,
  Endpoint,
  Endpoint_VirtualIP,
  Network,
  NetworkAttachment,
  NetworkAttachmentConfig,
  NetworksUpdate,
  NetworkSpec,
  Node,
  NodeDescription,
  NodeStatus,
  NodeStatus_State,
  Service,
  ServiceSpec,
  Task,
  TaskSpec,
  TaskState,
  TaskStatus,
  type NetworksFollowRequest,
} from "../../proto/gen/messages.ts";
import type { RpcChannel, RpcError } from "../../runtime/ports/rpc.ts";
import { testManager } from "../support/manager.ts";

const networkOf = (id: string): Network =>
  Network.create({ id, spec: NetworkSpec.create({ annotations: Annotations.create({ name: `name-${id}` }) }) });

interface TaskFields {
  readonly node: string;
  readonly networks: readonly string[];
  readonly service?: string;
  readonly state?: TaskState;
  readonly desired?: TaskState;
  readonly address?: number;
}

function taskOf(id: string, fields: TaskFields): Task {
  const {
    address = 1,
    desired = TaskState.RUNNING,
    networks,
    node,
    service = "web",
    state = TaskState.RUNNING,
  } = fields;
  return Task.create({
    id,
    slot: 1,
    serviceId: service,
    serviceAnnotations: Annotations.create({ name: service }),
    nodeId: node,
    desiredState: desired,
    status: TaskStatus.create({ state }),
    networks: networks.map((each, at) =>
      NetworkAttachment.create({
        network: networkOf(each),
        addresses: [`10.0.${at}.${address}/24`],
        aliases: ["front"],
      }),
    ),
  });
}

function serviceOf(id: string, networks: readonly string[], vip: number): Service {
  const configs = networks.map((target) => NetworkAttachmentConfig.create({ target, aliases: ["front"] }));
  return Service.create({
    id,
    spec: ServiceSpec.create({
      annotations: Annotations.create({ name: id }),
      task: TaskSpec.create({ networks: configs }),
    }),
    endpoint: Endpoint.create({
      virtualIps: networks.map((networkId) => Endpoint_VirtualIP.create({ networkId, addr: `10.0.9.${vip}/24` })),
    }),
  });
}

function nodeOf(id: string, addr: string, state: NodeStatus_State = NodeStatus_State.READY, tunnel = true): Node {
  const engine = EngineDescription.create({ labels: tunnel ? networkLabels(null) : {} });
  return Node.create({
    id,
    description: NodeDescription.create({ hostname: `host-${id}`, engine }),
    status: NodeStatus.create({ state, addr }),
  });
}

interface Cluster {
  readonly node: Map<string, Node>;
  readonly service: Map<string, Service>;
  readonly task: Map<string, Task>;
}

const find = (target: string): Network => networkOf(target);

function feedOf(graph: NetworkGraph, cluster: Cluster): NetworkFeed {
  const feed = new NetworkFeed(graph, find);
  for (const node of cluster.node.values()) feed.nodeChanged(null, node);
  for (const service of cluster.service.values()) feed.serviceChanged(null, service);
  for (const task of cluster.task.values()) feed.taskChanged(null, task);
  return feed;
}

function plain(state: NetworksState | null): unknown {
  const sorted = (map: ReadonlyMap<string, unknown> | undefined): unknown =>
    [...(map ?? [])]
      .toSorted(([a], [b]) => (a < b ? -1 : 1))
      .map(([, of]) => JSON.parse(JSON.stringify(of)) as unknown);
  return [sorted(state?.networks), sorted(state?.nodes), sorted(state?.services), sorted(state?.tasks)];
}

function takeAll(followed: FollowedNetworks, view: NetworkView): void {
  const update = view.take(1);
  if (update !== null) for (const piece of networkPiecesOf(update)) followed.take(piece);
}

const nodeIds = ["n1", "n2", "n3"] as const;
const networks = fc.subarray(["a", "b"]);
const step = fc.oneof(
  fc.record({
    table: fc.constant("task" as const),
    id: fc.constantFrom("t1", "t2", "t3", "t4"),
    object: fc.option(
      fc.record({
        node: fc.constantFrom(...nodeIds),
        networks,
        service: fc.constantFrom("web", "db"),
        state: fc.constantFrom(TaskState.NEW, TaskState.ASSIGNED, TaskState.RUNNING, TaskState.FAILED),
        desired: fc.constantFrom(TaskState.RUNNING, TaskState.SHUTDOWN),
        address: fc.nat(3),
      }),
      { freq: 4 },
    ),
  }),
  fc.record({
    table: fc.constant("service" as const),
    id: fc.constantFrom("web", "db"),
    object: fc.option(fc.record({ networks, vip: fc.nat(2) })),
  }),
  fc.record({
    table: fc.constant("node" as const),
    id: fc.constantFrom(...nodeIds),
    object: fc.option(
      fc.record({
        addr: fc.constantFrom("192.0.2.1", "192.0.2.2", ""),
        state: fc.constantFrom(NodeStatus_State.READY, NodeStatus_State.DOWN),
        tunnel: fc.boolean(),
      }),
    ),
  }),
);

test("NG2: incremental updates leave a node with its complete state, in any order of changes", (t) => {
  fc.assert(
    fc.property(fc.array(fc.tuple(step, fc.boolean()), { maxLength: 60 }), fc.nat(40), (history, followsAt) => {
      const cluster: Cluster = { node: new Map(), service: new Map(), task: new Map() };
      const graph = new NetworkGraph();
      const feed = feedOf(graph, cluster);
      const followers: { readonly followed: FollowedNetworks; readonly view: NetworkView }[] = [];
      const follower = (nodeId: string) =>
        followers.push({ followed: new FollowedNetworks(), view: graph.follow(nodeId, () => undefined) });
      const read = (): void => {
        for (const { followed, view } of followers) takeAll(followed, view);
      };
      follower("n1");
      for (const [at, [each, isRead]] of history.entries()) {
        if (at === followsAt) {
          follower("n2");
          follower("n1");
        }
        if (each.table === "task") {
          const now = each.object === null ? null : taskOf(each.id, each.object);
          feed.taskChanged(cluster.task.get(each.id) ?? null, now);
          if (now === null) cluster.task.delete(each.id);
          else cluster.task.set(each.id, now);
        } else if (each.table === "service") {
          const now = each.object === null ? null : serviceOf(each.id, each.object.networks, each.object.vip);
          feed.serviceChanged(cluster.service.get(each.id) ?? null, now);
          if (now === null) cluster.service.delete(each.id);
          else cluster.service.set(each.id, now);
        } else {
          const { object: of, id } = each;
          const now = of === null ? null : nodeOf(id, of.addr, of.state, of.tunnel);
          feed.nodeChanged(cluster.node.get(id) ?? null, now);
          if (now === null) cluster.node.delete(id);
          else cluster.node.set(id, now);
        }
        if (isRead) read();
      }
      read();
      for (const { followed, view } of followers) {
        const anew = new NetworkGraph();
        feedOf(anew, cluster);
        const expected = new FollowedNetworks();
        takeAll(
          expected,
          anew.follow(view.nodeId, () => undefined),
        );
        t.deepEqual(plain(followed.state), plain(expected.state), view.nodeId);
      }
    }),
    { numRuns: 300 },
  );
});

function told(...tasks: readonly Task[]): NetworksState {
  const graph = new NetworkGraph();
  feedOf(graph, {
    node: new Map(nodeIds.map((id) => [id, nodeOf(id, `192.0.2.${id.slice(1)}`)])),
    service: new Map([["web", serviceOf("web", ["a", "b"], 1)]]),
    task: new Map(tasks.map((task) => [task.id, task])),
  });
  const followed = new FollowedNetworks();
  takeAll(
    followed,
    graph.follow("n1", () => undefined),
  );
  return followed.state as NetworksState;
}

test("NG1: a node gets the networks of its own tasks, and their members", (t) => {
  const state = told(
    taskOf("t1", { node: "n1", networks: ["a"] }),
    taskOf("t2", { node: "n2", networks: ["a", "b"], address: 2 }),
    taskOf("t3", { node: "n3", networks: ["b"], address: 3 }),
  );
  t.deepEqual([...state.networks.keys()], ["a"]);
  t.deepEqual([...state.nodes.keys()], ["n1", "n2"]);
  t.deepEqual([...state.services.keys()], ["web/a"]);
  t.deepEqual([...state.tasks.keys()].toSorted(), ["t1/a", "t2/a"]);
  const task = state.tasks.get("t2/a");
  t.deepEqual([task?.addresses, task?.name, task?.nodeId, task?.ready], [["10.0.0.2"], "web.1.t2", "n2", true]);
  const service = state.services.get("web/a");
  t.deepEqual([service?.virtualAddress, service?.aliases, service?.name], ["10.0.9.1", ["front"], "web"]);
  t.deepEqual(task?.aliases, [], "the service's aliases apply to all of its tasks");
  const node = state.nodes.get("n2");
  t.deepEqual([node?.address, node?.hasTunnel, node?.name, node?.port], ["192.0.2.2", true, "host-n2", 4789]);
});

test("an ended task is in no network; one that is stopping, or has not started, is present but not ready", (t) => {
  const of = (id: string, state: TaskState, desired: TaskState = TaskState.RUNNING): Task =>
    taskOf(id, { node: "n1", networks: ["a"], state, desired });
  const state = told(
    of("begins", TaskState.STARTING),
    of("runs", TaskState.RUNNING),
    of("ends", TaskState.RUNNING, TaskState.SHUTDOWN),
    of("ended", TaskState.COMPLETE),
  );
  const ready = [...state.tasks.values()].map((task) => [task.taskId, task.ready]);
  t.deepEqual(ready, [
    ["begins", false],
    ["runs", true],
    ["ends", false],
  ]);
});

test("a node has a tunnel while it reports one and does not count as lost", (t) => {
  const graph = new NetworkGraph();
  const feed = new NetworkFeed(graph, find);
  feed.taskChanged(null, taskOf("t1", { node: "n1", networks: ["a"] }));
  const followed = new FollowedNetworks();
  const view = graph.follow("n1", () => undefined);
  const after = (old: Node | null, now: Node | null): readonly (string | boolean | undefined)[] => {
    feed.nodeChanged(old, now);
    takeAll(followed, view);
    const node = followed.state?.nodes.get("n1");
    return [node?.hasTunnel, node?.address];
  };
  const up = nodeOf("n1", "192.0.2.1");
  t.deepEqual(after(null, up), [true, "192.0.2.1"]);
  const unknown = nodeOf("n1", "192.0.2.1", NodeStatus_State.UNKNOWN);
  t.deepEqual(after(up, unknown), [true, "192.0.2.1"]);
  const down = nodeOf("n1", "192.0.2.1", NodeStatus_State.DOWN);
  t.deepEqual(after(unknown, down), [false, "192.0.2.1"]);
  const engine = nodeOf("n1", "192.0.2.1", NodeStatus_State.READY, false);
  t.deepEqual(after(down, engine), [false, "192.0.2.1"]);
  const description = NodeDescription.create({
    engine: EngineDescription.create({ labels: networkLabels(null, "198.51.100.7") }),
  });
  t.deepEqual(after(engine, Node.patch(up, { description })), [true, "198.51.100.7"]);
  t.deepEqual(after(up, null), [undefined, undefined]);
});

test("a large update is sent in pieces, and applies once all have arrived", (t) => {
  const tasks = Array.from({ length: 1_200 }, (_, at) => taskOf(`t${at}`, { node: "n1", networks: ["a"] }));
  const graph = new NetworkGraph();
  feedOf(graph, { node: new Map(), service: new Map(), task: new Map(tasks.map((task) => [task.id, task])) });
  const update = graph.follow("n1", () => undefined).take(7) as NetworksUpdate;
  const pieces = networkPiecesOf(update);
  t.true(pieces.every((piece) => NetworksUpdate.encode(piece).length < 256 * 1024));
  const followed = new FollowedNetworks();
  const changes = pieces.map((piece) => followed.take(piece));
  t.deepEqual(changes.indexOf(true), pieces.length - 1);
  t.is(followed.state?.tasks.size, 1_200);
  t.is(followed.version, 7);
});

test("NS1, NF1: an agent keeps its state when the stream breaks, until another complete one has arrived", (t) => {
  const manager = testManager();
  manager.seed("node", nodeOf("n1", "192.0.2.1"), nodeOf("n2", "192.0.2.2"));
  manager.seed("network", networkOf("a"));
  manager.seed("service", serviceOf("web", ["name-a"], 1));
  const tasks = [
    taskOf("t1", { node: "n1", networks: ["a"] }),
    taskOf("t2", { node: "n2", networks: ["a"], address: 2 }),
  ];
  manager.seed("task", ...tasks);
  const networksActor = createNetworks(manager.env, () => true);
  let cut = (): void => undefined;
  const channel = {
    serverStream: (
      _: unknown,
      request: NetworksFollowRequest,
      on: { onMessage(piece: NetworksUpdate): void; onEnd(error: RpcError | null): void },
    ) => {
      const abort = new AbortController();
      cut = () => {
        abort.abort();
        on.onEnd(null);
      };
      const write = (piece: NetworksUpdate): void => on.onMessage(NetworksUpdate.decode(NetworksUpdate.encode(piece)));
      const peer = { identity: { nodeId: "n1", role: "swarm-worker", organization: "c" }, local: false, address: "" };
      networksActor.handlers.Follow(
        request,
        { write, end: () => on.onEnd(null), bufferedBytes: () => 0 } as never,
        { peer, signal: abort.signal } as never,
      );
      return { cancel: () => abort.abort() };
    },
  } as unknown as RpcChannel;
  const follower = new NetworkFollower(manager.env, "n1");
  const seen: number[] = [];
  follower.onChange(({ tasks: of }) => seen.push(of.size));
  t.is(follower.state, null);
  const session = follower.attach(channel, () => t.fail());
  t.deepEqual([...(follower.state?.tasks.keys() ?? [])], ["t1/a", "t2/a"]);
  t.is(follower.state?.services.get("web/a")?.virtualAddress, "", "its address is in no network of that id");
  manager.drop("task", "t2");
  manager.clock.advance(20);
  t.deepEqual(seen, [2, 1]);
  cut();
  t.is(follower.state?.tasks.size, 1);
  manager.seed("task", ...tasks);
  manager.clock.advance(10_000);
  t.is(follower.state?.tasks.size, 2);
  session.cancel();
  manager.drop("task", "t2");
  manager.clock.advance(10_000);
  t.is(follower.state?.tasks.size, 2);
  follower.stop();
  networksActor.stop();
});
