// Requests of Juju's own command beyond status: each as its Go client of 3.6 writes it, and the fields of the answer that it
// reads.
import test from "ava";
import {
  Annotations,
  Platform,
  NodeDescription,
  Node,
  ReplicatedService,
  Service,
  ServiceSpec,
  Task,
  TaskState,
  TaskStatus,
  UserRole,
} from "../../proto/gen/messages.ts";
import { machineId } from "../../edges/juju/entities/names.ts";
import { workerNode } from "../support/control.ts";
import { failureOf, jsonWorld } from "../support/json-world.ts";

const replicated = (name: string, replicas: number): Service =>
  Service.create({
    id: name,
    spec: ServiceSpec.create({
      annotations: Annotations.create({ name }),
      replicated: ReplicatedService.create({ replicas }),
    }),
  });

const unit = (name: string, slot: number): Task =>
  Task.create({
    id: `${name}${slot}`,
    serviceId: name,
    nodeId: "n1",
    slot,
    desiredState: TaskState.RUNNING,
    status: TaskStatus.create({ state: TaskState.RUNNING }),
  });

test("the state of models is under the key that clients read", async (t) => {
  const { connect, manager, feed } = await jsonWorld(t);
  manager.seed("node", workerNode("n1"));
  manager.seed("service", replicated("web", 1));
  manager.seed("task", unit("web", 1));
  const tag = `model-${feed.view().model.id}`;
  const params = { entities: [{ tag }, { tag: "model-x" }] };
  const { models } = await connect("V1").ask({ type: "ModelManager", version: 9, request: "ModelStatus", params });
  t.like(models, [
    { "model-tag": tag, "application-count": 1, "unit-count": 1, applications: [{ name: "web" }] },
    { error: { code: "not found" } },
  ]);
  t.is((models as { machines: object[] }[])[0]?.machines.length, feed.view().machines.length);
});

test("architectures have Juju's names", async (t) => {
  const { connect, manager } = await jsonWorld(t);
  const platform = Platform.create({ architecture: "x86_64", os: "linux" });
  const node = workerNode("n1");
  manager.seed("node", Node.patch(node, { description: NodeDescription.create({ hostname: "one", platform }) }));
  const { machines } = await connect("V1").ask({ type: "Client", version: 6, request: "FullStatus" });
  t.regex((machines as Record<string, { hardware: string }>)[machineId("n1")]?.hardware ?? "", /^arch=amd64\b/);
});

test("an unsupported call's error code is not the one at which Go clients advise installing another client", async (t) => {
  const { connect } = await jsonWorld(t);
  const refused = (type: string, version: number, request: string) =>
    failureOf(() => connect("V1").ask({ type, version, request }));
  t.like(await refused("Spaces", 6, "ListSpaces"), {
    code: "not supported",
    message: 'facade "Spaces" is not supported by this controller',
  });
  t.like(await refused("Client", 99, "FullStatus"), { code: "not supported" });
  t.like(await refused("Application", 19, "Leader"), {
    code: "not supported",
    message: "method Application(19).Leader is not supported by this controller",
  });
  t.like(await failureOf(() => connect("V0").ask({ type: "Spaces", version: 1, request: "ListSpaces" })), {
    code: "not implemented",
  });
});

test("the model's configuration is set, shown and unset; the cluster's own description is not", async (t) => {
  const { connect } = await jsonWorld(t);
  const ask = (request: string, params: object = {}) =>
    connect("V1").ask({ type: "ModelConfig", version: 3, request, params });
  t.deepEqual(await ask("ModelSet", { config: { "logging-config": "<root>=DEBUG", "test-mode": true } }), {});
  t.like(await ask("ModelGet"), {
    config: {
      "logging-config": { value: "<root>=DEBUG", source: "model" },
      "test-mode": { value: "true", source: "model" },
      type: { value: "muster" },
    },
  });
  t.deepEqual(await ask("ModelUnset", { keys: ["test-mode"] }), {});
  t.false("test-mode" in ((await ask("ModelGet"))["config"] as object));
  t.is((await failureOf(() => ask("ModelSet", { config: { name: "other" } })))?.code, "not valid");
  const reader = connect("V1", { kind: "user", name: "r", role: "read-only" });
  const set = { type: "ModelConfig", version: 3, request: "ModelSet", params: { config: { a: "b" } } };
  t.is((await failureOf(() => reader.ask(set)))?.code, "unauthorized access");
});

