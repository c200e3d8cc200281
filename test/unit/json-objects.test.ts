import test from "ava";
import {
  Annotations,
  ContainerSpec,
  Network,
  NetworkAttachmentConfig,
  NetworkSpec,
  NodeRole,
  Service,
  ServiceSpec,
  Task,
  TaskSpec,
  TaskState,
  TaskStatus,
} from "../../proto/gen/messages.ts";
import { machineId } from "../../edges/juju/entities/names.ts";
import type { Identity } from "../../edges/juju/facade.ts";
import { workerNode } from "../support/control.ts";
import { failureOf, jsonWorld, type Reply } from "../support/json-world.ts";
import type { TestManager } from "../support/manager.ts";

const [own, other] = [machineId("n1"), machineId("n2")];
const agent: Identity = { kind: "machine", nodeId: "n1" };
const boss: Identity = { kind: "machine", nodeId: "boss" };
const denied = { message: "permission denied", code: "unauthorized access" };

function task(
  id: string,
  name: string,
  slot: number,
  nodeId: string,
  desiredState: TaskState = TaskState.RUNNING,
): Task {
  return Task.create({
    id,
    slot,
    nodeId,
    desiredState,
    serviceId: name,
    serviceAnnotations: Annotations.create({ name }),
    status: TaskStatus.create({ state: TaskState.RUNNING }),
  });
}

function service(name: string, env: readonly string[] = []): Service {
  return Service.create({
    id: name,
    spec: ServiceSpec.create({
      annotations: Annotations.create({ name }),
      task: TaskSpec.create({
        container: ContainerSpec.create({ image: "i", env }),
        networks: [NetworkAttachmentConfig.create({ target: "back" })],
      }),
    }),
  });
}

function seeded({ seed }: TestManager): void {
  seed("node", workerNode("n1"), workerNode("n2"), workerNode("boss", { role: NodeRole.MANAGER }));
  seed(
    "network",
    Network.create({ id: "back", spec: NetworkSpec.create({ annotations: Annotations.create({ name: "back" }) }) }),
  );
  seed("service", service("web"), service("db"));
  seed("task", task("t1", "web", 1, "n1"), task("t2", "web", 2, "n2"), task("t3", "db", 1, "n1"));
}

test("an agent gets its own machine, watches it with a NotifyWatcher as the seed calls it, and stops", async (t) => {
  const { connect, manager, settle } = await jsonWorld(t);
  seeded(manager);
  const { ask } = connect("V0", agent);
  t.like(await ask({ type: "Machine", id: own, request: "Get" }), { Id: own, InstanceId: "n1", Life: "alive" });
  const { NotifyWatcherId: id } = (await ask({ type: "Machine", id: own, request: "Watch" })) as {
    NotifyWatcherId: string;
  };
  const next = ask({ type: "NotifyWatcher", id, request: "Next" });
  manager.seed("node", workerNode("n2", { role: NodeRole.MANAGER }));
  await settle();
  t.is(await Promise.race([next, Promise.resolve("waiting")]), "waiting", "another machine does not concern it");
  manager.seed("node", workerNode("n1", { role: NodeRole.MANAGER }));
  await settle();
  t.deepEqual(await next, {});
  const old = ask({ type: "EntityWatcher", id, request: "Next" });
  const refused = failureOf(() => old);
  await new Promise(setImmediate);
  t.deepEqual(await ask({ type: "NotifyWatcher", id, request: "Stop" }), {});
  t.deepEqual(await refused, { message: "watcher has been stopped", code: "stopped" });
  const wrong = await failureOf(() => ask({ type: "LifecycleWatcher", id, request: "Next" }));
  t.deepEqual(wrong, { message: "unknown watcher id", code: "not found" });
});

test("two changes are one answer, and a change before the first Next is not lost", async (t) => {
  const { connect, manager, settle } = await jsonWorld(t);
  seeded(manager);
  const { ask } = connect("V0", agent);
  const { NotifyWatcherId: id } = (await ask({ type: "Machine", id: own, request: "Watch" })) as {
    NotifyWatcherId: string;
  };
  manager.seed("node", workerNode("n1", { role: NodeRole.MANAGER }));
  await settle();
  manager.seed("node", workerNode("n1"));
  manager.drop("node", "n1");
  await settle();
  t.deepEqual(await ask({ type: "NotifyWatcher", id, request: "Next" }), {});
});

test("the units of a machine are listed at once, and then those that are added, removed or end", async (t) => {
  const { connect, manager, settle } = await jsonWorld(t);
  seeded(manager);
  const { ask } = connect("V0", agent);
  const { MachineUnitsWatcherId: id, Changes } = await ask({ type: "Machine", id: own, request: "WatchUnits" });
  t.deepEqual((Changes as string[]).toSorted(), ["db/0", "web/0"]);
  const next = () => ask({ type: "MachineUnitsWatcher", id: id as string, request: "Next" });
  const first = next();
  manager.seed("task", task("t4", "web", 3, "n1"), task("t3", "db", 1, "n1", TaskState.SHUTDOWN));
  await settle();
  t.deepEqual(((await first)["Changes"] as string[]).toSorted(), ["db/0", "web/2"]);
  const second = next();
  manager.drop("task", "t4");
  await settle();
  t.deepEqual(await second, { Changes: ["web/2"] });
});

