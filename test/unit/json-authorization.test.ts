// Authorization: every request of every type, by every kind of user, against one table.
import { readFileSync } from "node:fs";
import test from "ava";
import { authorize, Registry } from "../../edges/juju/dispatch.ts";
import { type Call, type Facade, type Identity, type Session } from "../../edges/juju/facade.ts";
import { isAtLeast } from "../../runtime/user-roles.ts";
import { machineId } from "../../edges/juju/entities/names.ts";
import { Params } from "../../edges/juju/params.ts";
import { RequestError } from "../../edges/juju/request-error.ts";
import { Resources } from "../../edges/juju/resources.ts";
import {
  Annotations,
  Node,
  NodeRole,
  Service,
  ServiceSpec,
  Task,
  TaskSpec,
  TaskState,
  TaskStatus,
  User,
  UserRole,
} from "../../proto/gen/messages.ts";
import { workerNode } from "../support/control.ts";
import { jsonWorld as connected } from "../support/json-api.ts";
import { failureOf, jsonWorld } from "../support/json-world.ts";
import { call } from "../support/manager.ts";

const identities: readonly Identity[] = [
  { kind: "user", name: "ada", role: "read-only" },
  { kind: "user", name: "ada", role: "operator" },
  { kind: "user", name: "ada", role: "admin" },
  { kind: "machine", nodeId: "n1" },
  { kind: "machine", nodeId: "n2" },
  { kind: "unit", taskId: "t1" },
];
const nameOf = (identity: Identity): string => (identity.kind === "user" ? identity.role : identity.kind);

/** Requests whose name says that they change something; all others only read. */
const changes =
  /^(Add|Authorise|Cancel|Consume|Deploy|Destroy|Enqueue|Ensure|Expose|Merge|Provision|Remove|Resolve|Run|Scale|Service(Add|Deploy|Destroy|Expose|Set|Unexpose|Unset|Update)|Set|Unexpose|Unset|Update)/;
/** Their names suggest a change, but they affect only their own connection. */
const harmless = new Set(["SetAgentAlive"]);

function callOf(facade: Facade, request: string, version: number, identity: Identity): Call {
  const resources = new Resources();
  const id = facade.id === "watcher" ? resources.add(facade.type, { stop: () => undefined }) : "";
  const session: Session = {
    tag: "",
    identity,
    scope: facade.scope ?? "model",
    resources,
    clientMajor: 3,
    signal: new AbortController().signal,
  };
  return {
    shape: facade.shape ?? "V1",
    type: facade.type,
    version,
    id,
    request,
    params: Params.of({}),
    session,
    rpc: call(),
  };
}

function refusalOf(facade: Facade, asked: Call): string | null {
  try {
    authorize(facade, asked);
    return null;
  } catch (error) {
    if (error instanceof RequestError) return error.message;
    throw error;
  }
}

const who: readonly Identity[] = [...identities, { kind: "user", name: "bob", role: "admin" }];

test("users can call users' types within their role, agents agents' types, and neither the other's", async (t) => {
  const { facades } = await jsonWorld(t);
  let asked = 0;
  for (const facade of facades) {
    for (const [request, method] of Object.entries(facade.methods)) {
      const [version = 0] = method.versions ?? facade.versions;
      for (const identity of identities) {
        const refused = refusalOf(facade, callOf(facade, request, version, identity));
        const what = `${nameOf(identity)} at ${facade.type}(${version}).${request}`;
        const isUser = identity.kind === "user";
        asked += 1;
        if (facade.who !== "everybody" && (facade.who === "users") !== isUser) {
          t.is(refused, "permission denied", what);
        } else if (isUser && !isAtLeast(identity.role, method.needs) && facade.id !== "entity") {
          t.is(refused, "permission denied", what);
        } else if (isUser && facade.id === "none" && method.allows === undefined && facade.admits === undefined) {
          if (facade.lookUp === undefined) t.is(refused, null, what);
        }
      }
    }
  }
  t.true(asked > 300, String(asked));
});

test("changing requests need a higher role than reading ones", async (t) => {
  const { facades } = await jsonWorld(t);
  for (const facade of facades) {
    for (const [request, { needs, allows }] of Object.entries(facade.methods)) {
      if (facade.who === "agents" || !changes.test(request) || harmless.has(request)) continue;
      const isOwn = facade.admits !== undefined || allows !== undefined;
      t.true(needs !== "read-only" || isOwn, `${facade.type}.${request} changes something and needs ${needs}`);
    }
  }
});

test("a user with little access learns no name that they may not see", async (t) => {
  const { facades, seed } = await jsonWorld(t);
  seed("node", workerNode("n1"), workerNode("n2"));
  for (const facade of facades.filter(({ admits }) => admits !== undefined)) {
    for (const [request, method] of Object.entries(facade.methods)) {
      const [version = 0] = method.versions ?? facade.versions;
      for (const identity of who) {
        const asked = callOf(facade, request, version, identity);
        const [there, nowhere] = ["user-ada", "user-nobody"].map((id) => refusalOf(facade, { ...asked, id }));
        t.is(nowhere, "permission denied");
        if (there !== null) t.is(nowhere, there, `${nameOf(identity)} at ${facade.type}.${request}`);
      }
    }
  }
});