test("model constraints are the defaults of deployed applications, by 2.9's facade and 3.x's", async (t) => {
  const { connect, store } = await jsonWorld(t);
  const { ask } = connect("V1");
  const client = (request: string, params: object = {}) => ask({ type: "Client", version: 2, request, params });
  const config = (request: string, params: object = {}) => ask({ type: "ModelConfig", version: 3, request, params });
  t.deepEqual(await client("GetModelConstraints"), { constraints: {} });
  // As python-libjuju 2.9 writes it.
  const constraints = { mem: 64, cores: 2, arch: "amd64", tags: ["disk=ssd"] };
  t.deepEqual(await client("SetModelConstraints", { application: "", constraints }), {});
  t.deepEqual(await client("GetModelConstraints"), { constraints });
  t.deepEqual(await config("GetModelConstraints"), { constraints });
  const old = connect("V0");
  t.deepEqual(await old.ask({ type: "Client", request: "GetEnvironmentConstraints" }), { Constraints: constraints });

  const deploy = async (application: string, own: object) => {
    const applications = [{ application, "charm-url": "bb:1", "num-units": 1, constraints: own }];
    await ask({ type: "Application", version: 19, request: "Deploy", params: { applications } });
    const task = store.byName("service", application)?.spec?.task;
    const { nanoCpus, memoryBytes } = task?.resources?.reservations ?? {};
    return [nanoCpus, memoryBytes, task?.placement?.constraints];
  };
  const placed = ["node.platform.arch==x86_64", "node.labels.disk==ssd"];
  t.deepEqual(await deploy("plain", {}), [2e9, 64 * 2 ** 20, placed]);
  t.deepEqual(await deploy("own", { "cpu-power": 50, mem: 32, tags: [] }), [5e8, 32 * 2 ** 20, placed.slice(0, 1)]);

  for (const wrong of [{ spaces: ["a"] }, { mem: -1 }, { tags: ["a b"] }])
    t.not(await failureOf(() => client("SetModelConstraints", { constraints: wrong })), null, JSON.stringify(wrong));
  t.deepEqual(await client("GetModelConstraints"), { constraints }, "a rejected request changes nothing");
  t.deepEqual(await config("SetModelConstraints", { constraints: { "cpu-cores": 1 } }), {});
  t.deepEqual(await client("GetModelConstraints"), { constraints: { cores: 1 } }, "a set replaces all of them");
  await old.ask({ type: "Client", request: "SetEnvironmentConstraints", params: { Constraints: {} } });
  t.deepEqual(await client("GetModelConstraints"), { constraints: {} });
  t.deepEqual(await deploy("later", {}), [0, 0, []]);
  const gone = await failureOf(() => ask({ type: "Client", version: 7, request: "GetModelConstraints" }));
  t.is(gone?.code, "not supported");
  const operator = connect("V1", { kind: "user", name: "o", role: "operator" });
  const setting = { type: "Client", version: 2, request: "SetModelConstraints", params: { constraints: {} } };
  t.is((await failureOf(() => operator.ask(setting)))?.code, "unauthorized access");
});

test("access to the controller is granted and revoked: superuser means admin", async (t) => {
  const { connect, store } = await jsonWorld(t);
  const { ask } = connect("V1");
  await ask({
    type: "UserManager",
    version: 3,
    request: "AddUser",
    params: { users: [{ username: "ada", password: "correct horse" }] },
  });
  const change = async (action: string, access: string, user = "user-ada") => {
    const params = { changes: [{ "user-tag": user, action, access }] };
    const { results } = await ask({ type: "Controller", version: 11, request: "ModifyControllerAccess", params });
    return [(results as { error?: { code: string } }[])[0]?.error?.code, store.get("user", "user-ada")?.role];
  };
  t.deepEqual(await change("grant", "login"), [undefined, UserRole.USER_ROLE_READ_ONLY]);
  t.deepEqual(await change("grant", "superuser"), [undefined, UserRole.USER_ROLE_ADMIN]);
  t.deepEqual(await change("grant", "login"), [undefined, UserRole.USER_ROLE_ADMIN]);
  t.deepEqual(await change("revoke", "superuser"), [undefined, UserRole.USER_ROLE_READ_ONLY]);
  t.deepEqual(await change("revoke", "login"), ["not supported", UserRole.USER_ROLE_READ_ONLY]);
  t.deepEqual((await change("grant", "root"))[0], "bad request");
  t.deepEqual((await change("grant", "superuser", "user-nobody"))[0], "user not found");
  t.deepEqual((await change("grant", "superuser", "user-admin"))[0], "operation is blocked");
});

test("removing a requested unit that does not exist yet waits for it", async (t) => {
  const { connect, manager, store, settle } = await jsonWorld(t);
  manager.seed("node", workerNode("n1"));
  const { ask } = connect("V1");
  const app = (request: string, params: object) => ask({ type: "Application", version: 19, request, params });
  await app("Deploy", { applications: [{ application: "web", "charm-url": "redis:7", "num-units": 1 }] });
  const id = store.byName("service", "web")?.id ?? "";
  manager.seed("task", unit(id, 1));
  t.deepEqual(await app("AddUnits", { application: "web", "num-units": 1 }), { units: ["web/1"] });
  const gone = app("DestroyUnit", { units: [{ "unit-tag": "unit-web-1" }] });
  manager.seed("task", unit(id, 2));
  await settle();
  t.deepEqual(await gone, { results: [{ info: { "destroyed-storage": [], "detached-storage": [] } }] });
  t.is(store.get("service", id)?.spec?.replicated?.replicas, 1);
  t.is(store.get("task", `${id}2`), undefined);
  // Nobody requested this one.
  const never = app("DestroyUnit", { units: [{ "unit-tag": "unit-web-7" }] });
  t.like(await never, { results: [{ error: { code: "not found" } }] });
});

test("the names of new units are right even if their tasks exist before the answer", async (t) => {
  const { connect, manager, store } = await jsonWorld(t);
  manager.seed("node", workerNode("n1"));
  const { ask } = connect("V1");
  const app = (request: string, params: object) => ask({ type: "Application", version: 19, request, params });
  await app("Deploy", { applications: [{ application: "web", "charm-url": "redis:7", "num-units": 1 }] });
  const id = store.byName("service", "web")?.id ?? "";
  manager.seed("task", unit(id, 1));
  const watching = store.watch(() => {
    watching.unsubscribe();
    queueMicrotask(() => manager.seed("task", unit(id, 2)));
  });
  t.deepEqual(await app("AddUnits", { application: "web", "num-units": 1 }), { units: ["web/1"] });
});
