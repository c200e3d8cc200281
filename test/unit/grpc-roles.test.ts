// Admission of callers: certificates, roles, and the versions of TLS that clients offer. Labels are those of edges/grpc.
import { once } from "node:events";
import { connect as connectHttp2 } from "node:http2";
import { connect as connectTlsSocket, type TLSSocket } from "node:tls";
import test from "ava";
import { accessByPath, type Access } from "../../edges/grpc/roles.ts";
import {
  ControlService,
  DispatcherService,
  GetRootCACertificateRequest,
  GetUnlockKeyRequest,
  HeartbeatRequest,
  ListNodesRequest,
  type SessionMessage,
  SessionRequest,
} from "../../proto/gen/messages.ts";
import { createRoot } from "../../lib/pki/index.ts";
import { Status } from "../../runtime/ports/rpc.ts";
import {
  Heartbeat,
  Session,
  GetRootCACertificate,
  GetUnlockKey,
  ListNodes,
  identityOf,
  world,
  refused,
  collect,
  denied,
} from "../support/grpc-world.ts";

test("every method of every service has a row that says who may call it", (t) => {
  const open = [...accessByPath].filter(([, access]) => access === "anyone").map(([path]) => path.split("/")[2] ?? "");
  t.deepEqual(open.toSorted(), ["GetRootCACertificate", "IssueNodeCertificate", "Login", "NodeCertificateStatus"]);
  const methodsOf = (access: Access): readonly string[] =>
    [...accessByPath].filter(([, found]) => found === access).map(([path]) => path.split(".").at(-1) ?? "");
  t.deepEqual(methodsOf("manager").toSorted(), [
    "DataKeys/GetDataKeys",
    "DataKeys/PrepareNats",
    "DataKeys/UseNatsAuthorities",
    "RaftMembership/Join",
    "RaftMembership/Leave",
  ]);
  const ofWorkers = new Set(methodsOf("worker-or-manager").map((path) => path.split("/")[0] ?? ""));
  t.deepEqual([...ofWorkers].toSorted(), [
    "Dispatcher",
    "LogBroker",
    "Networks",
    "Policy",
    "ResourceAllocator",
    "TaskCalls",
  ]);
  for (const method of Object.values(DispatcherService.methods))
    t.is(accessByPath.get(method.path), "worker-or-manager");
  t.deepEqual(methodsOf("manager-or-local").toSorted(), ["Lock/GetLock", "Lock/Unlock"]);
});

test("R3: users have access to what each role allows, and to nothing of the nodes", (t) => {
  const methodsOf = (access: Access): readonly string[] =>
    [...accessByPath]
      .filter(([, found]) => found === access)
      .map(([path]) => path.split(".").at(-1) ?? "")
      .toSorted();
  t.deepEqual(methodsOf("admin"), [
    "Backup/Take",
    "CA/GetUnlockKey",
    "Control/RemoveNode",
    "Control/UpdateCluster",
    "Control/UpdateNode",
    "Operator/RotateCertificate",
    "UserCertificates/IssueUserCertificate",
    "Users/AddUser",
    "Users/DisableUser",
    "Users/GrantUser",
    "Users/ListUsers",
    "Users/RemoveUser",
    "Users/ResetUser",
    "Users/SetUserPassword",
  ]);
  const changes = /^Control\/(?:Create|Update|Remove)(?!Node|Cluster)/;
  const operators = methodsOf("operator");
  t.deepEqual(
    operators.filter((method) => !changes.test(method)),
    ["Operator/PlanService", "TaskAccess/Send"],
  );
  const looks = /^Control\/(?:Get|List)/;
  t.deepEqual(
    methodsOf("read-only").filter((method) => !looks.test(method)),
    [
      "Health/Check",
      "Inspection/Recent",
      "Inspection/Record",
      "Inspection/Watch",
      "Logs/SubscribeLogs",
      "Operator/CompareClocks",
      "Operator/ControlRollout",
      "Operator/FindVersion",
      "Operator/History",
      "Operator/ListExtensions",
      "Operator/PlanRebalance",
      "Operator/ReadAt",
      "Operator/Status",
      "Operator/Why",
      "TaskAccess/Call",
      "Watch/Watch",
    ],
  );
  for (const { path } of Object.values(ControlService.methods)) {
    const method = path.split(".").at(-1) ?? "";
    const needed = /(?:Update|Remove)(?:Node|Cluster)$/.test(method)
      ? "admin"
      : looks.test(method)
        ? "read-only"
        : "operator";
    t.is(accessByPath.get(path), needed, path);
  }
});

