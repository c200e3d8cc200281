import test from "ava";
import { X509Certificate } from "node:crypto";
import { connect as connectTls } from "node:tls";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { pinger } from "../../edges/juju/facades/pinger.ts";
import type { Facade } from "../../edges/juju/facade.ts";
import { modelUuid } from "../../edges/juju/model.ts";
import { machineId } from "../../edges/juju/entities/names.ts";
import { startJsonCertificate } from "../../actors/json/certificate.ts";
import { setPassword } from "../../actors/json/users.ts";
import { failuresMax } from "../../machines/json/connection.machine.ts";
import { refusalsPerMinute } from "../../machines/json/login-rate.ts";
import { Cluster, GrantUserRequest, RemoveUserRequest, RootCA, UserRole } from "../../proto/gen/messages.ts";
import * as pki from "../../lib/pki/index.ts";
import { until } from "../fixtures/until.ts";
import { call, testManager } from "../support/manager.ts";
import { workerNode } from "../support/control.ts";
import { jsonWorld, password } from "../support/json-api.ts";

const refused = {
  "request-id": 1,
  error: "invalid entity name or password",
  "error-code": "unauthorized access",
  response: {},
};
const ping = { "request-id": 2, type: "Pinger", version: 1, request: "Ping" };
const denied = { "request-id": 2, error: "permission denied", "error-code": "unauthorized access", response: {} };

/** Requests for operators only, and for agents. */
const probe: Facade = {
  type: "Probe",
  versions: [1],
  who: "users",
  id: "none",
  methods: { Look: { needs: "read-only", run: () => ({}) }, Change: { needs: "operator", run: () => ({}) } },
};
const agents: Facade = {
  ...probe,
  type: "Agents",
  who: "agents",
  methods: { Look: { needs: "admin", run: () => ({}) } },
};

test("a user of 3.x logs in and gets their identity and access", async (t) => {
  const { connect, addUser, store } = await jsonWorld(t, { facades: [pinger, probe, agents] });
  await addUser("ada", UserRole.USER_ROLE_OPERATOR);
  const id = [...store.all("cluster")][0]?.id ?? "";
  const client = await connect(`/model/${modelUuid(id)}/api`);
  const { response, ...rest } = await client.login();
  t.deepEqual(rest, { "request-id": 1 });
  t.like(response, {
    "model-tag": `model-${modelUuid(id)}`,
    "user-info": { identity: "user-ada", "controller-access": "login", "model-access": "write" },
    "server-version": "3.5.2",
    servers: [[{ value: "192.0.2.1", port: 17_070, type: "ipv4", scope: "public" }]],
    facades: [
      { name: "Pinger", versions: [0, 1] },
      { name: "Probe", versions: [1] },
    ],
  });
  t.deepEqual(await client.ask(ping), { "request-id": 2, response: {} });
});

test("the server's major version is the client's", async (t) => {
  const { connect, addUser } = await jsonWorld(t);
  await addUser("ada");
  for (const [sent, told] of [
    ["2.9.31", "2.9.31"],
    ["4.0.12", "4.0.12"],
    ["", "2.9.31"],
    ["9.1", "3.5.2"],
  ]) {
    const client = await connect("/api");
    const params = { "auth-tag": "user-ada", credentials: password, "client-version": sent };
    const reply = await client.ask({ "request-id": 1, type: "Admin", version: 3, request: "Login", params });
    t.like(reply["response"], { "server-version": told });
    t.false("model-tag" in (reply["response"] as object), "a controller connection has no model");
  }
});

