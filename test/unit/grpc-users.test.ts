// Users' certificates on the gRPC port: forged ones, permissions that depend on the request, and what each role cannot see.
// Labels are those of edges/grpc and lib/pki/user.ts.
import { createServer, type TLSSocket } from "node:tls";
import test from "ava";
import { connectTls } from "../../edges/grpc/client.ts";
import { notShown, shownTo } from "../../edges/grpc/redaction.ts";
import { forUsers } from "../../edges/grpc/users.ts";
import type { ServedMethod } from "../../edges/grpc/server-call.ts";
import type { MethodDescriptor } from "../../proto/codec.ts";
import {
  Annotations,
  Any,
  Cluster,
  ClusterSpec,
  CAConfig,
  ContainerSpec,
  ContainerSpec_PullOptions,
  ControlRolloutRequest,
  ControlRolloutRequest_Action,
  ControlService,
  Driver,
  DriverSpec,
  ExecSpec,
  ExternalCA,
  FieldChange,
  GenericRuntimeSpec,
  GetClusterResponse,
  HistoryEntry,
  HistoryResponse,
  JoinTokens,
  ListServicesResponse,
  Meta,
  Object as WatchedObject,
  OperatorService,
  ReadAtRequest,
  ReadAtResponse,
  RootCA,
  Service,
  ServiceSpec,
  TaskAccessService,
  TaskAttach,
  TaskCallRequest,
  TaskExec,
  TaskExecAs,
  TaskSignal,
  TaskSpec,
  TaskStatsWish,
  VolumeSpec,
  WatchMessage,
  WatchMessage_Event,
  WatchService,
} from "../../proto/gen/messages.ts";
import { createRoot } from "../../lib/pki/index.ts";
import { RpcError, Status, type CallContext, type Sink } from "../../runtime/ports/rpc.ts";
import type { Role } from "../../runtime/user-roles.ts";
import { accessWorld, methods, start } from "../support/access-world.ts";
import { identityOf, until, userIdentityOf } from "../support/grpc-world.ts";

const methodOf = (name: string) => methods.find(({ path }) => path.endsWith(`/${name}`)) as (typeof methods)[0];

test("R3: a user's certificate of another CA, or of another cluster, grants nothing", async (t) => {
  const world = await accessWorld(t);
  world.user("ada", { role: "admin", mark: "mark" });
  const forged = await userIdentityOf({ root: await createRoot(), name: "ada", mark: "mark" });
  const elsewhere = await userIdentityOf({ root: world.root, name: "ada", mark: "mark", organization: "org2" });
  const nowhere = await userIdentityOf({ root: world.root, name: "ada", mark: "mark", organization: "" });
  for (const [identity, refusal] of [
    [forged, /client certificate not accepted/],
    [elsewhere, /no longer valid|not available to users/],
    [nowhere, /no longer valid|not available to users/],
  ] as const) {
    const channel = await world.channel(identity);
    for (const call of methods.filter(({ access }) => access !== "anyone").map((method) => start(channel, method))) {
      const error = await call.ended;
      t.is(error?.code, Status.PERMISSION_DENIED, call.path);
      t.regex(error?.message ?? "", refusal, call.path);
    }
  }
  t.deepEqual(world.begun, []);
});

test("R3: a user with a node's name is not a node, and a node with a user's name is not a user", async (t) => {
  const world = await accessWorld(t);
  world.user("m", { role: "read-only", mark: "mark" });
  const user = await world.channel(await userIdentityOf({ root: world.root, name: "m", mark: "mark" }));
  t.is((await start(user, methodOf("Session")).ended)?.code, Status.PERMISSION_DENIED);
  t.is((await start(user, methodOf("GetDataKeys")).ended)?.code, Status.PERMISSION_DENIED);
  world.user("w", { role: "admin", mark: "" });
  const worker = await world.channel(await identityOf({ root: world.root, nodeId: "w" }));
  t.is((await start(worker, methodOf("ListNodes")).ended)?.code, Status.PERMISSION_DENIED);
  // Removing a node of that name ends nothing of the user's.
  const open = start(user, methodOf("Watch"));
  await until(() => open.received === 1);
  world.remove("m");
  t.is(open.outcome, "open");
});

