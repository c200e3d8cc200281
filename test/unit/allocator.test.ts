// What networks, services, nodes and tasks are given by a leader.
import test from "ava";
import { Allocation } from "../../machines/allocation/allocation.ts";
import { dynamicPorts } from "../../machines/allocation/ports.ts";
import { ingressNetwork } from "../../machines/new-networks.ts";
import {
  Annotations,
  Driver,
  type Endpoint,
  EndpointSpec,
  EndpointSpec_ResolutionMode,
  EngineDescription,
  Network,
  NetworkAttachmentConfig,
  NetworkSpec,
  type Node,
  NodeDescription,
  PluginDescription,
  PortConfig,
  PortConfig_Protocol,
  PortConfig_PublishMode,
  Service,
  ServiceSpec,
  type Task,
  TaskState,
} from "../../proto/gen/messages.ts";
import { testCluster, type TestCluster } from "../support/cluster.ts";

function port(targetPort: number, publishedPort = 0, fields: Partial<PortConfig> = {}): PortConfig {
  return PortConfig.create({ targetPort, publishedPort, publishMode: PortConfig_PublishMode.INGRESS, ...fields });
}

function service(id: string, ports: readonly PortConfig[], endpoint: Endpoint | null = null): Service {
  const spec = EndpointSpec.create({ ports, mode: EndpointSpec_ResolutionMode.DNSRR });
  return Service.create({ id, endpoint, spec: ServiceSpec.create({ endpoint: spec }) });
}

function emptyAllocation(): Allocation {
  return new Allocation({
    network: () => undefined,
    service: () => undefined,
    defaultPools: () => ({ pools: ["10.0.0.0/8"], length: 24 }),
  });
}

function published(decision: ReturnType<Allocation["decideEndpoint"]>): readonly number[] | string {
  if (decision.kind === "endpoint") return decision.endpoint.ports.map(({ publishedPort }) => publishedPort);
  return decision.kind === "blocked" ? decision.reason : decision.kind;
}

/** As the allocator does: decides, and follows what is stored. */
function allocate(allocation: Allocation, wanted: Service): Service {
  const decision = allocation.decideEndpoint(wanted);
  if (decision.kind !== "endpoint") return wanted;
  const stored = Service.patch(wanted, { endpoint: decision.endpoint });
  allocation.followService(wanted.id, stored);
  return stored;
}

test("ports that nobody chose come one after the other from the dynamic range, for each protocol", (t) => {
  const ports = emptyAllocation();
  const web = allocate(
    ports,
    service("web", [port(80), port(443), port(53, 0, { protocol: PortConfig_Protocol.UDP })]),
  );
  t.deepEqual(
    web.endpoint?.ports.map(({ publishedPort }) => publishedPort),
    [30_000, 30_001, 30_000],
  );
  t.is(ports.decideEndpoint(web).kind, "allocated");
  ports.followService("web", null);
  const api = allocate(ports, service("api", [port(80)]));
  t.is(api.endpoint?.ports[0]?.publishedPort, 30_002, "not the one just freed");
});

test("a dynamic port stays when the spec changes around it, and goes with its target", (t) => {
  const ports = emptyAllocation();
  const web = allocate(ports, service("web", [port(80)]));
  const more = Service.patch(web, { spec: service("web", [port(80), port(81)]).spec });
  t.deepEqual(published(ports.decideEndpoint(more)), [30_000, 30_001]);
  const other = Service.patch(web, { spec: service("web", [port(8080)]).spec });
  ports.followService("web", web);
  t.deepEqual(published(ports.decideEndpoint(other)), [30_002]);
  const none = Service.patch(web, { spec: service("web", []).spec });
  t.deepEqual(published(ports.decideEndpoint(none)), []);
});

test("a port of another service is refused with its owner, and given once that has gone", (t) => {
  const ports = emptyAllocation();
  allocate(ports, service("web", [port(80, 8080)]));
  const rival = service("api", [port(80, 8080)]);
  t.is(published(ports.decideEndpoint(rival)), "port 8080 is already published by service web");
  ports.followService("web", null);
  t.deepEqual(published(ports.decideEndpoint(rival)), [8080]);
});

test("when the range is used up the reason says so", (t) => {
  const ports = emptyAllocation();
  const all = Array.from({ length: dynamicPorts.last - dynamicPorts.first + 1 }, (_, at) => port(at + 1));
  allocate(ports, service("all", all));
  t.is(published(ports.decideEndpoint(service("web", [port(80)]))), "no port between 30000 and 32767 is free");
});

test("ports on the node itself are nobody else's business", (t) => {
  const ports = emptyAllocation();
  const host = { publishMode: PortConfig_PublishMode.HOST };
  t.deepEqual(published(ports.decideEndpoint(service("a", [port(80, 8080, host)]))), [8080]);
  t.deepEqual(published(ports.decideEndpoint(service("b", [port(80, 0, host)]))), [0]);
});

function network(id: string, fields: Partial<NetworkSpec> = {}): Network {
  return Network.create({ id, spec: NetworkSpec.create({ annotations: Annotations.create({ name: id }), ...fields }) });
}

function on(...targets: string[]): { readonly networks: readonly NetworkAttachmentConfig[] } {
  return { networks: targets.map((target) => NetworkAttachmentConfig.create({ target })) };
}

/** A cluster with an ingress network, before its first node. */
async function networkedCluster(nodes: readonly string[], ...networks: Network[]): Promise<TestCluster> {
  const cluster = await testCluster([]);
  for (const each of [ingressNetwork("ingress"), ...networks]) cluster.seed("network", each);
  await cluster.run();
  for (const id of nodes) await cluster.addNode(id, { description: engine });
  return cluster;
}