test("users of 1.x log in by each version of Admin and by each name of the params", async (t) => {
  const { connect, addUser, store } = await jsonWorld(t, { facades: [pinger] });
  await addUser("ada");
  const id = [...store.all("cluster")][0]?.id ?? "";
  const environ = `environment-${modelUuid(id)}`;
  const seed = await connect();
  t.like(
    await seed.ask({ RequestId: 0, Type: "Admin", Request: "Login", Params: { Tag: "user-ada", Password: password } }),
    { RequestId: 0, Response: { EnvironTag: environ, LastConnection: null } },
  );
  const old = await connect(`/environment/${modelUuid(id)}/api`);
  const both = { AuthTag: "user-ada", Password: password, "auth-tag": "user-ada", credentials: password };
  t.like(await old.ask({ RequestId: 1, Type: "Admin", Version: 0, Request: "Login", Params: both }), {
    Response: { Facades: [{ Name: "Pinger", Versions: [0, 1] }], EnvironTag: environ },
  });
  const newer = await connect();
  t.like(await newer.ask({ RequestId: 1, Type: "Admin", Version: 2, Request: "Login", Params: both }), {
    Response: { facades: [{ Name: "Pinger", Versions: [0, 1] }], "environ-tag": environ, "server-version": "1.24.5" },
  });
});

test("newer versions are rejected for 1.x so that 1.24 falls back, and old logins in the new shape as 3.x does", async (t) => {
  const { connect } = await jsonWorld(t);
  const client = await connect();
  t.like(await client.ask({ RequestId: 1, Type: "Admin", Version: 3, Request: "Login", Params: {} }), {
    ErrorCode: "not implemented",
  });
  t.like(await client.ask({ "request-id": 1, type: "Admin", version: 2, request: "Login" }), {
    error: "this version of Juju does not support login from old clients",
    "error-code": "not supported",
  });
  t.like(await client.ask({ "request-id": 1, type: "Admin", version: 3, request: "Logout" }), {
    "error-code": "not implemented",
  });
});

test("JA1: an unknown user, a wrong password and an invalid tag get the same error", async (t) => {
  const { connect, addUser } = await jsonWorld(t);
  await addUser("ada");
  for (const tag of ["user-ada", "user-bob", "user-jujuanonymous", "machine-7", "unit-web-0", "nonsense", "user-"]) {
    const client = await connect();
    t.deepEqual(await client.login(tag, "wrong password"), refused, tag);
  }
  const client = await connect();
  t.like(await client.login("user-ada", ""), { error: "no credentials provided" });
  const old = { RequestId: 0, Type: "Admin", Request: "Login", Params: { AuthTag: "user-ada", Password: "" } };
  t.deepEqual(await client.ask(old), {
    RequestId: 0,
    Error: "invalid entity name or password",
    ErrorCode: "unauthorized access",
    Response: {},
  });
});

test("JC1: before login everything but Admin is denied, also requests right behind a login", async (t) => {
  const { connect, addUser } = await jsonWorld(t, { facades: [pinger] });
  await addUser("ada");
  const client = await connect();
  t.deepEqual(await client.ask(ping), denied);
  t.deepEqual(await client.ask({ ...ping, type: "NoSuchThing" }), denied);
  t.deepEqual(await client.ask({ ...ping, type: 7 }), denied);
  t.like(await client.ask({ RequestId: 0, Type: "Machine", Id: "0", Request: "Get" }), {
    Error: "permission denied",
    ErrorCode: "unauthorized access",
  });
  const first = client.login();
  client.send(ping);
  t.deepEqual(await first, denied);
  t.like(await client.next(), { "request-id": 1, response: { "user-info": { identity: "user-ada" } } });
  t.like(await client.login(), { error: "already logged in" });
  t.deepEqual(await client.ask(ping), { "request-id": 2, response: {} });
});