test("R3: for certificate renewal, a user has no node's identity", async (t) => {
  const world = await accessWorld(t);
  world.user("ada", { role: "admin", mark: "mark" });
  const channel = await world.channel(await userIdentityOf({ root: world.root, name: "ada", mark: "mark" }));
  start(channel, methodOf("IssueNodeCertificate"));
  start(channel, methodOf("ListNodes"));
  await until(() => world.peers.length === 2);
  const peer = { identity: null, local: false, address: "127.0.0.1" };
  t.deepEqual(world.peers[0], peer);
  t.deepEqual(world.peers[1], { ...peer, user: "user-ada", role: "admin" });
});

test("a user has a limited number of connections, and further ones displace only their own", async (t) => {
  const world = await accessWorld(t, { userConnectionsMax: 2, knownMax: 4 });
  world.user("ada", { role: "read-only", mark: "mark" });
  const identity = await userIdentityOf({ root: world.root, name: "ada", mark: "mark" });
  const node = start(await world.channel(await identityOf({ root: world.root, nodeId: "w" })), methodOf("Session"));
  await until(() => node.received === 1);
  let closed = 0;
  for (let at = 0; at < 6; at += 1) (await world.channel(identity)).onClosed(() => (closed += 1));
  await until(() => closed === 4);
  t.is(node.outcome, "open");
  t.is(world.server.connectionCount, 3);
});

test("US3: a user's change of their own account is answered, and everything else that they have open ends", async (t) => {
  const changes = ["SetUserPassword", "ResetUser", "GrantUser", "DisableUser", "RemoveUser"];
  for (const name of changes) {
    const world = await accessWorld(t);
    world.user("ada", { role: "admin", mark: "mark" });
    const channel = await world.channel(await userIdentityOf({ root: world.root, name: "ada", mark: "mark" }));
    const own = start(channel, methodOf(name), { name: "ada" });
    const others = [
      ...changes.map((each) => start(channel, methodOf(each), { name: "bob" })),
      ...["AddUser", "ListNodes", "Watch"].map((each) => start(channel, methodOf(each))),
    ];
    await until(() => world.begun.length === 1 + others.length);
    world.user("ada", null);
    for (const other of others) t.is((await other.ended)?.code, Status.PERMISSION_DENIED, other.path);
    t.is(own.outcome, "open");
    world.answer();
    t.is(await own.ended, null, name);
    // The connection ends with it.
    await until(() => world.server.connectionCount === 0);
  }
});

test("US3: a change of another user, by a node or with an expired certificate ends unanswered", async (t) => {
  const world = await accessWorld(t);
  world.user("ada", { role: "admin", mark: "mark" });
  const user = await world.channel(await userIdentityOf({ root: world.root, name: "ada", mark: "mark" }));
  const expiring = start(user, methodOf("SetUserPassword"), { name: "ada" });
  const node = await world.channel(await identityOf({ root: world.root, nodeId: "ada", role: "swarm-manager" }));
  const demoted = start(node, methodOf("SetUserPassword"), { name: "ada" });
  await until(() => world.begun.length === 2);
  world.demote("ada");
  t.is((await demoted.ended)?.code, Status.PERMISSION_DENIED);
  t.is(expiring.outcome, "open");
  world.clock.pass(365 * 24 * 3_600_000);
  t.is((await expiring.ended)?.code, Status.PERMISSION_DENIED);
});

