// What Juju's own command asks for beyond status: each request as its Go client of 3.6 writes it, and what that reads of the answer.
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

test("the state of models is told under the key that clients read", async (t) => {
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

test("what is not offered has another code than the one at which Go clients advise to install another client", async (t) => {
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

test("the model's configuration is set, shown and unset; what the cluster says of itself is not", async (t) => {
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
  t.deepEqual(await ask("GetModelConstraints"), { constraints: {} });
  t.deepEqual(await ask("SetModelConstraints", { constraints: {} }), {});
  t.is((await failureOf(() => ask("SetModelConstraints", { constraints: { mem: 1 } })))?.code, "not supported");
  const reader = connect("V1", { kind: "user", name: "r", role: "read-only" });
  const set = { type: "ModelConfig", version: 3, request: "ModelSet", params: { config: { a: "b" } } };
  t.is((await failureOf(() => reader.ask(set)))?.code, "unauthorized access");
});

test("access to the controller is given and taken: whoever is superuser is an admin", async (t) => {
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

test("a unit that was asked for and is not there yet is waited for when it is to go", async (t) => {
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
  // Nobody asked for this one.
  const never = app("DestroyUnit", { units: [{ "unit-tag": "unit-web-7" }] });
  t.like(await never, { results: [{ error: { code: "not found" } }] });
});

test("the names of new units are right also when their tasks are there before the answer", async (t) => {
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
