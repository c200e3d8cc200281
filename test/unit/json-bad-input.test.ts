// Bad input at the JSON API: every row of "What bad input gets" in docs/json-api.md, on a real port with all facades of a
// manager. Each test checks the documented answer, that the server still serves, and that nothing is left of the connection.
import { readFileSync } from "node:fs";
import test, { type ExecutionContext } from "ava";
import fc from "fast-check";
import { setPassword } from "../../actors/json/users.ts";
import type { Facade } from "../../edges/juju/facade.ts";
import { machineId } from "../../edges/juju/entities/names.ts";
import { failuresMax, pingMs, pongMs } from "../../machines/json/connection.machine.ts";
import { refusalsPerMinute } from "../../machines/json/login-rate.ts";
import { until } from "../fixtures/until.ts";
import { createdService, spec, workerNode } from "../support/control.ts";
import { jsonWorld, password, type Reply, type TestClient } from "../support/json-api.ts";
import { post } from "../support/json-post.ts";
import { call } from "../support/manager.ts";

type World = Awaited<ReturnType<typeof jsonWorld>>;

interface Scene extends World {
  /** Logs in as ada, an admin. */
  arrive(): Promise<TestClient>;
  /** Logs in as the agent of machine `n1`. */
  agent(): Promise<TestClient>;
}

/** A request of the newer shape. */
const ask = (id: number, type: string, request: string, more: object = {}) => ({
  "request-id": id,
  type,
  version: type === "Client" ? 6 : 1,
  request,
  ...more,
});
const refusal = (id: number, error: string, code: string): Reply => ({
  "request-id": id,
  error,
  "error-code": code,
  response: {},
});
const ping = (id: number) => ask(id, "Pinger", "Ping");
const pong = (id: number): Reply => ({ "request-id": id, response: {} });
const denied = (id: number): Reply => refusal(id, "permission denied", "unauthorized access");
const wrongPassword = refusal(1, "invalid entity name or password", "unauthorized access");

/** Requests that last until the connection ends, and requests with large replies. */
const slow: Facade = {
  type: "Slow",
  versions: [1],
  who: "users",
  id: "none",
  methods: {
    Hold: {
      needs: "read-only",
      run: ({ session }) =>
        new Promise((resolve) => session.signal.addEventListener("abort", () => resolve({}), { once: true })),
    },
    Echo: { needs: "read-only", run: ({ params }) => ({ text: params.text("text") }) },
  },
};

/** Expects this message to close its connection with this code. */
async function ends(t: ExecutionContext, { arrive }: Scene, message: string | Buffer, code: number): Promise<void> {
  const client = await arrive();
  client.socket.send(message);
  t.is(await client.closed, code, String(message).slice(0, 40));
}

const deep = "[".repeat(5_000);