for (const name of ["swarm-manager", "swarm-ca"] as const) {
  test(`U1: the certificate of a user named ${name} makes nobody a manager, by OpenSSL or by the second check`, async (t) => {
    const root = await createRoot();
    // Not valid yet: if OpenSSL rejects it for that, the certificate is checked again.
    for (const nowMs of [Date.now(), Date.now() + 7_200_000]) {
      const { certificatePem, keyPem } = await userIdentityOf({ root, name, mark: "mark", nowMs });
      const sockets = new Set<TLSSocket>();
      const server = createServer({ cert: certificatePem, key: keyPem, ALPNProtocols: ["h2"] }, (socket) => {
        sockets.add(socket.on("error", () => {}));
      });
      await new Promise<void>((resolve) => void server.listen(0, "127.0.0.1", resolve));
      const { port } = server.address() as { port: number };
      const options = { host: "127.0.0.1", port, rootPem: root.certificatePem, serverName: name, timeoutMs: 5_000 };
      const outcome = await connectTls(options).then(
        (channel) => {
          channel.close();
          return "connected";
        },
        (error: unknown) => String(error),
      );
      t.regex(outcome, /its certificate is not trusted/);
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    }
  });
}

const callOf = (role: Role | null): CallContext => ({
  peer: { identity: null, local: role === null, address: "", ...(role === null ? {} : { user: "user-ada", role }) },
  signal: new AbortController().signal,
  traceparent: "",
});

type AnyMethod = MethodDescriptor<unknown, unknown>;

/** The answer of a unary method that a user of that role gets. */
async function answerOf(method: unknown, role: Role | null, request: unknown, response: unknown): Promise<unknown> {
  const served = forUsers(method as AnyMethod, { kind: "unary", run: () => Promise.resolve(response) });
  return served.kind === "unary" ? served.run(request, callOf(role)) : null;
}

/** The messages of a stream that a user of that role gets; or throws. */
function sentOf(method: unknown, role: Role | null, request: unknown, message: unknown): unknown {
  const sent: unknown[] = [];
  const handler: ServedMethod["handler"] = { kind: "server-stream", run: (_, sink) => sink.write(message) };
  const served = forUsers(method as AnyMethod, handler);
  const sink: Sink<unknown> = { write: (each) => void sent.push(each), end: () => {}, bufferedBytes: () => 0 };
  if (served.kind === "server-stream") served.run(request, sink, callOf(role));
  return sent[0];
}

test("US1: a read-only user reads a rollout, and an operator controls it", async (t) => {
  const { ControlRollout } = OperatorService.methods;
  for (const action of Object.values(ControlRolloutRequest_Action)) {
    const request = ControlRolloutRequest.create({ service: "web", action });
    const asReader = answerOf(ControlRollout, "read-only", request, {});
    if (action === ControlRolloutRequest_Action.LOOK) await t.notThrowsAsync(asReader);
    else {
      const error = await t.throwsAsync(asReader, { instanceOf: RpcError });
      t.is(error?.message, "permission denied: this needs the role operator, and user ada has the role read-only");
    }
    await t.notThrowsAsync(answerOf(ControlRollout, "operator", request, {}));
    await t.notThrowsAsync(answerOf(ControlRollout, null, request, {}));
  }
});

test("US1: a read-only user sees a task's resource usage, and runs and signals nothing", (t) => {
  const { Call } = TaskAccessService.methods;
  const stats = TaskStatsWish.create({ intervalMs: 1_000 });
  const requests = [
    [TaskCallRequest.create({ stats }), true],
    [TaskCallRequest.create({ exec: TaskExec.create({ command: ["id"] }) }), false],
    [TaskCallRequest.create({ signal: TaskSignal.create({ name: "SIGKILL" }) }), false],
    [TaskCallRequest.create({ stats, execAs: TaskExecAs.create() }), false],
    [TaskCallRequest.create({ stats, attach: TaskAttach.create() }), false],
    [TaskCallRequest.create({ attach: TaskAttach.create() }), false],
    [TaskCallRequest.create({ stats, exec: TaskExec.create({ command: ["id"] }) }), false],
    [TaskCallRequest.create({ stats, signal: TaskSignal.create({ name: "SIGKILL" }) }), false],
    [TaskCallRequest.create({}), false],
  ] as const;
  for (const [request, isForReaders] of requests) {
    if (isForReaders) t.truthy(sentOf(Call, "read-only", request, {}));
    else t.throws(() => sentOf(Call, "read-only", request, {}), { message: /this needs the role operator/ });
    t.truthy(sentOf(Call, "operator", request, {}));
  }
});

