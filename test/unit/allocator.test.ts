// Published ports, and what lets a task go on to the scheduler.
import test from "ava";
import { decideEndpoint, decideTask, dynamicPorts, PortSpace } from "../../machines/allocator.ts";
import {
  Annotations,
  Driver,
  type Endpoint,
  EndpointSpec,
  Network,
  NetworkAttachmentConfig,
  NetworkSpec,
  PortConfig,
  PortConfig_Protocol,
  PortConfig_PublishMode,
  Service,
  ServiceSpec,
  Task,
  TaskSpec,
  TaskState,
} from "../../proto/gen/messages.ts";
import { testCluster } from "../support/cluster.ts";

function port(targetPort: number, publishedPort = 0, fields: Partial<PortConfig> = {}): PortConfig {
  return PortConfig.create({ targetPort, publishedPort, publishMode: PortConfig_PublishMode.INGRESS, ...fields });
}

function service(id: string, ports: readonly PortConfig[], endpoint: Endpoint | null = null): Service {
  return Service.create({ id, endpoint, spec: ServiceSpec.create({ endpoint: EndpointSpec.create({ ports }) }) });
}

function published(decision: ReturnType<typeof decideEndpoint>): readonly number[] | string {
  if (decision.kind === "endpoint") return decision.endpoint.ports.map(({ publishedPort }) => publishedPort);
  return decision.kind === "blocked" ? decision.reason : decision.kind;
}

/** As the allocator does: decides, claims and stores. */
function allocate(ports: PortSpace, wanted: Service): Service {
  const decision = decideEndpoint(wanted, ports);
  if (decision.kind !== "endpoint") return wanted;
  ports.claim(wanted.id, decision.endpoint.ports);
  return Service.patch(wanted, { endpoint: decision.endpoint });
}

test("ports that nobody chose come one after the other from the dynamic range, for each protocol", (t) => {
  const ports = new PortSpace();
  const web = allocate(
    ports,
    service("web", [port(80), port(443), port(53, 0, { protocol: PortConfig_Protocol.UDP })]),
  );
  t.deepEqual(
    web.endpoint?.ports.map(({ publishedPort }) => publishedPort),
    [30_000, 30_001, 30_000],
  );
  t.is(decideEndpoint(web, ports).kind, "allocated");
  ports.release("web");
  const api = allocate(ports, service("api", [port(80)]));
  t.is(api.endpoint?.ports[0]?.publishedPort, 30_002, "not the one just freed");
});

test("a dynamic port stays when the spec changes around it, and goes with its target", (t) => {
  const ports = new PortSpace();
  const web = allocate(ports, service("web", [port(80)]));
  const more = Service.patch(web, { spec: service("web", [port(80), port(81)]).spec });
  t.deepEqual(published(decideEndpoint(more, ports)), [30_000, 30_001]);
  const other = Service.patch(web, { spec: service("web", [port(8080)]).spec });
  t.deepEqual(published(decideEndpoint(other, ports)), [30_001]);
  const none = Service.patch(web, { spec: service("web", []).spec });
  t.deepEqual(published(decideEndpoint(none, ports)), []);
});

test("a port of another service is refused with its owner, and given once that has gone", (t) => {
  const ports = new PortSpace();
  allocate(ports, service("web", [port(80, 8080)]));
  const rival = service("api", [port(80, 8080)]);
  t.is(published(decideEndpoint(rival, ports)), "port 8080 is already published by service web");
  ports.release("web");
  t.deepEqual(published(decideEndpoint(rival, ports)), [8080]);
});

test("when the range is used up the reason says so", (t) => {
  const ports = new PortSpace();
  const all = Array.from({ length: dynamicPorts.last - dynamicPorts.first + 1 }, (_, at) => port(at + 1));
  allocate(ports, service("all", all));
  t.is(published(decideEndpoint(service("web", [port(80)]), ports)), "no port between 30000 and 32767 is free");
});

test("ports on the node itself are nobody else's business", (t) => {
  const ports = new PortSpace();
  const host = { publishMode: PortConfig_PublishMode.HOST };
  t.deepEqual(published(decideEndpoint(service("a", [port(80, 8080, host)]), ports)), [8080]);
  t.deepEqual(published(decideEndpoint(service("b", [port(80, 0, host)]), ports)), [0]);
});

test("a task with a network of the cluster says that it cannot be attached, one of the node's own can", (t) => {
  const decide = (driver: string | null): ReturnType<typeof decideTask> => {
    const network =
      driver === null
        ? undefined
        : Network.create({
            spec: NetworkSpec.create({
              annotations: Annotations.create({ name: "net" }),
              driverConfig: Driver.create({ name: driver }),
            }),
          });
    const spec = TaskSpec.create({ networks: [NetworkAttachmentConfig.create({ target: "net" })] });
    const task = Task.create({ spec, desiredState: TaskState.RUNNING });
    return decideTask(task, undefined, () => network, { kind: "allocated" });
  };
  t.deepEqual(decide(null), { kind: "blocked", reason: "network net does not exist" });
  t.like(decide("overlay"), {
    kind: "blocked",
    reason: "network net cannot be attached: this cluster does not allocate network addresses yet",
  });
  t.deepEqual(decide("host"), { kind: "ready", endpoint: null });
});

test("a task that cannot go on says why, once, and goes on when it can", async (t) => {
  const cluster = await testCluster(["n1"]);
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
  const cluster = await testCluster(["n1"]);
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
  const cluster = await testCluster(["n1"]);
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