test("a version sent ahead applies to later requests, and a wrong one changes nothing", async (t) => {
  const seen: number[] = [];
  const versioned = (versions: readonly number[]): Facade => ({
    ...probe,
    type: "Charms",
    versions,
    methods: { List: { needs: "read-only", run: ({ version }) => ({ seen: seen.push(version) }) } },
  });
  const { connect, addUser } = await jsonWorld(t, { facades: [versioned([0]), versioned([1])] });
  await addUser("ada");
  const client = await connect();
  const version = (wanted: unknown, id: number) => ({
    RequestId: id,
    Type: "Admin",
    Request: "Version",
    Params: wanted === undefined ? {} : { Version: wanted },
  });
  for (const wrong of [undefined, -1, 1.5, "1", null])
    t.like(await client.ask(version(wrong, 3)), { ErrorCode: "bad request" });
  const list = (id: number) => ({ RequestId: id, Type: "Charms", Request: "List" });
  await client.login();
  await client.ask(list(4));
  t.deepEqual(await client.ask(version(7, 5)), { RequestId: 5, Response: { Version: 1 } });
  await client.ask(list(6));
  t.deepEqual(await client.ask(version(0, 7)), { RequestId: 7, Response: { Version: 0 } });
  await client.ask(list(8));
  t.deepEqual(seen, [0, 1, 0]);
});

test("an unknown model is reported to each request; other paths are not WebSockets", async (t) => {
  const { connect, addUser } = await jsonWorld(t, { facades: [pinger] });
  await addUser("ada");
  const client = await connect("/model/00000000-0000-0000-0000-000000000000/api");
  const error = 'unknown model: "00000000-0000-0000-0000-000000000000"';
  t.like(await client.login(), { error, "error-code": "model not found" });
  t.like(await client.ask(ping), { error });
  const old = await connect("/environment/other/api");
  t.like(await old.ask({ RequestId: 1, Type: "Client", Request: "Status" }), {
    Error: 'unknown environment: "other"',
    ErrorCode: "not found",
  });
  await t.throwsAsync(connect("/nowhere"), { message: /404/ });
});

test("logins are redirected to where they are accepted", async (t) => {
  const { connect, addUser, rootPem } = await jsonWorld(t, { redirect: [{ host: "example.net", port: 443 }] });
  await addUser("ada");
  const client = await connect();
  const asked = { "request-id": 3, type: "Admin", version: 3, request: "RedirectInfo" };
  t.like(await client.ask(asked), { error: "not redirected" });
  const servers = [[{ value: "example.net", type: "hostname", scope: "public", port: 443 }]];
  t.like(await client.login(), {
    error: "redirection required",
    "error-code": "redirection required",
    "error-info": { servers, "ca-cert": rootPem },
  });
  t.deepEqual((await client.ask(asked))["response"], { servers, "ca-cert": rootPem });
});

test("a role's rights apply at once when it changes, and agents and users cannot call each other's types", async (t) => {
  const { connect, addUser, users, manager, passwords, store } = await jsonWorld(t, { facades: [probe, agents] });
  await addUser("ada", UserRole.USER_ROLE_READ_ONLY);
  manager.seed("node", workerNode("n1"));
  await setPassword(manager.env, passwords, { kind: "machine", nodeId: "n1" }, password, call());
  const client = await connect();
  await client.login();
  const ask = (type: string, request: string) => ({ "request-id": 2, type, version: 1, request });
  t.deepEqual(await client.ask(ask("Probe", "Look")), { "request-id": 2, response: {} });
  t.deepEqual(await client.ask(ask("Probe", "Change")), denied);
  t.deepEqual(await client.ask(ask("Agents", "Look")), denied);
  await users.GrantUser(GrantUserRequest.create({ name: "ada", role: UserRole.USER_ROLE_OPERATOR }), call());
  t.deepEqual(await client.ask(ask("Probe", "Change")), { "request-id": 2, response: {} });
  const agent = await connect();
  const { response } = await agent.login(`machine-${machineId("n1")}`);
  t.like(response, { facades: [{ name: "Agents", versions: [1] }] });
  t.deepEqual(await agent.ask(ask("Agents", "Look")), { "request-id": 2, response: {} });
  t.deepEqual(await agent.ask(ask("Probe", "Look")), denied);
  t.is(store.count("user"), 2);
});