const engine = NodeDescription.create({
  hostname: "engine",
  engine: EngineDescription.create({
    plugins: [
      PluginDescription.create({ type: "Driver", name: "exec" }),
      PluginDescription.create({ type: "Network", name: "overlay" }),
      PluginDescription.create({ type: "Network", name: "host" }),
    ],
  }),
});

function addressesOf(tasks: readonly Task[]): readonly (readonly string[])[] {
  return tasks.map((task) => task.networks.flatMap(({ addresses }) => addresses));
}

function attachmentsOf(node: Node | undefined): readonly string[] {
  return (node?.attachments ?? []).map((one) => `${one.network?.id} ${one.addresses.join(" ")}`);
}

test("the ingress network and one overlay get what a stock manager gives them", async (t) => {
  const cluster = await networkedCluster(["n1"], network("net", { driverConfig: Driver.create({ name: "overlay" }) }));
  const picture = (id: string): object => {
    const { driverState, ipam } = cluster.store.get("network", id)!;
    return {
      driver: driverState?.name,
      options: driverState?.options,
      ipam: ipam?.driver?.name,
      configs: ipam?.configs.map((config) => [config.family, config.subnet, config.gateway]),
    };
  };
  t.deepEqual(picture("ingress"), {
    driver: "overlay",
    options: { "com.docker.network.driver.overlay.vxlanid_list": "4096" },
    ipam: "default",
    configs: [[4, "10.0.0.0/24", "10.0.0.1"]],
  });
  t.deepEqual(picture("net"), {
    driver: "overlay",
    options: { "com.docker.network.driver.overlay.vxlanid_list": "4097" },
    ipam: "default",
    configs: [[4, "10.0.1.0/24", "10.0.1.1"]],
  });
  t.deepEqual(attachmentsOf(cluster.store.get("node", "n1")), ["ingress 10.0.0.2/24"]);
});

test("a service gets a virtual IP in each network and its tasks an address in each, the ingress network first", async (t) => {
  const cluster = await networkedCluster(["n1"], network("net"));
  await cluster.addService("web", 2, on("net"), { endpoint: EndpointSpec.create({ ports: [port(80, 8080)] }) });
  const web = cluster.store.get("service", "web");
  t.deepEqual(
    web?.endpoint?.virtualIps.map(({ networkId, addr }) => `${networkId} ${addr}`),
    ["ingress 10.0.0.3/24", "net 10.0.1.2/24"],
  );
  t.deepEqual(addressesOf(cluster.tasks()), [
    ["10.0.0.4/24", "10.0.1.3/24"],
    ["10.0.0.5/24", "10.0.1.4/24"],
  ]);
  t.deepEqual(cluster.tasks()[0]?.endpoint, web?.endpoint);
  t.deepEqual(attachmentsOf(cluster.store.get("node", "n1")), ["ingress 10.0.0.2/24", "net 10.0.1.5/24"]);
  await cluster.removeService("web");
  await cluster.run(1_000);
  t.deepEqual(attachmentsOf(cluster.store.get("node", "n1")), ["ingress 10.0.0.2/24"]);
});

test("a task that cannot go on says why, once, and goes on when it can", async (t) => {
  const cluster = await networkedCluster(["n1"]);
  await cluster.addService("web", 2, { networks: [NetworkAttachmentConfig.create({ target: "net" })] });
  const [task] = cluster.tasks();
  t.is(task?.status?.state, TaskState.NEW);
  t.is(task?.status?.err, "network net does not exist");
  t.is(cluster.orchestration.explainTask(task!)[0]?.waitingFor, "network net does not exist");
  const version = cluster.store.version;
  await cluster.changeNode("n1", {});
  t.is(cluster.store.version, version + 1, "nothing is said again");
  cluster.seed(
    "network",
    Network.create({
      id: "net",
      spec: NetworkSpec.create({
        annotations: Annotations.create({ name: "net" }),
        driverConfig: Driver.create({ name: "host" }),
      }),
    }),
  );
  await cluster.run();
  t.deepEqual(cluster.picture(), ["1:RUNNING@n1", "2:RUNNING@n1"]);
  t.is(cluster.tasks()[0]?.status?.err, "");
});

test("a service's tasks carry the ports that were allocated, and a removed service frees them", async (t) => {
  const cluster = await networkedCluster(["n1"]);
  const endpoint = EndpointSpec.create({ ports: [port(80, 8080)] });
  await cluster.addService("web", 1, {}, { endpoint });
  t.deepEqual(
    cluster.store.get("service", "web")?.endpoint?.ports.map(({ publishedPort }) => publishedPort),
    [8080],
  );
  t.is(cluster.tasks()[0]?.endpoint?.ports[0]?.publishedPort, 8080);
  await cluster.addService("api", 1, {}, { endpoint });
  t.is(cluster.tasks("api")[0]?.status?.err, "port 8080 is already published by service web");
  await cluster.removeService("web");
  t.deepEqual(cluster.picture("api"), ["1:RUNNING@n1"]);
});

test("changed ports replace the tasks that have the old ones", async (t) => {
  const cluster = await networkedCluster(["n1"]);
  await cluster.addService("web", 2, {}, { endpoint: EndpointSpec.create({ ports: [port(80, 8080)] }) });
  await cluster.updateService("web", (spec) =>
    ServiceSpec.patch(spec, { endpoint: EndpointSpec.create({ ports: [port(80, 9090)] }) }),
  );
  await cluster.run(1_000);
  const wanted = cluster.tasks().filter((task) => task.desiredState === TaskState.RUNNING);
  t.deepEqual(
    wanted.map((task) => task.endpoint?.ports[0]?.publishedPort),
    [9090, 9090],
  );
  t.true(wanted.every((task) => task.status?.state === TaskState.RUNNING));
});