test("a manager's agent sees all machines and is notified when one is added or removed", async (t) => {
  const { connect, manager, settle } = await jsonWorld(t);
  seeded(manager);
  const { ask } = connect("V0", boss);
  const { Machines } = (await ask({ type: "State", request: "AllMachines" })) as { Machines: Reply[] };
  t.true(Machines.some(({ InstanceId }) => InstanceId === "n2"));
  const { LifecycleWatcherId: id, Ids } = await ask({ type: "State", request: "WatchMachines" });
  t.true((Ids as string[]).includes(other));
  const next = ask({ type: "LifecycleWatcher", id: id as string, request: "Next" });
  manager.drop("node", "n2");
  await settle();
  t.deepEqual(await next, { Ids: [other] });
  t.deepEqual(await failureOf(() => connect("V0", agent).ask({ type: "State", request: "AllMachines" })), denied);
});

test("a unit's options are sent again when they change", async (t) => {
  const { connect, manager, settle } = await jsonWorld(t);
  seeded(manager);
  const { ask } = connect("V0", { kind: "unit", taskId: "t1" });
  const { ConfigWatcherId: id, Settings } = await ask({ type: "Unit", id: "web/0", request: "WatchConfig" });
  t.deepEqual(Settings, {});
  const next = ask({ type: "ConfigWatcher", id: id as string, request: "Next" });
  manager.seed("service", service("web", ["COLOR=red"]));
  await settle();
  t.deepEqual(await next, { Settings: { COLOR: "red" } });
});

test("units on one network are in each other's scope", async (t) => {
  const { connect, manager, settle } = await jsonWorld(t);
  seeded(manager);
  const { ask } = connect("V0", { kind: "unit", taskId: "t3" });
  t.like(await ask({ type: "Relation", id: "back:network", request: "Get" }), { Key: "back:network", Life: "alive" });
  const scope = "back:network#db/0";
  const { RelationScopeWatcherId: id, Entered } = await ask({ type: "RelationUnit", id: scope, request: "WatchScope" });
  t.deepEqual((Entered as string[]).toSorted(), ["web/0", "web/1"]);
  const next = ask({ type: "RelationScopeWatcher", id: id as string, request: "Next" });
  manager.seed("task", task("t5", "web", 3, "n2"));
  manager.drop("task", "t2");
  await settle();
  t.deepEqual(await next, { Entered: ["web/2"], Left: ["web/1"] });
  const relations = await ask({ type: "Service", id: "web", request: "WatchRelations" });
  t.deepEqual(relations["Changes"], ["back:network"]);
});

test("only an agent reports its machine's status", async (t) => {
  const { connect, manager, store } = await jsonWorld(t);
  seeded(manager);
  const status = { type: "Machine", id: own, request: "SetStatus", params: { Status: "started", Info: "all is well" } };
  t.deepEqual(await connect("V0", agent).ask(status), {});
  t.is(store.get("node", "n1")?.spec?.annotations?.labels["muster.json.status-info"], "all is well");
  t.deepEqual(await connect("V0", agent).ask({ type: "Machine", id: own, request: "Status" }), {
    Status: "started",
    Info: "all is well",
  });
  t.deepEqual(await failureOf(() => connect("V0", boss).ask(status)), denied);
});

test("a pinger exists only to be stopped, once, and by its owner", async (t) => {
  const { connect, manager } = await jsonWorld(t);
  seeded(manager);
  const { ask } = connect("V0", agent);
  const { PingerId: id } = (await ask({ type: "Machine", id: own, request: "SetAgentAlive" })) as { PingerId: string };
  t.deepEqual(await ask({ type: "Pinger", id, request: "Ping" }), {});
  t.deepEqual(await ask({ type: "Pinger", id, request: "Stop" }), {});
  t.is((await failureOf(() => ask({ type: "Pinger", id, request: "Stop" })))?.code, "not found");
});

for (const [what, identity, asked, wanted] of [
  ["another's machine", agent, { type: "Machine", id: other, request: "Get" }, denied],
  [
    "an unknown machine",
    agent,
    { type: "Machine", id: "99", request: "Get" },
    { message: "machine 99 not found", code: "not found" },
  ],
  ["a unit on another machine", agent, { type: "Unit", id: "web/1", request: "Get" }, denied],
  ["another unit", { kind: "unit", taskId: "t1" } as const, { type: "Unit", id: "db/0", request: "Get" }, denied],
  ["a users' type", agent, { type: "Client", request: "FullStatus" }, denied],
  [
    "an agents' type, as a user",
    { kind: "user", name: "a", role: "admin" } as const,
    { type: "Machine", id: own, request: "Get" },
    denied,
  ],
  ["a machine's removal", agent, { type: "Machine", id: own, request: "Remove" }, denied],
  [
    "a singleton by an id",
    boss,
    { type: "State", id: "1", request: "AllMachines" },
    { message: "id not found", code: "not found" },
  ],
] as const) {
  test(`requesting ${what} is rejected`, async (t) => {
    const { connect, manager } = await jsonWorld(t);
    seeded(manager);
    t.deepEqual(await failureOf(() => connect("V0", identity).ask(asked)), wanted);
  });
}