test("JA2: a removed user is disconnected, and so is the agent of a removed node", async (t) => {
  const { connect, addUser, users, manager, passwords } = await jsonWorld(t);
  await addUser("ada");
  manager.seed("node", workerNode("n1"));
  await setPassword(manager.env, passwords, { kind: "machine", nodeId: "n1" }, password, call());
  const [client, agent] = [await connect(), await connect()];
  await client.login();
  await agent.login(`machine-${machineId("n1")}`);
  await users.RemoveUser(RemoveUserRequest.create({ name: "ada" }), call());
  t.is(await client.closed, 1008);
  manager.drop("node", "n1");
  t.is(await agent.closed, 1008);
  const again = await connect();
  t.deepEqual(await again.login(), refused);
});

/** Two nodes, one of which has a certificate of the cluster's root. */
async function certified(world: Awaited<ReturnType<typeof jsonWorld>>) {
  const { store, manager } = world;
  const [cluster] = [...store.all("cluster")];
  manager.seed("node", workerNode("n1"), workerNode("n2"));
  const { keyPem: key, csrPem } = await pki.createKeyAndCsr();
  const text = new TextDecoder();
  const cert = await pki.issue({
    csrPem,
    rootCertificatePem: text.decode(cluster?.rootCa?.caCert),
    rootKeyPem: text.decode(cluster?.rootCa?.caKey),
    nodeId: "n1",
    role: "swarm-worker",
    organization: cluster?.id ?? "",
    validitySeconds: 3_600,
    nowMs: Date.now(),
  });
  return { cert, key };
}

/** Replaces the cluster's root; no chain leads to it from the former one. */
async function replaceRoot({ manager, store }: Awaited<ReturnType<typeof jsonWorld>>) {
  const root = await pki.createRoot({ nowMs: Date.now() });
  const [cluster] = [...store.all("cluster")];
  const bytes = new TextEncoder();
  const rootCa = RootCA.patch(cluster?.rootCa ?? RootCA.create({}), {
    caCert: bytes.encode(root.certificatePem),
    caKey: bytes.encode(root.keyPem),
  });
  manager.seed("cluster", Cluster.patch(cluster ?? Cluster.create({}), { rootCa }));
  manager.clock.advance(1);
  return root;
}

test("a node's agent logs in by its certificate alone, and only as that node", async (t) => {
  const world = await jsonWorld(t, { facades: [pinger] });
  const { connect, port } = world;
  const { cert, key } = await certified(world);
  const client = await connect("/", { cert, key });
  t.deepEqual(await client.login(`machine-${machineId("n2")}`, "x"), refused);
  t.like(await client.login(`machine-${machineId("n1")}`, ""), {
    response: { "user-info": { identity: `machine-${machineId("n1")}` } },
  });
  // The other port requests no certificate, and so sees none.
  const elsewhere = await connect("/", { cert, key, to: port });
  t.like(await elsewhere.login(`machine-${machineId("n1")}`, ""), { error: "no credentials provided" });
});

test("the browsers' port requests no certificate; the agents' port does", async (t) => {
  const { port, listener } = await jsonWorld(t);
  const asked = (to: number): Promise<boolean> =>
    new Promise((resolve, reject) => {
      const args = ["s_client", "-connect", `127.0.0.1:${to}`, "-tls1_2"];
      const client = execFile("openssl", args, (error, stdout) =>
        error === null ? resolve(/Client Certificate Types/.test(stdout)) : reject(error),
      );
      client.stdin?.end();
    });
  t.deepEqual([await asked(port), await asked(listener.agentPort ?? 0)], [false, true]);
});

