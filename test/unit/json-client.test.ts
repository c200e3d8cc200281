import test from "ava";
import fc from "fast-check";
import {
  Annotations,
  ContainerSpec,
  Network,
  NetworkAttachmentConfig,
  NetworkSpec,
  NodeSpec_Availability,
  NodeStatus,
  type NodeStatus_State,
  Service,
  ServiceSpec,
  Task,
  TaskSpec,
  TaskState,
  TaskStatus,
  ReplicatedService,
} from "../../proto/gen/messages.ts";
import { machineId } from "../../edges/juju/entities/names.ts";
import { Feed } from "../../edges/juju/feed/feed.ts";
import { allNews } from "../../edges/juju/feed/news.ts";
import type { Encoded } from "../../edges/juju/results.ts";
import { workerNode } from "../support/control.ts";
import { failureOf, jsonWorld, type Reply } from "../support/json-world.ts";
import { testManager, type TestManager } from "../support/manager.ts";

const image = "busybox:1";

function service(name: string, fields: Partial<Service> = {}, networks: readonly string[] = []): Service {
  return Service.create({
    id: `${name}-id`,
    spec: ServiceSpec.create({
      annotations: Annotations.create({ name }),
      task: TaskSpec.create({
        container: ContainerSpec.create({ image }),
        networks: networks.map((target) => NetworkAttachmentConfig.create({ target })),
      }),
      replicated: ReplicatedService.create({ replicas: 2 }),
    }),
    ...fields,
  });
}

function task(name: string, slot: number, fields: Partial<Task> = {}, state: TaskState = TaskState.RUNNING): Task {
  return Task.create({
    id: `${name}.${slot}`,
    serviceId: `${name}-id`,
    serviceAnnotations: Annotations.create({ name }),
    spec: TaskSpec.create({ container: ContainerSpec.create({ image }) }),
    slot,
    nodeId: "n1",
    desiredState: TaskState.RUNNING,
    status: TaskStatus.create({ state }),
    ...fields,
  });
}

function network(name: string): Network {
  return Network.create({ id: `${name}-id`, spec: NetworkSpec.create({ annotations: Annotations.create({ name }) }) });
}

function seeded({ seed }: TestManager): void {
  seed("node", workerNode("n1"), workerNode("n2"));
  seed("network", network("backend"));
  seed("service", service("web", {}, ["backend-id"]), service("db_1", {}, ["backend"]));
  seed("task", task("web", 1), task("web", 2, { nodeId: "n2" }), task("db_1", 1));
}

const at = (value: unknown, ...path: readonly string[]): unknown =>
  path.reduce<unknown>((reached, key) => (reached as Reply)[key], value);

test("the full status of 3.x has machines, applications with their units, and relations", async (t) => {
  const { connect, manager } = await jsonWorld(t);
  seeded(manager);
  const { ask } = connect("V1");
  const status = await ask({ type: "Client", version: 6, request: "FullStatus", params: { patterns: null } });
  const machine = at(status, "machines", machineId("n1"));
  t.is(at(machine, "agent-status", "status"), "started");
  t.is(at(machine, "instance-id"), "n1");
  t.deepEqual(at(machine, "base"), { name: "ubuntu", channel: "22.04/stable" });
  t.is(at(machine, "series"), "jammy");
  t.is(at(status, "applications", "web", "int"), 2);
  t.deepEqual(Object.keys(at(status, "applications", "web", "units") as Reply), ["web/0", "web/1"]);
  t.is(at(status, "applications", "web", "units", "web/1", "machine"), machineId("n2"));
  t.is(at(status, "applications", "web", "units", "web/0", "workload-status", "status"), "active");
  const [relation] = status["relations"] as Reply[];
  t.is(relation?.["key"], "backend:network");
  t.is((at(relation, "endpoints") as unknown[]).length, 2);
  t.is(at(status, "controller-timestamp"), "2026-01-01T00:00:00.000Z");
});