const lines: Readonly<Record<string, (t: ExecutionContext, scene: Scene) => Promise<void>>> = {
  async "not JSON"(t, scene) {
    for (const text of ["hello", "", "{", '{"request-id":1', "\u0000", "NaN", '{"request-id":1}x'])
      await ends(t, scene, text, 1002);
    await ends(t, scene, Buffer.from("{}"), 1002);
  },

  async "JSON that is not an object"(t, scene) {
    for (const text of ["[]", '[{"request-id":1}]', '"x"', "7", "true", "null"]) await ends(t, scene, text, 1002);
  },

  async "wrong types"(t, scene) {
    for (const id of ['"1"', "-1", "1.5", "9007199254740993", "true", "{}", "[]"])
      await ends(t, scene, `{"request-id":${id},"type":"Pinger","request":"Ping"}`, 1002);
    const client = await scene.arrive();
    for (const [field, value, what] of [
      ["type", 7, "the type is not a string"],
      ["request", ["Ping"], "the request is not a string"],
      ["id", 1, "the id is not a string"],
      ["version", "1", "the version is not a whole number"],
      ["version", 1.5, "the version is not a whole number"],
      ["version", -1, "the version is not a whole number"],
      ["params", "none", "the params are not an object"],
      ["params", [], "the params are not an object"],
    ] as const)
      t.deepEqual(await client.ask({ ...ping(2), [field]: value }), refusal(2, what, "bad request"), field);
    const params = { application: 7 };
    t.deepEqual(
      await client.ask(ask(2, "Muster", "Rollout", { params })),
      refusal(2, "params.application is not a string", "bad request"),
    );
    t.deepEqual(await client.ask(ping(3)), pong(3));
  },

  async "unknown types"(t, { arrive }) {
    const client = await arrive();
    for (const type of ["Nothing", "", "__proto__", "constructor"]) {
      const told = refusal(2, `facade "${type}" is not supported by this controller`, "not supported");
      t.deepEqual(await client.ask(ask(2, type, "Get")), told);
    }
    const version = refusal(2, 'version (99) of facade "Client" is not supported by this controller', "not supported");
    t.deepEqual(await client.ask({ ...ask(2, "Client", "FullStatus"), version: 99 }), version);
  },

  async "unknown requests"(t, { arrive }) {
    const client = await arrive();
    for (const name of ["Nothing", "", "toString", "__proto__"]) {
      const text = `method Client(6).${name} is not supported by this controller`;
      t.deepEqual(await client.ask(ask(2, "Client", name)), refusal(2, text, "not supported"));
    }
  },

  async "unknown ids"(t, { arrive, agent }) {
    const client = await arrive();
    const watcher = { ...ask(2, "AllWatcher", "Next"), id: "77" };
    t.deepEqual(await client.ask(watcher), refusal(2, "unknown watcher id", "not found"));
    t.deepEqual(
      await client.ask({ ...ask(2, "Client", "FullStatus"), id: "77" }),
      refusal(2, "id not found", "not found"),
    );
    const old = { RequestId: 0, Type: "Service", Id: "nobody", Request: "Get" };
    const told = { RequestId: 0, Error: 'application "nobody" not found', ErrorCode: "not found", Response: {} };
    t.deepEqual(await client.ask(old), told);
    const machine = { RequestId: 0, Type: "Machine", Id: "99", Request: "Get" };
    t.like(await (await agent()).ask(machine), { Error: "machine 99 not found", ErrorCode: "not found" });
  },

  async "ids reused while outstanding"(t, { arrive }) {
    const client = await arrive();
    const { response } = await client.ask(ask(2, "Client", "WatchAll"));
    const id = (response as { "watcher-id": string })["watcher-id"];
    await client.ask({ ...ask(3, "AllWatcher", "Next"), id });
    client.send({ ...ask(4, "AllWatcher", "Next"), id });
    t.deepEqual(await client.ask(ping(4)), pong(4));
    t.deepEqual(
      await client.ask({ ...ask(4, "AllWatcher", "Stop"), id }),
      refusal(4, "watcher was stopped", "stopped"),
    );
    t.deepEqual(await client.next(), pong(4));
  },

  async "17 MB messages"(t, scene) {
    await ends(t, scene, "x".repeat(17_000_000), 1009);
    await ends(t, scene, JSON.stringify({ ...ping(2), params: { text: "x".repeat(17_000_000) } }), 1009);
  },

  async "deep nesting"(t, scene) {
    await ends(t, scene, deep, 1002);
    await ends(t, scene, `{"request-id":2,"type":"Pinger","request":"Ping","params":{"x":${deep}`, 1002);
  },

  async "a login storm"(t, { connect, clock, derived }) {
    let tries = 0;
    for (; tries + failuresMax <= refusalsPerMinute; tries += failuresMax) {
      const client = await connect();
      for (let n = 0; n < failuresMax; n += 1) t.deepEqual(await client.login("user-ada", `guess ${n}`), wrongPassword);
      t.is(await client.closed, 1008);
    }
    const before = derived.passwords;
    const clients = await Promise.all(Array.from({ length: 20 }, () => connect()));
    for (const reply of await Promise.all(clients.map((each) => each.login())))
      t.deepEqual(reply, refusal(1, "try again", "try again"));
    t.is(derived.passwords, before, "a rejected login derives no key");
    for (const { socket } of clients) socket.close();
    clock.advance(60_000);
  },

  async "a registration without the right key"(t, world) {
    const { derived } = world;
    const before = derived.passwords;
    const bytes = (length: number): string => Buffer.alloc(length, 1).toString("base64");
    const body = { user: "user-ada", nonce: bytes(24), "cipher-text": bytes(64) };
    const statusOf = async (fields: object): Promise<number> =>
      (await post(world, "/register", JSON.stringify(fields))).status;
    t.is(await statusOf(body), 401);
    t.is(await statusOf({ ...body, user: "user-nobody" }), 401);
    t.is(await statusOf({ user: "user-ada" }), 400);
    t.is(await statusOf({ ...body, "cipher-text": bytes(20_000) }), 413);
    t.is(derived.passwords, before, "no password is hashed");
  },

  async "a wrong password"(t, { connect, derived }) {
    for (const tag of ["user-ada", "user-nobody", `machine-${machineId("n1")}`, "machine-1", "nonsense"]) {
      const client = await connect();
      const before = derived.passwords;
      t.deepEqual(await client.login(tag, "wrong"), wrongPassword, tag);
      t.is(derived.passwords, before + 1, `${tag} costs as much as any other`);
      client.socket.close();
    }
  },

  async "requests before login"(t, { connect }) {
    const client = await connect();
    for (const request of [
      ping(2),
      ask(2, "Client", "FullStatus"),
      ask(2, "Nothing", ""),
      { "request-id": 2, type: 7 },
    ])
      t.deepEqual(await client.ask(request), denied(2));
    t.like(await client.ask({ RequestId: 0, Type: "Machine", Id: "99", Request: "Get" }), {
      Error: "permission denied",
      ErrorCode: "unauthorized access",
    });
  },

  async "an agent reaching for another machine"(t, { agent }) {
    const client = await agent();
    const of = (id: string, request: string, params = {}) =>
      client.ask({ RequestId: 5, Type: "Machine", Id: id, Request: request, Params: params });
    t.like(await of(machineId("n1"), "Get"), { Response: { Id: machineId("n1") } });
    const refused = {
      RequestId: 5,
      Error: "permission denied",
      ErrorCode: "unauthorized access",
      Response: {},
    };
    for (const request of ["Get", "Life", "Watch", "WatchUnits", "Status", "SetStatus", "SetAgentAlive", "Remove"])
      t.deepEqual(await of(machineId("n2"), request, { Status: "down" }), refused, request);
    t.deepEqual(await of(machineId("n2"), "SetPassword", { Password: "another" }), refused);
    t.deepEqual(await client.ask({ ...ask(6, "Client", "FullStatus") }), denied(6));
  },

  async "`Next` on a stopped or foreign watcher"(t, { arrive }) {
    const [client, other] = [await arrive(), await arrive()];
    const { response } = await client.ask(ask(2, "Client", "WatchAll"));
    const id = (response as { "watcher-id": string })["watcher-id"];
    const unknown = refusal(3, "unknown watcher id", "not found");
    t.deepEqual(await other.ask({ ...ask(3, "AllWatcher", "Next"), id }), unknown, "another connection's");
    t.deepEqual(await client.ask({ ...ask(3, "NotifyWatcher", "Next"), id }), unknown, "another type's");
    t.deepEqual(await client.ask({ ...ask(4, "AllWatcher", "Stop"), id }), pong(4));
    for (const request of ["Next", "Stop"])
      t.deepEqual(await client.ask({ ...ask(3, "AllWatcher", request), id }), unknown, request);
  },

  async "a half-open connection"(t, scene) {
    const client = await scene.arrive();
    await client.ask(ask(2, "Client", "WatchAll"));
    client.send(ask(3, "Slow", "Hold"));
    await until("the request", () => scene.waiting.requests === 1);
    // As if the peer had vanished: nothing that arrives is answered.
    client.socket.pause();
    scene.clock.advance(pingMs + 1);
    scene.clock.advance(pongMs + 1);
    client.socket.resume();
    t.is(await client.closed, 1006, "cut off, without a close frame");
  },

  async "a client that stops reading"(t, scene) {
    const client = await scene.arrive();
    client.socket.pause();
    const text = "y".repeat(100_000);
    for (let id = 2; id < 300; id += 1) client.send(ask(id, "Slow", "Echo", { params: { text } }));
    const good = await scene.arrive();
    for (let id = 2; id < 10; id += 1) t.deepEqual(await good.ask(ping(id)), pong(id));
    good.socket.close();
    await until("the client to be cut off", async () => {
      scene.clock.advance(1_000);
      return scene.listener.connections === 0;
    });
  },
};