test("pages of other origins are rejected at the handshake; programs, the own origin and listed ones are not", async (t) => {
  const { connect, port } = await jsonWorld(t, {
    facades: [pinger],
    origins: ["https://dashboard.example.com", "http://localhost", "null"],
  });
  const own = `127.0.0.1:${port}`;
  for (const origin of [
    "https://dashboard.example.com",
    "http://localhost/",
    "null",
    `https://${own}`,
    `wss://${own}/model/x/api`,
  ])
    t.deepEqual((await (await connect("/", { origin })).ask(ping))["error"], "permission denied", origin);
  for (const origin of [
    "https://evil.example.com",
    `http://${own}`,
    "https://127.0.0.1:1",
    "http://dashboard.example.com",
    "x",
  ])
    await t.throwsAsync(connect("/", { origin }), { message: /403/ }, origin);
});

test("JA3: a login by certificate ends when that expires, and one by password does not", async (t) => {
  const world = await jsonWorld(t, { facades: [pinger] });
  const { addUser, connect, manager } = world;
  await addUser("ada");
  const shown = await certified(world);
  const { clock } = manager;
  const leftMs = 5_000;
  clock.advance(new X509Certificate(shown.cert).validToDate.getTime() - leftMs - clock.now());
  const [agent, user, late] = [await connect("/", shown), await connect("/", shown), await connect("/", shown)];
  t.is((await agent.login(`machine-${machineId("n1")}`, ""))["error"], undefined);
  t.is((await user.login())["error"], undefined);
  clock.advance(leftMs + 1);
  t.is(await agent.closed, 1008);
  t.deepEqual(await user.ask(ping), { "request-id": 2, response: {} });
  // A client that connected before, and logs in only now.
  t.like(await late.login(`machine-${machineId("n1")}`, ""), { "request-id": 1, error: "no credentials provided" });
});

test("JA3: a login by certificate ends when its root is no longer trusted, and one by password does not", async (t) => {
  const world = await jsonWorld(t, { facades: [pinger] });
  const { addUser, connect } = world;
  await addUser("ada");
  const shown = await certified(world);
  const [agent, user] = [await connect("/", shown), await connect("/", shown)];
  t.is((await agent.login(`machine-${machineId("n1")}`, ""))["error"], undefined);
  t.is((await user.login())["error"], undefined);
  await replaceRoot(world);
  t.is(await agent.closed, 1008);
  t.deepEqual(await user.ask(ping), { "request-id": 2, response: {} });
});

test("a client that guesses passwords must reconnect, then wait; so must others of its address, but only briefly", async (t) => {
  const { connect, addUser, manager } = await jsonWorld(t);
  await addUser("ada");
  let tries = 0;
  for (; tries + failuresMax <= refusalsPerMinute; tries += failuresMax) {
    const client = await connect();
    for (let n = 0; n < failuresMax; n += 1) t.deepEqual(await client.login("user-ada", "guess"), refused);
    t.is(await client.closed, 1008);
  }
  const client = await connect();
  t.like(await client.login(), { error: "try again", "error-code": "try again" });
  manager.clock.advance(10_000);
  t.like(await client.login(), { "request-id": 1, response: { facades: [] } });
});

test("the certificate has the names that clients check, and includes its authority; plain text is not accepted", async (t) => {
  const { port, rootPem, listener, connect } = await jsonWorld(t);
  for (const servername of ["juju-apiserver", "localhost"]) {
    const socket = connectTls({ host: "127.0.0.1", port, ca: rootPem, servername });
    await once(socket, "secureConnect");
    t.true(socket.authorized);
    t.is(
      pki.normalizePem(socket.getPeerX509Certificate()?.issuerCertificate?.toString() ?? ""),
      pki.normalizePem(rootPem),
    );
    socket.destroy();
  }
  const byAddress = connectTls({ host: "127.0.0.1", port, ca: rootPem });
  await once(byAddress, "secureConnect");
  t.true(byAddress.authorized);
  byAddress.destroy();
  await t.throwsAsync(fetch(`http://127.0.0.1:${port}/`));
  const before = await connect();
  t.is(listener.connections, 1);
  t.is(before.socket.readyState, before.socket.OPEN);
});