test("the full status of 1.x has services, and statuses in capitals", async (t) => {
  const { connect, manager } = await jsonWorld(t);
  seeded(manager);
  const { ask } = connect("V0");
  const status = await ask({ type: "Client", request: "FullStatus" });
  t.deepEqual(Object.keys(status).toSorted(), ["EnvironmentName", "Machines", "Networks", "Relations", "Services"]);
  t.is(at(status, "Services", "web", "Units", "web/0", "AgentState"), "started");
  t.is(at(status, "Machines", machineId("n1"), "AgentState"), "started");
  const oldest = await ask({ type: "Client", request: "Status" });
  t.deepEqual(at(oldest, "Machines", machineId("n2")), { InstanceId: "n2" });
});

test("an empty cluster has empty objects and lists", async (t) => {
  const { connect } = await jsonWorld(t);
  const status = await connect("V1").ask({ type: "Client", version: 7, request: "FullStatus" });
  t.deepEqual(
    ["offers", "applications", "remote-applications", "branches"].map((key) => status[key]),
    [{}, {}, {}, {}],
  );
  t.deepEqual(status["relations"], []);
});

test("patterns select their matches, with application and machine", async (t) => {
  const { connect, manager } = await jsonWorld(t);
  seeded(manager);
  const { ask } = connect("V1");
  const status = await ask({ type: "Client", version: 6, request: "FullStatus", params: { patterns: ["web/1"] } });
  t.deepEqual(Object.keys(status["machines"] as Reply), [machineId("n2")]);
  t.deepEqual(Object.keys(at(status, "applications", "web", "units") as Reply), ["web/1"]);
  t.deepEqual(Object.keys(status["applications"] as Reply), ["web"]);
});

test("an all-watcher sends the whole state, then only differences, and is stopped with the words that clients know", async (t) => {
  const { connect, manager, settle, env } = await jsonWorld(t);
  seeded(manager);
  const { ask } = connect("V1");
  const { "watcher-id": id } = (await ask({ type: "Client", version: 6, request: "WatchAll" })) as {
    "watcher-id": string;
  };
  t.is(id, "1");
  const next = () => ask({ type: "AllWatcher", version: 3, id, request: "Next" });
  const first = (await next())["deltas"] as [string, string, Reply][];
  t.deepEqual(
    [...new Set(first.map(([kind]) => kind))],
    ["model", "machine", "application", "unit", "relation", "annotation"],
  );
  const waiting = next();
  manager.seed("task", task("web", 1, {}, TaskState.FAILED));
  manager.seed("task", task("web", 1, {}, TaskState.RUNNING), task("web", 2, { nodeId: "n2" }, TaskState.FAILED));
  await settle();
  const deltas = (await waiting)["deltas"] as [string, string, Reply][];
  t.deepEqual(
    deltas.map(([kind, action, entity]) => [kind, action, entity["name"]]),
    [
      ["unit", "change", "web/1"],
      ["application", "change", "web"],
    ],
    "web/0 is unchanged",
  );
  const pending = failureOf(next);
  await new Promise(setImmediate);
  await ask({ type: "AllWatcher", version: 3, id, request: "Stop" });
  t.deepEqual(await pending, { message: "watcher was stopped", code: "stopped" });
  const gone = { message: "unknown watcher id", code: "not found" };
  t.deepEqual(await failureOf(next), gone);
  t.deepEqual(await failureOf(() => ask({ type: "AllWatcher", version: 3, id, request: "Stop" })), gone);
  t.deepEqual([...env.host.ids()], []);
});