test("G1: without a certificate only public methods are answered", async (t) => {
  const { channel, handlers } = await world(t);
  const anonymous = await channel(null);
  const response = await anonymous.unary(GetRootCACertificate, GetRootCACertificateRequest.create());
  t.is(Buffer.from(response.certificate).toString(), "root");
  t.is(handlers.calls[0]?.peer.identity, null);
  await refused(
    t,
    anonymous.unary(Heartbeat, HeartbeatRequest.create()),
    Status.PERMISSION_DENIED,
    `${denied}no client certificates in request`,
  );
  await refused(
    t,
    anonymous.unary(ListNodes, ListNodesRequest.create()),
    Status.PERMISSION_DENIED,
    `${denied}no client certificates in request`,
  );
  const { ended, receiver } = collect<SessionMessage>();
  anonymous.serverStream(Session, SessionRequest.create(), receiver);
  t.is((await ended)?.code, Status.PERMISSION_DENIED);
  t.is(handlers.calls.length, 1);
});

test("G1: a worker is denied methods for managers, and a manager is not", async (t) => {
  const { worker, channel, manager } = await world(t);
  const text = `${denied}Permission denied: remote certificate not part of OUs: [swarm-manager]`;
  await refused(t, (await worker()).unary(ListNodes, ListNodesRequest.create()), Status.PERMISSION_DENIED, text);
  await refused(t, (await worker()).unary(GetUnlockKey, GetUnlockKeyRequest.create()), Status.PERMISSION_DENIED, text);
  await t.notThrowsAsync((await channel(manager)).unary(ListNodes, ListNodesRequest.create()));
});

test("G1: a certificate of another organization is rejected", async (t) => {
  const { root, channel } = await world(t);
  const foreign = await channel(await identityOf({ root, organization: "org2" }));
  const text = `${denied}Permission denied: remote certificate not part of organization: org1`;
  await refused(t, foreign.unary(Heartbeat, HeartbeatRequest.create()), Status.PERMISSION_DENIED, text);
});

test("R1: a removed node is rejected, and is anonymous for public methods", async (t) => {
  const { worker, handlers } = await world(t, { removed: new Set(["w1"]) });
  const channel = await worker();
  await refused(
    t,
    channel.unary(Heartbeat, HeartbeatRequest.create()),
    Status.PERMISSION_DENIED,
    `${denied}Permission denied: node w1 was removed from swarm`,
  );
  await channel.unary(GetRootCACertificate, GetRootCACertificateRequest.create());
  t.is(handlers.calls[0]?.peer.identity, null);
});

test("a certificate of another CA, or an expired one, is rejected for every method", async (t) => {
  const { channel, root } = await world(t);
  const impostor = await identityOf({ root: await createRoot() });
  const expired = await identityOf({ root, nowMs: Date.now() - 7_200_000 });
  for (const identity of [impostor, expired]) {
    const opened = await channel(identity);
    await refused(
      t,
      opened.unary(GetRootCACertificate, GetRootCACertificateRequest.create()),
      Status.PERMISSION_DENIED,
      /client certificate not accepted/,
    );
    await refused(t, opened.unary(Heartbeat, HeartbeatRequest.create()), Status.PERMISSION_DENIED);
  }
});

test("L2: a client that offers no ALPN is served", async (t) => {
  const { root, port } = await world(t);
  const identity = await identityOf({ root });
  const socket: TLSSocket = connectTlsSocket({
    host: "127.0.0.1",
    port,
    ca: root.certificatePem,
    cert: identity.certificatePem,
    key: identity.keyPem,
    servername: "swarm-manager",
  });
  await once(socket, "secureConnect");
  t.is(socket.alpnProtocol, false);
  const session = connectHttp2("https://swarm-manager", { createConnection: () => socket });
  t.teardown(() => session.destroy());
  const stream = session.request({
    ":method": "POST",
    ":path": Heartbeat.path,
    "content-type": "application/grpc",
    te: "trailers",
  });
  stream.end(Buffer.alloc(5));
  stream.resume();
  const [trailers] = await once(stream, "trailers");
  t.is((trailers as Record<string, string>)["grpc-status"], "0");
});

test("a client that offers h2 gets it", async (t) => {
  const { root, port } = await world(t);
  const socket = connectTlsSocket({
    host: "127.0.0.1",
    port,
    ca: root.certificatePem,
    servername: "swarm-ca",
    ALPNProtocols: ["h2"],
  });
  t.teardown(() => socket.destroy());
  await once(socket, "secureConnect");
  t.is(socket.alpnProtocol, "h2");
});

test("TLS below 1.2 is rejected", async (t) => {
  const { port } = await world(t);
  const socket = connectTlsSocket({
    host: "127.0.0.1",
    port,
    rejectUnauthorized: false,
    minVersion: "TLSv1",
    maxVersion: "TLSv1.1",
    ciphers: "ALL:@SECLEVEL=0",
  });
  await t.throwsAsync(once(socket, "secureConnect"));
});
