// A leader's allocations to networks, services, nodes and tasks.
import test from "ava";
import { Allocation } from "../../machines/allocation/allocation.ts";
import { causes } from "../../machines/allocation/waiting.ts";
import { dynamicPorts } from "../../machines/allocation/ports.ts";
import { explainNetwork, explainNodeNetworks } from "../../machines/explain/network.ts";
import { ingressNetwork } from "../../machines/allocation/new-networks.ts";
import { isHeld } from "../../machines/task.ts";
import {
  Annotations,
  ContainerSpec,
  Driver,
  type Endpoint,
  EndpointSpec,
  EndpointSpec_ResolutionMode,
  EngineDescription,
  GlobalService,
  IPAMConfig,
  IPAMOptions,
  Kind,
  Network,
  NetworkAttachmentConfig,
  NetworkSpec,
  type Node,
  NodeDescription,
  Operation,
  Placement,
  PluginDescription,
  PortConfig,
  PortConfig_Protocol,
  PortConfig_PublishMode,
  Removal,
  ReplicatedService,
  Service,
  ServiceSpec,
  type Task,
  TaskSpec,
  TaskState,
  Version,
} from "../../proto/gen/messages.ts";
import { execSpec, testCluster, type TestCluster } from "../support/cluster.ts";

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
    nodeCount: () => 0,
  });
}

function published(decision: ReturnType<Allocation["decideEndpoint"]>): readonly number[] | string {
  if (decision.kind === "endpoint") return decision.endpoint.ports.map(({ publishedPort }) => publishedPort);
  return decision.kind === "blocked" ? decision.reason : decision.kind;
}

/** As the allocator does: decides, and follows the store. */
function allocate(allocation: Allocation, wanted: Service): Service {
  const decision = allocation.decideEndpoint(wanted);
  if (decision.kind !== "endpoint") return wanted;
  const stored = Service.patch(wanted, { endpoint: decision.endpoint });
  allocation.followService(wanted.id, stored);
  return stored;
}