test("an old client gets its own error when its server stops", async (t) => {
  const { connect } = await jsonWorld(t);
  const { ask, resources } = connect("V0");
  const { AllWatcherId: id } = (await ask({ type: "Client", request: "WatchAll" })) as { AllWatcherId: string };
  const [kind] = (await ask({ type: "AllWatcher", id, request: "Next" }))["Deltas"] as [string][];
  t.is(kind?.[0], "machine");
  const last = failureOf(() => ask({ type: "AllWatcher", id, request: "Next" }));
  await new Promise(setImmediate);
  resources.stopAll();
  t.deepEqual(await last, { message: "shared state watcher was stopped", code: "stopped" });
});

test("a client deploys, scales, exposes, constrains, annotates and removes", async (t) => {
  const { connect, store, manager } = await jsonWorld(t);
  manager.seed("node", workerNode("n1"));
  const { ask } = connect("V1");
  const app = (request: string, params: unknown) => ask({ type: "Application", version: 19, request, params });
  const wanted = {
    application: "web",
    "charm-url": image,
    "num-units": 2,
    config: { COLOR: "red", "muster.ports": "8080:80/tcp" },
    constraints: { mem: 64, tags: ["disk=ssd"] },
    placement: [{ scope: "#", directive: machineId("n1") }],
  };
  t.deepEqual(await app("Deploy", { applications: [wanted] }), { results: [{}] });
  const spec = () => store.byName("service", "web")?.spec;
  t.is(spec()?.replicated?.replicas, 2);
  t.deepEqual(spec()?.task?.container?.env, ["COLOR=red"]);
  t.deepEqual(spec()?.task?.placement?.constraints, ["node.id==n1", "node.labels.disk==ssd"]);
  t.is(spec()?.task?.resources?.reservations?.memoryBytes, 64 * 2 ** 20);

  t.deepEqual(await app("AddUnits", { application: "web", "num-units": 2 }), { units: ["web/0", "web/1"] });
  t.is(spec()?.replicated?.replicas, 4);
  const scaled = { applications: [{ "application-tag": "application-web", scale: 3 }] };
  t.deepEqual(await app("ScaleApplications", scaled), { results: [{ info: { "num-units": 3 } }] });

  await app("Expose", { application: "web" });
  t.deepEqual(
    spec()?.endpoint?.ports.map(({ publishedPort, targetPort }) => [publishedPort, targetPort]),
    [[8080, 80]],
  );
  await app("Unexpose", { application: "web" });
  t.deepEqual(spec()?.endpoint?.ports, []);
  await app("Expose", { application: "web" });
  t.is(spec()?.endpoint?.ports.length, 1);

  await app("SetConstraints", { application: "web", constraints: { cores: 1, arch: "amd64" } });
  t.deepEqual(spec()?.task?.placement?.constraints, ["node.id==n1", "node.platform.arch==x86_64"]);
  const got = await app("Get", { application: "web" });
  t.deepEqual(got["constraints"], { arch: "amd64", cores: 1 });
  t.is(at(got, "config", "COLOR", "value"), "red");

  const annotate = { annotations: [{ entity: "application-web", annotations: { owner: "me" } }] };
  t.deepEqual(await ask({ type: "Annotations", version: 2, request: "Set", params: annotate }), { results: [{}] });
  const entities = { entities: [{ tag: "application-web" }, { tag: "application-none" }] };
  const annotations = (await ask({ type: "Annotations", version: 2, request: "Get", params: entities }))[
    "results"
  ] as Reply[];
  t.is(at(annotations[0], "annotations", "owner"), "me");
  t.deepEqual(annotations[1], { error: { message: 'application "none" not found', code: "not found" } });

  await app("SetCharm", { application: "web", "charm-url": "busybox:2" });
  t.is(spec()?.task?.container?.image, "busybox:2");

  const destroy = { applications: [{ "application-tag": "application-web" }] };
  await app("DestroyApplication", destroy);
  t.is(spec(), undefined);
});