/** A machine and its agent, another machine, a service, an admin. */
async function scene(t: ExecutionContext): Promise<Scene> {
  const world = await jsonWorld(t, { facades: "all", extra: [slow] });
  await world.addUser("ada");
  world.seed("node", workerNode("n1"), workerNode("n2"));
  await createdService(world.control, spec("web", 1));
  await setPassword(world.env, world.passwords, { kind: "machine", nodeId: "n1" }, password, call());
  const loggedIn = async (tag: string): Promise<TestClient> => {
    const client = await world.connect();
    const { error } = await client.login(tag);
    if (error !== undefined) throw new Error(JSON.stringify(error));
    return client;
  };
  return { ...world, arrive: () => loggedIn("user-ada"), agent: () => loggedIn(`machine-${machineId("n1")}`) };
}

/** No connection, no request, and no chart of a connection or watcher remains. */
async function nothingIsLeft({ env, listener, waiting }: World): Promise<void> {
  await until("everything to be released", () => {
    const charts = [...env.host.ids()].filter((id) => /^json-(?:connection|watcher)\//.test(id));
    if (listener.connections > 0 || waiting.requests > 0 || charts.length > 0)
      throw new Error(`${listener.connections} connections, ${waiting.requests} requests, ${charts.join(" ")}`);
    return true;
  });
}

for (const [line, tries] of Object.entries(lines)) {
  test(`bad input: ${line}`, async (t) => {
    const made = await scene(t);
    await tries(t, made);
    const good = await made.arrive();
    t.deepEqual(await good.ask(ping(2)), pong(2), "the server lives");
    for (const { socket } of made.clients) socket.close();
    await nothingIsLeft(made);
  });
}

test("docs/json-api.md lists exactly the inputs that are tested", (t) => {
  const page = readFileSync(new URL("../../docs/json-api.md", import.meta.url), "utf8");
  const [, section = ""] = page.split("\n## What bad input gets\n");
  const told = [...(section.split("\n## ")[0] ?? "").matchAll(/^\| ([^|]+?) \|/gm)].map(([, line]) => line);
  t.deepEqual(told.slice(1), Object.keys(lines));
});

const samples: readonly object[] = [
  ask(2, "Client", "FullStatus", { params: { patterns: ["web"] } }),
  ask(2, "Client", "WatchAll"),
  ask(2, "AllWatcher", "Next", { id: "1" }),
  ask(2, "AllWatcher", "Stop", { id: "1" }),
  ask(2, "Muster", "Logs", { params: { applications: ["web"], tail: 5, since: "2026-01-02T15:04:05Z" } }),
  ask(2, "Muster", "WatchLogs", { params: { applications: ["web"] } }),
  ask(2, "LogsWatcher", "Next", { id: "1" }),
  ask(2, "Muster", "Plan", { params: { application: "web", scale: 2, config: { A: "1" }, constraints: { mem: 5 } } }),
  ask(2, "Muster", "PlanRebalance", { params: { applications: ["web"] } }),
  ask(2, "Muster", "Promote", { params: { machine: "7" } }),
  ask(2, "Muster", "Control", {
    params: { method: "CreateService", request: { spec: { annotations: { name: "x", labels: { a: "b" } } } } },
  }),
  ask(2, "Muster", "Signal", { params: { unit: "web/0", signal: "HUP" } }),
  {
    ...ask(2, "Application", "Deploy"),
    version: 17,
    params: { applications: [{ application: "x", "charm-url": "y" }] },
  },
  { ...ask(2, "Application", "ScaleApplications"), version: 17, params: { applications: [{ scale: 2 }] } },
  { ...ask(2, "Annotations", "Set"), version: 2, params: { annotations: [{ entity: "application-web" }] } },
  { ...ask(2, "UserManager", "UserInfo"), version: 3, params: { entities: [{ tag: "user-ada" }] } },
  { ...ask(2, "ModelManager", "ModelInfo"), version: 9, params: { entities: [{ tag: "model-x" }] } },
  { RequestId: 2, Type: "Client", Request: "ServiceDeploy", Params: { ServiceName: "x", CharmUrl: "y", NumUnits: 1 } },
  { RequestId: 2, Type: "Service", Id: "web", Request: "WatchUnits" },
  { RequestId: 2, Type: "ServiceUnitsWatcher", Id: "1", Request: "Next" },
];

/** Changes a nested value: to another, to nothing, or under another name. */
function mutated(value: unknown, path: readonly number[], to: unknown, how: "set" | "drop" | "rename"): unknown {
  const [at = 0, ...rest] = path;
  if (typeof value !== "object" || value === null) return to;
  const entries = Object.entries(value);
  const chosen = entries[at % Math.max(1, entries.length)];
  if (chosen === undefined) return to;
  const [key, below] = chosen;
  const isLeaf = rest.length === 0 || typeof below !== "object" || below === null;
  const next = isLeaf ? to : mutated(below, rest, to, how);
  if (Array.isArray(value)) return value.map((each: unknown, index) => (String(index) === key ? next : each));
  const others = Object.fromEntries(entries.filter(([name]) => name !== key));
  if (isLeaf && how === "drop") return others;
  return { ...others, [isLeaf && how === "rename" ? key.toUpperCase() : key]: next };
}

test("fuzz: each nearly valid request is answered once without an internal error, or the connection ends and leaves nothing", async (t) => {
  const made = await scene(t);
  const request = fc
    .tuple(
      fc.constantFrom(...samples),
      fc.array(fc.nat({ max: 8 }), { maxLength: 4 }),
      fc.jsonValue({ maxDepth: 2 }),
      fc.constantFrom("set" as const, "drop" as const, "rename" as const),
    )
    .map(([sample, path, to, how]) => mutated(sample, path, to, how));
  await fc.assert(
    fc.asyncProperty(fc.array(request, { minLength: 1, maxLength: 12 }), async (requests) => {
      const client = await made.arrive();
      const replies: Reply[] = [];
      const answered = new Promise<void>((resolve) =>
        client.socket.on("message", (data: Buffer) => {
          const reply = JSON.parse(data.toString("utf8")) as Reply;
          replies.push(reply);
          if (reply["request-id"] === 99) resolve();
        }),
      );
      requests.forEach((each, at) => {
        const key = Object.keys(Object(each) as object).find((name) => /^request-?id$/i.test(name));
        // Distinct ids, so that each answer can be matched.
        const renamed = key === undefined ? each : { ...(each as object), [key]: 100 + at };
        client.send(JSON.stringify(renamed));
      });
      client.send(ping(99));
      await Promise.race([client.closed, answered]);
      client.socket.close();
      await client.closed;
      await nothingIsLeft(made);
      const ids = replies.map((reply) => reply["request-id"] ?? reply["RequestId"]);
      t.is(new Set(ids).size, ids.length, "none is answered twice");
      for (const reply of replies) {
        t.true(("response" in reply ? 1 : 0) + ("Response" in reply ? 1 : 0) === 1, "each has a response of its shape");
        t.not(reply["error"] ?? reply["Error"], "internal error", JSON.stringify(requests));
      }
    }),
    { numRuns: 40 },
  );
  const good = await made.arrive();
  t.deepEqual(await good.ask(ping(2)), pong(2));
});