test("unrequested ports are assigned in sequence from the dynamic range, for each protocol", (t) => {
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

test("a port of another service is rejected with its owner, and allocated once that is removed", (t) => {
  const ports = emptyAllocation();
  allocate(ports, service("web", [port(80, 8080)]));
  const rival = service("api", [port(80, 8080)]);
  t.is(published(ports.decideEndpoint(rival)), "port 8080 is already published by service web");
  ports.followService("web", null);
  t.deepEqual(published(ports.decideEndpoint(rival)), [8080]);
});

test("when the range is exhausted the reason says so", (t) => {
  const ports = emptyAllocation();
  const all = Array.from({ length: dynamicPorts.last - dynamicPorts.first + 1 }, (_, at) => port(at + 1));
  allocate(ports, service("all", all));
  t.is(published(ports.decideEndpoint(service("web", [port(80)]))), "no port between 30000 and 32767 is free");
});

test("a port that some service publishes in host mode is not assigned to a service that requests any, until it is free", (t) => {
  const ports = emptyAllocation();
  const host = { publishMode: PortConfig_PublishMode.HOST };
  allocate(ports, service("a", [port(80, 30_000, host)]));
  allocate(ports, service("b", [port(80, 30_000, host)]));
  t.deepEqual(published(ports.decideEndpoint(service("c", [port(80, 30_001, host), port(81)]))), [30_001, 30_002]);
  const isOther = { protocol: PortConfig_Protocol.UDP };
  t.deepEqual(published(ports.decideEndpoint(service("d", [port(80, 0, isOther)]))), [30_000]);
  t.is(ports.held.ports, 2, "those of the mesh");
  ports.followService("a", null);
  ports.takeOpened();
  ports.followService("b", null);
  t.true(ports.takeOpened().includes(causes.ports));
});

test("host-mode ports never conflict with other services", (t) => {
  const ports = emptyAllocation();
  const host = { publishMode: PortConfig_PublishMode.HOST };
  t.deepEqual(published(ports.decideEndpoint(service("a", [port(80, 8080, host)]))), [8080]);
  t.deepEqual(published(ports.decideEndpoint(service("b", [port(80, 0, host)]))), [0]);
});

function network(id: string, fields: Partial<NetworkSpec> = {}): Network {
  return Network.create({ id, spec: NetworkSpec.create({ annotations: Annotations.create({ name: id }), ...fields }) });
}

/** Ports of the routing mesh are for containers only. */
const container: Partial<TaskSpec> = { generic: null, container: ContainerSpec.create({ image: "web:1" }) };

function on(...targets: string[]): Partial<TaskSpec> {
  return { ...container, networks: targets.map((target) => NetworkAttachmentConfig.create({ target })) };
}

/** A cluster with an ingress network, before its first node. */
async function networkedCluster(nodes: readonly string[], ...networks: Network[]): Promise<TestCluster> {
  const cluster = await testCluster([]);
  for (const each of [ingressNetwork("ingress"), ...networks]) cluster.seed("network", each);
  await cluster.run();
  for (const id of nodes) await cluster.addNode(id, { description: engine });
  return cluster;
}

const onlySsd = Placement.create({ constraints: ["node.labels.disk==ssd"] });

const engine = NodeDescription.create({
  hostname: "engine",
  engine: EngineDescription.create({
    plugins: [
      PluginDescription.create({ type: "Volume", name: "local" }),
      PluginDescription.create({ type: "Network", name: "overlay" }),
      PluginDescription.create({ type: "Network", name: "host" }),
    ],
  }),
});

/** Bypasses the ledger, which rejects what cannot be allocated: older clusters may have such services. */
async function seedService(
  cluster: TestCluster,
  id: string,
  replicas: number,
  fields: Partial<TaskSpec>,
  more: Partial<ServiceSpec> = {},
): Promise<void> {
  const spec = ServiceSpec.create({
    annotations: Annotations.create({ name: id }),
    task: execSpec(fields),
    replicated: ReplicatedService.create({ replicas }),
    ...more,
  });
  cluster.seed("service", Service.create({ id, spec, specVersion: Version.create({}) }));
  await cluster.run();
}

function addressesOf(tasks: readonly Task[]): readonly (readonly string[])[] {
  return tasks.map((task) => task.networks.flatMap(({ addresses }) => addresses));
}

function attachmentsOf(node: Node | undefined): readonly string[] {
  return (node?.attachments ?? []).map((one) => `${one.network?.id} ${one.addresses.join(" ")}`);
}

test("the ingress network and one overlay get the same as from a stock manager", async (t) => {
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

test("a blocked task reports the reason once, and continues when it can", async (t) => {
  const cluster = await networkedCluster(["n1"]);
  await seedService(cluster, "web", 2, on("net"));
  const [task] = cluster.tasks();
  t.is(task?.status?.state, TaskState.NEW);
  t.is(task?.status?.err, "network net does not exist");
  t.is(cluster.orchestration.explainTask(task!)[0]?.waitingFor, "network net does not exist");
  const version = cluster.store.version;
  await cluster.changeNode("n1", {});
  t.is(cluster.store.version, version + 1, "nothing is written again");
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

test("a service's tasks carry the allocated ports, and a removed service frees them", async (t) => {
  const cluster = await networkedCluster(["n1"]);
  const endpoint = EndpointSpec.create({ ports: [port(80, 8080)] });
  await cluster.addService("web", 1, container, { endpoint });
  t.deepEqual(
    cluster.store.get("service", "web")?.endpoint?.ports.map(({ publishedPort }) => publishedPort),
    [8080],
  );
  t.is(cluster.tasks()[0]?.endpoint?.ports[0]?.publishedPort, 8080);
  await seedService(cluster, "api", 1, container, { endpoint });
  t.is(cluster.tasks("api")[0]?.status?.err, "port 8080 is already published by service web");
  t.is(
    cluster.orchestration.explainService("api").at(-1)?.waitingFor,
    "its ports and virtual IPs: port 8080 is already published by service web",
  );
  t.deepEqual(
    cluster.orchestration.explainService("web").map(({ waitingFor }) => waitingFor),
    ["nothing: 1 of 1 tasks run"],
  );
  await cluster.removeService("web");
  t.deepEqual(cluster.picture("api"), ["1:RUNNING@n1"]);
});

test("changed ports replace the tasks that have the old ones", async (t) => {
  const cluster = await networkedCluster(["n1"]);
  await cluster.addService("web", 2, container, { endpoint: EndpointSpec.create({ ports: [port(80, 8080)] }) });
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

test("a full network is reported on each task and in why, and freed addresses go to the longest-waiting tasks", async (t) => {
  const small = network("net", {
    ipam: IPAMOptions.create({ configs: [IPAMConfig.create({ subnet: "10.7.0.0/29" })] }),
  });
  const cluster = await networkedCluster(["n1"], small);
  // Five addresses: the virtual IP, the node's, three tasks.
  await cluster.addService("web", 5, on("net"));
  await cluster.run(1_000);
  const waiting = (): readonly Task[] => cluster.tasks().filter((task) => task.status?.state === TaskState.NEW);
  t.is(waiting().length, 2);
  t.is(
    waiting()[0]?.status?.err,
    "network net has no free address left in 10.7.0.0/29 except those reserved for nodes",
  );
  t.is(waiting()[0]?.status?.message, "waiting for the allocator");
  t.is(cluster.orchestration.explainTask(waiting()[0]!)[0]?.waitingFor, waiting()[0]?.status?.err);
  const version = cluster.store.version;
  await cluster.run(60_000);
  t.is(cluster.store.version, version, "nothing is attempted or reported again until an address is freed");
  const [first] = waiting();
  const running = cluster.tasks().find((task) => task.status?.state === TaskState.RUNNING)!;
  await cluster.report(running, TaskState.FAILED);
  await cluster.run(100);
  t.true((cluster.store.get("task", first!.id)?.status?.state ?? 0) > TaskState.NEW);
});

/** Tasks on nodes without an address in one of the tasks' networks: an engine rejects them. */
function stranded(cluster: TestCluster): readonly string[] {
  const stranded: string[] = [];
  for (const { id, networks, nodeId, status } of cluster.store.all("task")) {
    if (!isHeld(status?.state ?? TaskState.NEW)) continue;
    const has = new Set(cluster.store.get("node", nodeId)?.attachments.map(({ network }) => network?.id));
    for (const { network } of networks) if (!has.has(network?.id)) stranded.push(`${id} on ${nodeId}`);
  }
  return stranded;
}

const dnsrr = { endpoint: EndpointSpec.create({ mode: EndpointSpec_ResolutionMode.DNSRR }) };
const global = { replicated: null, global: GlobalService.create({}), ...dnsrr };

function narrow(subnet: string): Network {
  return network("net", { ipam: IPAMOptions.create({ configs: [IPAMConfig.create({ subnet })] }) });
}

/** How many tasks run, and the others' messages. */
function told(cluster: TestCluster, serviceId = "web"): readonly [number, readonly string[]] {
  const tasks = cluster.tasks(serviceId).filter((task) => task.desiredState <= TaskState.RUNNING);
  const waiting = tasks.filter(({ status }) => status?.state !== TaskState.RUNNING);
  return [tasks.length - waiting.length, waiting.map(({ status }) => status?.err ?? "")];
}

test("no task is placed on a node for which its network has no address left: replicas", async (t) => {
  const cluster = await networkedCluster(["n1", "n2", "n3"], narrow("10.7.0.0/29"));
  await cluster.addService("web", 3, on("net"), dnsrr);
  await cluster.run(5_000);
  t.deepEqual(stranded(cluster), []);
  t.deepEqual(told(cluster), [
    2,
    ["network net has no free address left in 10.7.0.0/29 except those reserved for nodes"],
  ]);
});

test("no task is placed on a node for which its network has no address left: a global service", async (t) => {
  const ids = ["n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8"];
  const cluster = await networkedCluster(ids, narrow("10.7.0.0/28"));
  await cluster.addService("web", 0, on("net"), global);
  await cluster.run(5_000);
  t.deepEqual(stranded(cluster), []);
  const full = "network net has no free address left in 10.7.0.0/28 except those reserved for nodes";
  t.deepEqual(told(cluster), [6, [full, full]]);
});

test("a virtual IP leaves nodes the addresses that they need", async (t) => {
  const cluster = await networkedCluster(["n1", "n2"], narrow("10.7.0.0/29"));
  // Five addresses: two for tasks without a node, and two that they would need on nodes.
  await cluster.addService("stuck", 2, { ...on("net"), placement: onlySsd }, dnsrr);
  for (const id of ["web", "api"]) await cluster.addService(id, 0, on("net"));
  const vips = (id: string) => cluster.store.get("service", id)?.endpoint?.virtualIps.length ?? 0;
  t.deepEqual([vips("web"), vips("api")], [1, 0]);
  await cluster.removeService("stuck");
  t.is(vips("api"), 1);
});

test("a task continues when removing a node frees the address reserved for it", async (t) => {
  const cluster = await networkedCluster(["n1", "n2", "n3"], narrow("10.7.0.0/29"));
  await cluster.addService("stuck", 2, { ...on("net"), placement: onlySsd }, dnsrr);
  await cluster.addService("web", 1, on("net"), dnsrr);
  await cluster.run(1_000);
  t.deepEqual(told(cluster), [
    0,
    ["network net has no free address left in 10.7.0.0/29 except those reserved for nodes"],
  ]);
  const why = () => {
    const { store } = cluster;
    const all = { networks: store.all("network"), services: store.all("service"), tasks: store.all("task") };
    const net = store.get("network", "net")!;
    return explainNetwork(net, { ...all, nodes: store.all("node"), cluster: undefined })[0]?.waitingFor ?? "";
  };
  t.regex(why(), /^a free address: the remaining ones are reserved for nodes .* 2 addresses in use, 3 free\)$/);
  const remove = (id: string) => Operation.create({ remove: Removal.create({ kind: Kind.KIND_NODE, id }) });
  await cluster.propose(remove("n2"), remove("n3"));
  await cluster.run(1_000);
  t.deepEqual(told(cluster), [1, []]);
});

test("the next leader finds every allocation and continues from there", async (t) => {
  const cluster = await networkedCluster(["n1"], network("net"));
  const more = { endpoint: EndpointSpec.create({ ports: [port(80)] }) };
  await cluster.addService("web", 2, on("net"), more);
  const version = cluster.store.version;
  cluster.changeLeader();
  await cluster.run(1_000);
  t.is(cluster.store.version, version, "nothing is written");
  await cluster.addService("api", 1, on("net"), more);
  const used = [...cluster.tasks("web"), ...cluster.tasks("api")].flatMap((task) => addressesOf([task]).flat());
  t.is(new Set(used).size, 6);
  t.is(cluster.store.get("service", "api")?.endpoint?.ports[0]?.publishedPort, 30_001);
  t.deepEqual(cluster.picture("api"), ["1:RUNNING@n1"]);
});

test("when a service's networks change, kept virtual IPs stay and dropped ones are freed", async (t) => {
  const cluster = await networkedCluster(["n1"], network("a"), network("b"), network("c"));
  const vips = (): readonly string[] =>
    (cluster.store.get("service", "web")?.endpoint?.virtualIps ?? []).map((vip) => `${vip.networkId} ${vip.addr}`);
  await cluster.addService("web", 1, on("a", "b"));
  t.deepEqual(vips(), ["a 10.0.1.2/24", "b 10.0.2.2/24"]);
  const attachTo = (...targets: string[]): Promise<void> =>
    cluster.updateService("web", (spec) =>
      ServiceSpec.patch(spec, { task: TaskSpec.patch(spec.task ?? TaskSpec.create(), on(...targets)) }),
    );
  await attachTo("b", "c");
  await cluster.run(10_000);
  t.deepEqual(vips(), ["b 10.0.2.2/24", "c 10.0.3.2/24"]);
  t.deepEqual(
    attachmentsOf(cluster.store.get("node", "n1")).map((text) => text.slice(0, text.indexOf(" "))),
    ["ingress", "b", "c"],
  );
  await attachTo();
  await cluster.run(10_000);
  t.deepEqual(vips(), []);
  t.deepEqual(cluster.picture(), ["1:RUNNING@n1"]);
});

test("a service with DNS round robin has no virtual IP, and one on the engine's own network has none with an address", async (t) => {
  const host = network("host", { driverConfig: Driver.create({ name: "host" }) });
  const cluster = await networkedCluster(["n1"], network("net"), host);
  await cluster.addService("web", 1, on("net"), {
    endpoint: EndpointSpec.create({ mode: EndpointSpec_ResolutionMode.DNSRR }),
  });
  t.deepEqual(cluster.store.get("service", "web")?.endpoint?.virtualIps ?? [], []);
  t.deepEqual(addressesOf(cluster.tasks()), [["10.0.1.2/24"]]);
  await cluster.addService("own", 1, on("host"));
  t.deepEqual(
    cluster.store.get("service", "own")?.endpoint?.virtualIps.map(({ networkId, addr }) => [networkId, addr]),
    [["host", ""]],
  );
  const [task] = cluster.tasks("own");
  t.deepEqual([task?.networks[0]?.network?.driverState?.name, task?.networks[0]?.addresses], ["host", []]);
  t.deepEqual(cluster.picture("own"), ["1:RUNNING@n1"]);
});

test("aliases and driver options of an attachment reach the task, and a network named twice is joined once", async (t) => {
  const cluster = await networkedCluster(["n1"], network("net"));
  const config = NetworkAttachmentConfig.create({
    target: "net",
    aliases: ["db"],
    driverAttachmentOpts: { mtu: "1400" },
  });
  await cluster.addService("web", 1, {
    ...container,
    networks: [config, NetworkAttachmentConfig.create({ target: "net" })],
  });
  const [attachment, ...others] = cluster.tasks()[0]?.networks ?? [];
  t.deepEqual([attachment?.aliases, attachment?.driverAttachmentOpts, others], [["db"], { mtu: "1400" }, []]);
});

test("subnet, range, gateway, ids and options of a network are honoured", async (t) => {
  const options = { "com.docker.network.driver.overlay.vxlanid_list": "77,78", encrypted: "" };
  const configs = [
    IPAMConfig.create({ family: 4, subnet: "192.168.50.0/24", range: "192.168.50.128/25", gateway: "192.168.50.254" }),
    IPAMConfig.create({ family: 4, subnet: "192.168.60.0/24" }),
  ];
  const custom = network("net", {
    driverConfig: Driver.create({ name: "overlay", options }),
    ipam: IPAMOptions.create({ configs }),
  });
  const cluster = await networkedCluster(["n1"], custom);
  const stored = cluster.store.get("network", "net");
  t.deepEqual(stored?.driverState?.options, options);
  t.deepEqual(
    stored?.ipam?.configs.map((config) => [config.subnet, config.range, config.gateway]),
    [
      ["192.168.50.0/24", "192.168.50.128/25", "192.168.50.254"],
      ["192.168.60.0/24", "", "192.168.60.1"],
    ],
  );
  await cluster.addService("web", 1, on("net"));
  t.is(cluster.store.get("service", "web")?.endpoint?.virtualIps[0]?.addr, "192.168.50.128/24");
});

test("when two networks request the same subnet, the second waits, reports why on its tasks, and gets it when the first is removed", async (t) => {
  const wanting = (id: string): Network =>
    network(id, { ipam: IPAMOptions.create({ configs: [IPAMConfig.create({ subnet: "10.8.0.0/24" })] }) });
  const cluster = await networkedCluster(["n1"], wanting("first"), wanting("second"));
  await cluster.addService("web", 1, on("second"));
  t.is(
    cluster.tasks()[0]?.status?.err,
    "network second cannot be used: its subnet 10.8.0.0/24 overlaps with 10.8.0.0/24 of network first",
  );
  t.is(
    explainNetwork(cluster.store.get("network", "second")!, {
      networks: cluster.store.all("network"),
      services: [],
      tasks: [],
      nodes: [],
      cluster: undefined,
    })[0]?.waitingFor,
    "a subnet and a VXLAN id: its subnet 10.8.0.0/24 overlaps with 10.8.0.0/24 of network first",
  );
  await cluster.propose(Operation.create({ remove: Removal.create({ kind: Kind.KIND_NETWORK, id: "first" }) }));
  await cluster.run(100);
  t.deepEqual(cluster.picture(), ["1:RUNNING@n1"]);
});

test("a removed network's subnet and id stay reserved while a stopping task has an address of it", async (t) => {
  const cluster = await networkedCluster(["n1"], network("net"));
  await cluster.addService("web", 1, on("net"));
  cluster.stops = () => false;
  await cluster.removeService("web");
  const removal = Removal.create({ kind: Kind.KIND_NETWORK, id: "net" });
  await cluster.propose(Operation.create({ remove: removal }));
  cluster.changeLeader();
  const rival = network("rival", {
    driverConfig: Driver.create({ options: { "com.docker.network.driver.overlay.vxlanid_list": "4097" } }),
  });
  cluster.seed("network", rival);
  await cluster.run(100);
  t.is(cluster.store.get("network", "rival")?.driverState, null);
  cluster.stops = () => true;
  await cluster.report(cluster.tasks()[0]!, TaskState.SHUTDOWN);
  await cluster.run(1_000);
  t.like(cluster.store.get("network", "rival")?.driverState, { name: "overlay" });
});

test("a full ingress network leaves the next node without an address, and the node reports it", async (t) => {
  const cluster = await testCluster([]);
  const ingress = ingressNetwork("ingress");
  const ipam = IPAMOptions.create({ configs: [IPAMConfig.create({ subnet: "10.9.0.0/30" })] });
  cluster.seed("network", Network.patch(ingress, { spec: NetworkSpec.patch(ingress.spec!, { ipam }) }));
  await cluster.run();
  await cluster.addNode("n1", { description: engine });
  await cluster.addNode("n2", { description: engine });
  t.deepEqual(attachmentsOf(cluster.store.get("node", "n2")), []);
  const reasons = explainNodeNetworks(cluster.store.get("node", "n2")!, [], cluster.store.all("network"));
  t.regex(reasons[0]?.waitingFor ?? "", /^an address for its load balancer in network ingress/);
  await cluster.propose(Operation.create({ remove: Removal.create({ kind: Kind.KIND_NODE, id: "n1" }) }));
  await cluster.run(100);
  t.deepEqual(attachmentsOf(cluster.store.get("node", "n2")), ["ingress 10.9.0.2/30"]);
});