test("an annotation drains a machine and activates it again", async (t) => {
  const { connect, store, manager } = await jsonWorld(t);
  seeded(manager);
  const { ask } = connect("V1");
  const tag = `machine-${machineId("n1")}`;
  const set = (availability: string) => {
    const annotations = [{ entity: tag, annotations: { "muster.availability": availability, rack: "7" } }];
    return ask({ type: "Annotations", version: 2, request: "Set", params: { annotations } });
  };
  const got = async () => {
    const params = { entities: [{ tag }] };
    const { results } = await ask({ type: "Annotations", version: 2, request: "Get", params });
    return (results as Reply[])[0]?.["annotations"];
  };
  t.deepEqual(await set("drain"), { results: [{}] });
  t.is(store.get("node", "n1")?.spec?.availability, NodeSpec_Availability.DRAIN);
  t.deepEqual(await got(), { rack: "7", "muster.availability": "drain" });
  t.deepEqual(await set(""), { results: [{}] });
  t.is(store.get("node", "n1")?.spec?.availability, NodeSpec_Availability.ACTIVE);
  t.deepEqual(await got(), { rack: "7" });
  t.like(await set("asleep"), { results: [{ error: { code: "not valid" } }] });
});

test("a client of 1.x does the same with its own requests", async (t) => {
  const { connect, store } = await jsonWorld(t);
  const { ask } = connect("V0");
  const client = (request: string, params: unknown) => ask({ type: "Client", request, params });
  t.deepEqual(
    await client("ServiceDeploy", { ServiceName: "web", CharmUrl: `docker:${image}`, NumUnits: 1, Config: null }),
    {},
  );
  t.deepEqual(await client("AddServiceUnits", { ServiceName: "web", NumUnits: 1 }), { Units: ["web/0"] });
  await client("SetServiceConstraints", { ServiceName: "web", Constraints: { "cpu-cores": 2, mem: 10 } });
  t.deepEqual(await client("GetServiceConstraints", { ServiceName: "web" }), { Constraints: { cores: 2, mem: 10 } });
  await client("ServiceSet", { ServiceName: "web", Options: { A: "1", "muster.ports": "80" } });
  await client("ServiceExpose", { ServiceName: "web" });
  t.is(store.byName("service", "web")?.spec?.endpoint?.ports.length, 1);
  await client("SetAnnotations", { Tag: "service-web", Pairs: { x: "y" } });
  t.is(at(await client("GetAnnotations", { Tag: "service-web" }), "Annotations", "x"), "y");
  await client("SetAnnotations", { Tag: "service-web", Pairs: { x: "" } });
  t.is(at(await client("GetAnnotations", { Tag: "service-web" }), "Annotations", "x"), undefined);
  await client("ServiceDestroy", { ServiceName: "web" });
  t.is(store.count("service"), 0);
});

test("a failed unit is resolved, a healthy one is not; named units are removed, and the scale decreases", async (t) => {
  const { connect, store, manager } = await jsonWorld(t);
  seeded(manager);
  manager.seed("task", task("web", 1, {}, TaskState.FAILED));
  const { ask } = connect("V0");
  const client = (request: string, params: unknown) => ask({ type: "Client", request, params });
  await client("Resolved", { UnitName: "web/0" });
  t.is(store.get("task", "web.1"), undefined);
  t.is((await failureOf(() => client("Resolved", { UnitName: "web/1" })))?.code, "not valid");
  await client("DestroyServiceUnits", { UnitNames: ["web/1"] });
  t.is(store.get("task", "web.2"), undefined);
  t.is(store.byName("service", "web")?.spec?.replicated?.replicas, 1);
});