test("a new certificate is served from then on, and existing connections stay", async (t) => {
  const world = await jsonWorld(t, { facades: [pinger] });
  const { connect, addUser, port, rootPem } = world;
  await addUser("ada");
  const client = await connect();
  await client.login();
  const shown = async (ca: string): Promise<string> => {
    const socket = connectTls({ host: "127.0.0.1", port, ca, servername: "juju-apiserver" });
    await once(socket, "secureConnect");
    const fingerprint = socket.getPeerX509Certificate()?.fingerprint256 ?? "";
    socket.destroy();
    return fingerprint;
  };
  const before = await shown(rootPem);
  const root = await replaceRoot(world);
  await until("a certificate of the other root", () => shown(root.certificatePem).then((after) => after !== before));
  t.deepEqual(await client.ask(ping), { "request-id": 2, response: {} });
});

test("where only an external CA has the root's key, the port has no certificate until one is configured", async (t) => {
  const { manager, store } = await jsonWorld(t);
  const [cluster] = [...store.all("cluster")];
  const { caKey } = cluster?.rootCa ?? RootCA.create({});
  const withKey = (key: Uint8Array): Cluster =>
    Cluster.patch(cluster ?? Cluster.create({}), {
      rootCa: RootCA.patch(cluster?.rootCa ?? RootCA.create({}), { caKey: key }),
    });
  manager.seed("cluster", withKey(new Uint8Array()));
  const events: string[] = [];
  // From another process: one process keeps one certificate.
  const host = testManager().env.host;
  const keeper = startJsonCertificate({ ...manager.env, host }, pki, {
    hosts: [],
    onClockJump: () => {},
    onCertificate: () => events.push("certificate"),
    onFailed: () => events.push("failed"),
  });
  t.teardown(() => keeper.stop());
  manager.clock.advance(1);
  await until("the refusal", () => events.length > 0);
  t.deepEqual(events, ["failed"]);
  keeper.stop();
  manager.seed("cluster", withKey(caKey));
  const again = startJsonCertificate({ ...manager.env, host: testManager().env.host }, pki, {
    hosts: [],
    onClockJump: () => {},
    onCertificate: () => events.push("certificate"),
  });
  t.teardown(() => again.stop());
  manager.clock.advance(1);
  await until("the certificate", () => events.length > 1);
  t.deepEqual(events, ["failed", "certificate"]);
});

test("the port's certificate is renewed when the clock is set: it may not be valid yet, or have expired", async (t) => {
  const { manager } = await jsonWorld(t);
  const made: string[] = [];
  const jumped: (() => void)[] = [];
  const keeper = startJsonCertificate({ ...manager.env, host: testManager().env.host }, pki, {
    hosts: [],
    onClockJump: (listener) => void jumped.push(listener),
    onCertificate: ({ certificatePem }) => void made.push(certificatePem),
  });
  t.teardown(() => keeper.stop());
  manager.clock.advance(1);
  await until("the certificate", () => made.length === 1);
  for (const listener of jumped) listener();
  manager.clock.advance(1);
  await until("another certificate", () => made.length === 2);
  t.not(made[0], made[1]);
});

test("the number of connections is limited: the next one gets 503, and is accepted when another has closed", async (t) => {
  const { addUser, connect, listener } = await jsonWorld(t, { connectionsMax: 2 });
  await addUser("ada");
  const [first, second] = [await connect(), await connect()];
  // A client that is not logged in is displaced, and one that is stays.
  await first.login();
  const third = await connect();
  await second.closed;
  await third.login();
  await t.throwsAsync(connect(), { message: /503/ });
  t.is(listener.connections, 2);
  first.socket.terminate();
  await until("its end", () => listener.connections === 1);
  t.is((await (await connect()).login())["error"], undefined);
});