test("US1: a request that is denied for now is denied for the past", async (t) => {
  const { ReadAt } = OperatorService.methods;
  const ask = (role: Role | null, method: string) =>
    answerOf(ReadAt, role, ReadAtRequest.create({ version: 1, method }), ReadAtResponse.create({ version: 1 }));
  await t.notThrowsAsync(ask("read-only", ""));
  await t.notThrowsAsync(ask("read-only", ControlService.methods.ListTasks.path));
  for (const { path } of [ControlService.methods.UpdateNode, ControlService.methods.RemoveService])
    await t.throwsAsync(ask("read-only", path), { message: /this needs the role/ });
  await t.throwsAsync(ask("operator", "/muster.v1.DataKeys/GetDataKeys"), { message: /this needs the role admin/ });
  await t.throwsAsync(ask("admin", "/muster.v1.DataKeys/GetDataKeys"), { message: /not available to users/ });
});

const secret = "hunter2";

const driver = Driver.create({ name: "d", options: { password: secret } });

const service = Service.create({
  id: "s1",
  meta: Meta.create({}),
  spec: ServiceSpec.create({
    annotations: Annotations.create({ name: "web" }),
    task: TaskSpec.create({
      container: ContainerSpec.create({
        image: "nginx",
        env: [`PASSWORD=${secret}`, "DEBUG"],
        pullOptions: ContainerSpec_PullOptions.create({ registryAuth: secret }),
      }),
      logDriver: driver,
    }),
  }),
});

const generic = (kind: string, typeUrl: string, value: Uint8Array) =>
  Service.create({
    id: kind,
    spec: ServiceSpec.create({
      task: TaskSpec.create({
        generic: GenericRuntimeSpec.create({ kind, payload: Any.create({ type_url: typeUrl, value }) }),
      }),
    }),
  });

const cluster = Cluster.create({
  id: "c",
  spec: ClusterSpec.create({
    caConfig: CAConfig.create({ externalCas: [ExternalCA.create({ url: "https://ca", options: { token: secret } })] }),
  }),
  rootCa: RootCA.create({
    caCert: Buffer.from("root"),
    joinTokens: JoinTokens.create({ worker: "SWMTKN-w", manager: "SWMTKN-m" }),
  }),
});

const bytesOf = <T>(codec: { encode(message: T): Uint8Array }, message: unknown): string =>
  Buffer.from(codec.encode(message as T)).toString("latin1");

test("RD2: a read-only user sees no values that may contain passwords, and operators do", (t) => {
  const services = [
    service,
    generic("exec", "", ExecSpec.encode(ExecSpec.create({ command: "run", env: [`PASSWORD=${secret}`] }))),
    generic(
      "docker",
      "type.googleapis.com/muster.v1.DriverSpec",
      DriverSpec.encode(DriverSpec.create({ config: JSON.stringify({ auth: secret }), env: [`A=${secret}`] })),
    ),
    generic("other", "type.googleapis.com/other.Spec", Buffer.from(secret)),
  ];
  const response = ListServicesResponse.create({ services });
  const before = bytesOf(ListServicesResponse, response);
  const shown = shownTo("read-only", response);
  const text = bytesOf(ListServicesResponse, shown);
  t.true(before.includes(secret));
  t.false(text.includes(secret));
  t.true(text.includes("nginx") && text.includes("PASSWORD") && text.includes("run"));
  t.deepEqual(shown.services[0]?.spec?.task?.container?.env, [`PASSWORD=${notShown}`, "DEBUG"]);
  t.deepEqual(shown.services[0]?.spec?.task?.logDriver?.options, { password: notShown });
  for (const role of ["operator", "admin"] as const)
    t.is(bytesOf(ListServicesResponse, shownTo(role, response)), before);
  t.is(bytesOf(ListServicesResponse, response), before, "other callers get what they got before");
  // The store's objects are unchanged.
  t.is(shownTo("read-only", ListServicesResponse.create({ services: [service] })).services[0], shown.services[0]);
});