test("unsupported requests say so, and wrong ones say why", async (t) => {
  const { connect, manager } = await jsonWorld(t);
  seeded(manager);
  const { ask } = connect("V0");
  const code = async (request: string, params: unknown) =>
    (await failureOf(() => ask({ type: "Client", request, params })))?.code;
  t.is(await code("AddRelation", { Endpoints: ["a", "b"] }), "not supported");
  t.is(await code("Run", { Commands: "ls", Machines: ["0"] }), "not supported");
  t.is(await code("ServiceDeploy", { ServiceName: "x", CharmUrl: "cs:trusty/x-1" }), "not supported");
  t.is(await code("ServiceDeploy", { ServiceName: "Not A Name", CharmUrl: image }), "not valid");
  t.is(await code("ServiceDeploy", { ServiceName: "web", CharmUrl: image }), "already exists");
  t.is(await code("ServiceExpose", { ServiceName: "web" }), "not valid");
  t.is(await code("ServiceExpose", { ServiceName: "none" }), "not found");
  t.is(await code("SetServiceConstraints", { ServiceName: "web", Constraints: { "root-disk": 1 } }), "not supported");
  t.is(await code("SetAnnotations", { Tag: "unit-web-0", Pairs: { a: "b" } }), "not supported");
  t.is(await code("Nothing", {}), "not implemented");
});

test("a reader may only read, and an operator may not remove machines", async (t) => {
  const { connect, manager } = await jsonWorld(t);
  seeded(manager);
  const reader = connect("V0", { kind: "user", name: "r", role: "read-only" });
  t.truthy(await reader.ask({ type: "Client", request: "FullStatus" }));
  const denied = { message: "permission denied", code: "unauthorized access" };
  t.deepEqual(
    await failureOf(() => reader.ask({ type: "Client", request: "ServiceDestroy", params: { ServiceName: "web" } })),
    denied,
  );
  const operator = connect("V0", { kind: "user", name: "o", role: "operator" });
  const machines = { MachineNames: [machineId("n1")], Force: true };
  t.deepEqual(
    await failureOf(() => operator.ask({ type: "Client", request: "DestroyMachines", params: machines })),
    denied,
  );
  t.deepEqual(await connect("V0").ask({ type: "Client", request: "DestroyMachines", params: machines }), {});
  t.is(manager.store.get("node", "n1"), undefined);
});

/** A client's state, built from the deltas alone. */
class Fold {
  readonly entities = new Map<string, Reply>();
  apply(answer: string): void {
    const { deltas } = JSON.parse(answer) as { deltas: [string, string, Reply][] };
    for (const [kind, action, entity] of deltas) {
      const key = `${kind} ${String(entity[kind === "annotation" ? "tag" : kind === "application" || kind === "unit" ? "name" : "id"])}`;
      if (action === "remove") this.entities.delete(key);
      else this.entities.set(key, entity);
    }
  }
}

const names = ["web", "db_1", "cache"];
const step = fc.oneof(
  fc.record({
    kind: fc.constant("node" as const),
    id: fc.constantFrom("n1", "n2", "n3"),
    state: fc.constantFrom(1, 2, 3),
  }),
  fc.record({
    kind: fc.constant("service" as const),
    name: fc.constantFrom(...names),
    generation: fc.integer({ min: 0, max: 1 }),
    on: fc.boolean(),
  }),
  fc.record({
    kind: fc.constant("task" as const),
    name: fc.constantFrom(...names),
    generation: fc.integer({ min: 0, max: 1 }),
    slot: fc.integer({ min: 0, max: 2 }),
    attempt: fc.integer({ min: 0, max: 1 }),
    node: fc.constantFrom("n1", "n2"),
    state: fc.constantFrom(TaskState.NEW, TaskState.RUNNING, TaskState.FAILED, TaskState.SHUTDOWN),
    desired: fc.constantFrom(TaskState.RUNNING, TaskState.SHUTDOWN),
  }),
  fc.record({ kind: fc.constant("network" as const), name: fc.constantFrom("backend", "other") }),
  fc.record({
    kind: fc.constant("drop" as const),
    table: fc.constantFrom("node", "service", "task", "network"),
    at: fc.nat(20),
  }),
  fc.constant({ kind: "read" as const }),
  fc.constant({ kind: "refresh" as const }),
);
type Step = typeof step extends fc.Arbitrary<infer Value> ? Value : never;