test("before login each request of each type is denied in the same words, including unknown ones", async (t) => {
  const { facades } = await jsonWorld(t);
  const { connect } = await connected(t, { facades });
  const client = await connect();
  let requestId = 0;
  for (const type of [...new Set(facades.map((each) => each.type)), "Nothing"]) {
    for (const request of [
      "Get",
      "FullStatus",
      ...facades.flatMap((each) => (each.type === type ? Object.keys(each.methods) : [])),
    ]) {
      requestId += 1;
      t.deepEqual(await client.ask({ "request-id": requestId, type, request, id: "1" }), {
        "request-id": requestId,
        error: "permission denied",
        "error-code": "unauthorized access",
        response: {},
      });
    }
  }
});

test("a controller connection is offered the controller's facades, and the error for others says so", async (t) => {
  const { facades } = await jsonWorld(t);
  const registry = new Registry(facades);
  const session = { identity: identities[2] as Identity, scope: "controller" as const };
  const names = registry.list("V1", session).map(({ name }) => name);
  for (const name of ["ModelManager", "Controller", "ModelConfig", "Pinger"]) t.true(names.includes(name), name);
  for (const name of ["Client", "Application", "AllWatcher"]) t.false(names.includes(name), name);
  const client = facades.find(({ type, shape }) => type === "Client" && shape !== "V0") as Facade;
  const asked = callOf(client, "FullStatus", client.versions[0] ?? 0, session.identity);
  t.is(
    refusalOf(client, { ...asked, session: { ...asked.session, scope: "controller" } }),
    'facade "Client" not supported for controller API connection',
  );
});

test("every user can change their own password, a node those of its tasks, and a manager those of all nodes", async (t) => {
  const { connect, store, seed } = await jsonWorld(t);
  seed("node", Node.patch(workerNode("boss"), { role: NodeRole.MANAGER }), workerNode("n1"), workerNode("n2"));
  seed("user", User.create({ id: "user-ada", role: UserRole.USER_ROLE_READ_ONLY }));
  const service = Service.create({
    id: "s1",
    spec: ServiceSpec.create({ annotations: Annotations.create({ name: "web" }), task: TaskSpec.create({}) }),
  });
  seed("service", service);
  const status = TaskStatus.create({ state: TaskState.RUNNING });
  seed(
    "task",
    Task.create({ id: "t1", serviceId: "s1", slot: 1, nodeId: "n1", status, desiredState: TaskState.RUNNING }),
  );
  const setting = (type: string, id: string) => ({
    type,
    id,
    request: "SetPassword",
    params: { Password: "12345678" },
  });
  const may = async (identity: Identity, type: string, id: string): Promise<boolean> => {
    const refused = await failureOf(() => connect("V0", identity).ask(setting(type, id)));
    if (refused !== null) t.deepEqual(refused, { message: "permission denied", code: "unauthorized access" });
    return refused === null;
  };
  const [ada, n1, n2, boss, unit] = [
    { kind: "user", name: "ada", role: "read-only" },
    { kind: "machine", nodeId: "n1" },
    { kind: "machine", nodeId: "n2" },
    { kind: "machine", nodeId: "boss" },
    { kind: "unit", taskId: "t1" },
  ] as const;
  const table = [
    [ada, "User", "user-ada", true],
    [ada, "User", "user-bob", false],
    [ada, "Machine", machineId("n1"), false],
    [n1, "User", "user-ada", false],
    [n1, "Machine", machineId("n1"), true],
    [n2, "Machine", machineId("n1"), false],
    [boss, "Machine", machineId("n1"), true],
    [unit, "Machine", machineId("n1"), false],
    [n1, "Unit", "web/0", true],
    [n2, "Unit", "web/0", false],
    [unit, "Unit", "web/0", true],
  ] as const;
  for (const [identity, type, id, expected] of table)
    t.is(await may(identity, type, id), expected, `${JSON.stringify(identity)} ${type} ${id}`);
  t.deepEqual([...store.all("user")].map(({ id }) => id).toSorted(), ["node-n1", "task-t1", "user-ada"]);
  t.like(await failureOf(() => connect("V0", n1).ask({ ...setting("Machine", machineId("n1")), params: {} })), {
    message: "password is empty",
  });
});

test("docs/json-api.md lists the actual facades and versions", async (t) => {
  const { facades } = await jsonWorld(t);
  const registry = new Registry(facades);
  const identity = identities[2] as Identity;
  const listed = (shape: "V0" | "V1", scope: "model" | "controller") =>
    new Map(registry.list(shape, { identity, scope }).map(({ name, versions }) => [name, versions.join(", ")]));
  const [old, newer, controller] = [listed("V0", "model"), listed("V1", "model"), listed("V1", "controller")];
  const row = (...cells: readonly string[]) => `|${cells.map((cell) => (cell === "" ? " " : ` ${cell} `)).join("|")}|`;
  const page = readFileSync(new URL("../../docs/json-api.md", import.meta.url), "utf8");
  for (const name of new Set([...old.keys(), ...newer.keys()])) {
    const wanted = row(name, old.get(name) ?? "", newer.get(name) ?? "", controller.has(name) ? "yes" : "");
    t.true(page.includes(`\n${wanted}\n`), wanted);
  }
});