test("RD2: nor those of volumes, of watched changes, and of the past", (t) => {
  const volume = VolumeSpec.create({ driver });
  t.false(bytesOf(VolumeSpec, shownTo("read-only", volume)).includes(secret));
  const watched = WatchMessage.create({
    events: [
      WatchMessage_Event.create({
        object: WatchedObject.create({ service }),
        oldObject: WatchedObject.create({ service }),
      }),
    ],
  });
  t.false(bytesOf(WatchMessage, shownTo("read-only", watched)).includes(secret));
  const history = HistoryResponse.create({
    entries: [
      HistoryEntry.create({
        fields: [
          FieldChange.create({ field: "env PASSWORD", old: "", new: secret }),
          FieldChange.create({ field: "log driver", old: secret, new: "" }),
          FieldChange.create({ field: "options password", old: secret, new: secret }),
          FieldChange.create({ field: "image", old: "a", new: "b" }),
        ],
      }),
    ],
  });
  const shown = shownTo("read-only", history);
  t.false(bytesOf(HistoryResponse, shown).includes(secret));
  t.deepEqual(
    shown.entries[0]?.fields.map(({ field, old, new: now }) => [field, old, now]),
    [
      ["env PASSWORD", "", notShown],
      ["log driver", notShown, ""],
      ["options password", notShown, notShown],
      ["image", "a", "b"],
    ],
  );
  t.true(bytesOf(HistoryResponse, shownTo("operator", history)).includes(secret));
});

test("RD3: only an admin sees join tokens", (t) => {
  const response = GetClusterResponse.create({ cluster });
  for (const role of ["read-only", "operator"] as const) {
    const shown = shownTo(role, response);
    t.is(shown.cluster?.rootCa?.joinTokens, null);
    t.is(Buffer.from(shown.cluster?.rootCa?.caCert ?? []).toString(), "root");
  }
  t.false(bytesOf(GetClusterResponse, shownTo("read-only", response)).includes(secret));
  t.is(shownTo("admin", response), response);
  t.is(cluster.rootCa?.joinTokens?.manager, "SWMTKN-m");
});

test("US2: reads of the past are redacted like reads of the present", async (t) => {
  const { ReadAt } = OperatorService.methods;
  const { ListServices } = ControlService.methods;
  const past = ReadAtResponse.create({
    version: 7,
    response: ListServices.response.encode(ListServicesResponse.create({ services: [service] })),
  });
  const request = ReadAtRequest.create({ version: 7, method: ListServices.path });
  const asked = async (role: Role | null) => (await answerOf(ReadAt, role, request, past)) as ReadAtResponse;
  const shown = await asked("read-only");
  t.is(shown.version, 7);
  t.false(Buffer.from(shown.response).includes(secret));
  t.is(ListServices.response.decode(shown.response).services[0]?.id, "s1");
  t.true(Buffer.from((await asked("operator")).response).includes(secret));
  t.is(await asked(null), past);
});

test("US2: through the server, a read-only user's answers and streams come without values, and a node's are whole", async (t) => {
  const world = await accessWorld(t);
  world.user("ada", { role: "read-only", mark: "mark" });
  const event = WatchMessage.create({
    events: [WatchMessage_Event.create({ object: WatchedObject.create({ service }) })],
  });
  const { Watch } = WatchService.methods;
  const seen: string[] = [];
  for (const identity of [
    await userIdentityOf({ root: world.root, name: "ada", mark: "mark" }),
    await identityOf({ root: world.root, nodeId: "m", role: "swarm-manager" }),
  ]) {
    const received: unknown[] = [];
    const channel = await world.channel(identity);
    channel.serverStream(Watch, Watch.request.create({}), {
      onMessage: (message) => received.push(message),
      onEnd: () => {},
    });
    await until(() => received.length === 1);
    world.sinks.get(Watch.path)?.at(-1)?.write(event);
    await until(() => received.length === 2);
    seen.push(bytesOf(WatchMessage, received[1]));
  }
  t.false(seen[0]?.includes(secret));
  t.true(seen[1]?.includes(secret));
});