function take(manager: TestManager, each: Step): void {
  switch (each.kind) {
    case "node":
      return manager.seed(
        "node",
        workerNode(each.id, { status: NodeStatus.create({ state: each.state as NodeStatus_State }) }),
      );
    case "service": {
      const id = `${each.name}-${each.generation}`;
      const other = manager.store.byName("service", each.name);
      // Names are unique in a store.
      if (other !== undefined && other.id !== id) return;
      return manager.seed("service", service(each.name, { id }, each.on ? ["backend-id"] : ["other"]));
    }
    case "task": {
      const id = `${each.name}-${each.generation}.${each.slot}.${each.attempt}`;
      return manager.seed(
        "task",
        task(
          each.name,
          each.slot,
          { id, serviceId: `${each.name}-${each.generation}`, nodeId: each.node, desiredState: each.desired },
          each.state,
        ),
      );
    }
    case "network":
      return manager.seed("network", network(each.name));
    case "drop": {
      const all = [...manager.store.all(each.table as "node")];
      const object = all[each.at % Math.max(1, all.length)];
      if (object !== undefined) manager.drop(each.table as "node", object.id);
      return;
    }
    case "read":
    case "refresh":
  }
}

test("F4: over random histories, the first answer and all later deltas, folded, equal the current state", (t) => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const manager = testManager();
      const feed = new Feed(manager);
      const news = allNews(feed, "V1", () => true);
      const slow = allNews(feed, "V1", () => true);
      const [fold, slowFold] = [new Fold(), new Fold()];
      for (const each of steps) {
        take(manager, each);
        if (each.kind === "refresh") feed.refresh();
        if (each.kind !== "read") continue;
        feed.refresh();
        if (news.has()) fold.apply((news.take() as Encoded).text);
      }
      feed.refresh();
      fold.apply((news.take() as Encoded).text);
      slowFold.apply((slow.take() as Encoded).text);
      const fresh = new Feed(manager);
      const whole = new Fold();
      whole.apply((allNews(fresh, "V1", () => true).take() as Encoded).text);
      const sorted = ({ entities }: Fold) => [...entities].toSorted(([left], [right]) => (left < right ? -1 : 1));
      t.deepEqual(sorted(fold), sorted(whole));
      t.deepEqual(sorted(slowFold), sorted(whole));
      t.deepEqual(status(feed), status(fresh));
      feed.stop();
      fresh.stop();
    }),
    { numRuns: 300 },
  );
});

/** The names and values of a status, sorted. */
function status(feed: Feed): unknown {
  const { machines, applications, units, relations } = feed.view();
  const said = [
    ...machines.map(({ id, words }) => `machine ${id} ${words.agent.current}`),
    ...applications.map(({ id, word }) => `application ${id} ${word.current} ${word.message}`),
    ...units.map(({ id, machine, words }) => `unit ${id} ${machine} ${words.workload.current}`),
    ...relations.map(({ id, applications: ends }) => `relation ${id} ${ends.join()}`),
  ];
  return said.toSorted();
}

test("however much changes between a client's requests, it gets each entity once, and the feed retains no more", (t) => {
  const manager = testManager();
  seeded(manager);
  const feed = new Feed(manager);
  const news = allNews(feed, "V1", () => true);
  news.take();
  const before = feed.entities.size;
  for (let round = 0; round < 10_000; round += 1) {
    manager.seed("task", task("web", 1, {}, round % 2 === 0 ? TaskState.FAILED : TaskState.RUNNING));
    if (round % 100 === 0) feed.refresh();
  }
  feed.refresh();
  t.is(feed.entities.size, before);
  const { deltas } = JSON.parse((news.take() as Encoded).text) as { deltas: unknown[] };
  t.true(deltas.length <= 2, `${deltas.length} deltas`);
});
