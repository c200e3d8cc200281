import { once } from "node:events";
import { mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { connect as connectHttp2 } from "node:http2";
import { connect as connectSocket, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connect as connectTlsSocket, type TLSSocket } from "node:tls";
import { spawnSync } from "node:child_process";
import { trace } from "@opentelemetry/api";
import test, { type ExecutionContext } from "ava";
import { connectTls, connectUnix } from "../../edges/grpc/client.ts";
import { frame } from "../../edges/grpc/framing.ts";
import { RequestStream } from "../../edges/grpc/request-stream.ts";
import { accessByPath } from "../../edges/grpc/roles.ts";
import { createGrpcServer, type Credentials } from "../../edges/grpc/server.ts";
import {
  AssignmentsMessage,
  AssignmentsRequest,
  CAService,
  ControlService,
  DispatcherService,
  GetRootCACertificateRequest,
  GetRootCACertificateResponse,
  GetUnlockKeyRequest,
  GetUnlockKeyResponse,
  HeartbeatRequest,
  HeartbeatResponse,
  ListNodesRequest,
  ListNodesResponse,
  LogBrokerService,
  LogMessage,
  OperatorService,
  PublishLogsMessage,
  PublishLogsResponse,
  SessionMessage,
  SessionRequest,
  TasksRequest,
  UpdateTaskStatusRequest,
  UpdateTaskStatusResponse,
  UpdateVolumeStatusResponse,
} from "../../proto/gen/messages.ts";
import { createKeyAndCsr, createRoot, issue, type NodeRoleName } from "../../runtime/pki/index.ts";
import type { Telemetry } from "../../runtime/ports.ts";
import {
  RpcError,
  Status,
  type CallContext,
  type RpcChannel,
  type ServiceHandlers,
  type Sink,
} from "../../runtime/rpc.ts";

const { Heartbeat, Session, Assignments, Tasks, UpdateTaskStatus } = DispatcherService.methods;
const { GetRootCACertificate, GetUnlockKey } = CAService.methods;
const { ListNodes } = ControlService.methods;
const { PublishLogs } = LogBrokerService.methods;
const organization = "org1";

type Root = Awaited<ReturnType<typeof createRoot>>;

interface IdentityOptions {
  readonly root: Root;
  readonly nodeId?: string;
  readonly role?: NodeRoleName;
  readonly organization?: string;
  readonly nowMs?: number;
}

async function identityOf(options: IdentityOptions) {
  const { keyPem, csrPem } = await createKeyAndCsr();
  const certificatePem = await issue({
    csrPem,
    rootCertificatePem: options.root.certificatePem,
    rootKeyPem: options.root.keyPem,
    nodeId: options.nodeId ?? "w1",
    role: options.role ?? "swarm-worker",
    organization: options.organization ?? organization,
    validitySeconds: 3_600,
    nowMs: options.nowMs ?? Date.now(),
  });
  return { certificatePem, keyPem };
}

function telemetry() {
  const counts = new Map<string, number>();
  const errors: object[] = [];
  const ignore = () => {};
  const ports: Telemetry = {
    tracer: trace.getTracer("test"),
    metrics: {
      counter: (name) => ({
        add: (value = 1, labels = {}) => {
          const key = [name, ...Object.values(labels)].join(" ");
          counts.set(key, (counts.get(key) ?? 0) + value);
        },
      }),
      gauge: () => ({ set: ignore }),
      histogram: () => ({ observe: ignore }),
    },
    log: { debug: ignore, info: ignore, warn: ignore, error: (fields) => void errors.push(fields) },
  };
  return { ports, counts, errors };
}

/** Handlers that do what the session id, or the number of messages, asks for, and keep what they saw. */
function servants() {
  const calls: CallContext[] = [];
  const sinks: Sink<unknown>[] = [];
  const aborted: string[] = [];
  const seen: string[] = [];
  const release: (() => void)[] = [];
  function remember(call: CallContext, name: string): void {
    calls.push(call);
    call.signal.addEventListener("abort", () => aborted.push(name));
  }
  const dispatcher: ServiceHandlers<typeof DispatcherService> = {
    Heartbeat: async (request, call) => {
      remember(call, "heartbeat");
      switch (request.sessionId) {
        case "refuse":
          throw new RpcError(Status.INVALID_ARGUMENT, "session invalid: 100% of Grün");
        case "break":
          throw new Error("secret detail");
        case "wait":
          await new Promise<void>((resolve) => release.push(resolve));
      }
      return HeartbeatResponse.create();
    },
    UpdateTaskStatus: (_request, call) => {
      calls.push(call);
      return UpdateTaskStatusResponse.create();
    },
    UpdateVolumeStatus: () => UpdateVolumeStatusResponse.create(),
    Session: (request, sink, call) => {
      if (request.sessionId === "refuse") throw new RpcError(Status.UNKNOWN, "node not found");
      remember(call, "session");
      sinks.push(sink as Sink<unknown>);
      sink.write(SessionMessage.create({ sessionId: "s1" }));
      if (request.sessionId === "short") sink.end();
      if (request.sessionId === "abort") sink.end(new RpcError(Status.ABORTED, "node must disconnect"));
    },
    Assignments: (request, sink, call) => {
      remember(call, "assignments");
      sinks.push(sink as Sink<unknown>);
      for (let at = 0; at < Number(request.sessionId); at += 1)
        sink.write(AssignmentsMessage.create({ resultsIn: String(at).repeat(100) }));
    },
    Tasks: () => {},
  };
  const ca: ServiceHandlers<typeof CAService> = {
    GetRootCACertificate: (_request, call) => {
      calls.push(call);
      return GetRootCACertificateResponse.create({ certificate: Buffer.from("root") });
    },
    GetUnlockKey: () => GetUnlockKeyResponse.create(),
  };
  const logBroker: ServiceHandlers<typeof LogBrokerService> = {
    ListenSubscriptions: () => {},
    PublishLogs: async (messages, call) => {
      remember(call, "logs");
      for await (const message of messages) {
        seen.push(message.subscriptionId);
        if (message.subscriptionId === "stop") break;
        if (message.subscriptionId === "wait") await new Promise<void>((resolve) => release.push(resolve));
      }
      return PublishLogsResponse.create();
    },
  };
  return { calls, sinks, aborted, seen, release, dispatcher, ca, logBroker };
}

interface WorldOptions {
  readonly removed?: ReadonlySet<string>;
  readonly messageBytesMax?: number;
}

async function world(t: ExecutionContext, options: WorldOptions = {}) {
  const root = await createRoot();
  const { ports, counts, errors } = telemetry();
  const handlers = servants();
  const server = createGrpcServer({
    telemetry: ports,
    ...(options.messageBytesMax === undefined ? {} : { messageBytesMax: options.messageBytesMax }),
  });
  server.add(DispatcherService, handlers.dispatcher);
  server.add(CAService, handlers.ca);
  server.add(LogBrokerService, handlers.logBroker);
  // Of Control only one method matters here.
  const control = Object.fromEntries(
    Object.keys(ControlService.methods).map((name) => [name, () => ListNodesResponse.create()]),
  );
  server.add(ControlService, control as unknown as ServiceHandlers<typeof ControlService>);
  const manager = await identityOf({ root, nodeId: "m1", role: "swarm-manager" });
  const credentials: Credentials = { ...manager, rootPem: root.certificatePem };
  const { port } = await server.listenTls({
    host: "127.0.0.1",
    port: 0,
    credentials,
    organization: () => organization,
    isRemoved: (nodeId) => options.removed?.has(nodeId) ?? false,
  });
  t.teardown(() => server.close(0));
  async function channel(
    identity: { certificatePem: string; keyPem: string } | null,
    rootPem = root.certificatePem,
  ): Promise<RpcChannel> {
    const opened = await connectTls({
      host: "127.0.0.1",
      port,
      rootPem,
      serverName: "swarm-manager",
      timeoutMs: 5_000,
      ...identity,
    });
    t.teardown(() => opened.close());
    return opened;
  }
  return {
    root,
    manager,
    server,
    port,
    counts,
    errors,
    handlers,
    channel,
    worker: async () => channel(await identityOf({ root })),
  };
}

function temporaryFolder(t: ExecutionContext): string {
  const path = mkdtempSync(join(tmpdir(), "muster-grpc-"));
  t.teardown(() => rmSync(path, { recursive: true }));
  return path;
}

async function until(condition: () => boolean): Promise<void> {
  const deadline = Date.now() + 60_000;
  while (!condition()) {
    if (Date.now() > deadline) throw new Error("the condition never held");
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}

async function refused(
  t: ExecutionContext,
  call: Promise<unknown>,
  code: Status,
  message?: string | RegExp,
): Promise<void> {
  await t.throwsAsync(call, { instanceOf: RpcError, code, ...(message === undefined ? {} : { message }) } as never);
}

/** A server stream's messages, and how it ended once it has. */
function collect<Message>() {
  const messages: Message[] = [];
  let finish: (error: RpcError | null) => void;
  const ended = new Promise<RpcError | null>((resolve) => (finish = resolve));
  return {
    messages,
    ended,
    receiver: {
      onMessage: (message: Message) => void messages.push(message),
      onEnd: (error: RpcError | null) => finish(error),
    },
  };
}

const denied = "Permission denied: unauthorized peer role: rpc error: code = PermissionDenied desc = ";

test("a handler sees who calls, from where and in which trace", async (t) => {
  const { worker, handlers } = await world(t);
  const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  const channel = await worker();
  t.deepEqual(
    await channel.unary(Heartbeat, HeartbeatRequest.create({ sessionId: "s1" }), { traceparent }),
    HeartbeatResponse.create(),
  );
  t.deepEqual(handlers.calls[0]?.peer, {
    identity: { nodeId: "w1", role: "swarm-worker", organization },
    local: false,
    address: "127.0.0.1",
  });
  t.is(handlers.calls[0]?.traceparent, traceparent);
});

test("what a handler refuses with arrives as it was said", async (t) => {
  const { worker } = await world(t);
  await refused(
    t,
    (await worker()).unary(Heartbeat, HeartbeatRequest.create({ sessionId: "refuse" })),
    Status.INVALID_ARGUMENT,
    "session invalid: 100% of Grün",
  );
});

test("what a handler breaks on is logged, and only INTERNAL is told", async (t) => {
  const { worker, errors } = await world(t);
  await refused(
    t,
    (await worker()).unary(Heartbeat, HeartbeatRequest.create({ sessionId: "break" })),
    Status.INTERNAL,
    "internal error",
  );
  t.like(errors[0], { method: Heartbeat.path, err: { message: "secret detail" } });
});

test("calls are counted by method and status", async (t) => {
  const { worker, counts, server } = await world(t);
  const channel = await worker();
  await channel.unary(Heartbeat, HeartbeatRequest.create());
  await channel.unary(Heartbeat, HeartbeatRequest.create());
  await channel.unary(Heartbeat, HeartbeatRequest.create({ sessionId: "refuse" })).catch(() => {});
  await server.close(0);
  t.is(counts.get(`muster_grpc_calls_total ${Heartbeat.path} 0`), 2);
  t.is(counts.get(`muster_grpc_calls_total ${Heartbeat.path} 3`), 1);
});

test("every method of every service has a row that says who may call it", (t) => {
  const open = [...accessByPath].filter(([, access]) => access === "anyone").map(([path]) => path.split("/")[2] ?? "");
  t.deepEqual(open.toSorted(), ["GetRootCACertificate", "IssueNodeCertificate", "NodeCertificateStatus"]);
  for (const method of Object.values(DispatcherService.methods))
    t.is(accessByPath.get(method.path), "worker-or-manager");
  for (const method of Object.values(ControlService.methods)) t.is(accessByPath.get(method.path), "manager-or-local");
  for (const method of Object.values(OperatorService.methods)) t.is(accessByPath.get(method.path), "manager-or-local");
});

test("G1: without a certificate only what anyone may call is answered", async (t) => {
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

test("G1: a worker is refused what only managers may call, and a manager is not", async (t) => {
  const { worker, channel, manager } = await world(t);
  const text = `${denied}Permission denied: remote certificate not part of OUs: [swarm-manager]`;
  await refused(t, (await worker()).unary(ListNodes, ListNodesRequest.create()), Status.PERMISSION_DENIED, text);
  await refused(t, (await worker()).unary(GetUnlockKey, GetUnlockKeyRequest.create()), Status.PERMISSION_DENIED, text);
  await t.notThrowsAsync((await channel(manager)).unary(ListNodes, ListNodesRequest.create()));
});

test("G1: a certificate of another organization is refused", async (t) => {
  const { root, channel } = await world(t);
  const foreign = await channel(await identityOf({ root, organization: "org2" }));
  const text = `${denied}Permission denied: remote certificate not part of organization: org1`;
  await refused(t, foreign.unary(Heartbeat, HeartbeatRequest.create()), Status.PERMISSION_DENIED, text);
});

test("R1: a removed node is refused, and is nobody where anyone may call", async (t) => {
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

test("a certificate of another CA, or an expired one, is refused whatever is called", async (t) => {
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

test("TLS below 1.2 is refused", async (t) => {
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

/** One call made of raw bytes; what comes back of headers and trailers together. */
async function raw(
  t: ExecutionContext,
  port: number,
  headers: Record<string, string>,
  body: Uint8Array,
  identity?: { certificatePem: string; keyPem: string },
): Promise<Record<string, unknown>> {
  const own = identity === undefined ? {} : { cert: identity.certificatePem, key: identity.keyPem };
  const socket = connectTlsSocket({
    host: "127.0.0.1",
    port,
    rejectUnauthorized: false,
    ALPNProtocols: ["h2"],
    ...own,
  });
  const session = connectHttp2("https://swarm-ca", { createConnection: () => socket });
  t.teardown(() => session.destroy());
  const stream = session.request({
    ":method": "POST",
    ":path": GetRootCACertificate.path,
    "content-type": "application/grpc",
    te: "trailers",
    ...headers,
  });
  const all: Record<string, unknown> = {};
  stream.on("response", (fields) => Object.assign(all, fields));
  stream.on("trailers", (fields) => Object.assign(all, fields));
  stream.resume();
  if (body.length > 0) stream.write(body);
  if (!stream.writableEnded) stream.end();
  await once(stream, "close");
  return all;
}

test("malformed calls get the status that says what is wrong", async (t) => {
  const { port } = await world(t);
  const empty = Buffer.alloc(5);
  t.like(await raw(t, port, {}, empty), { ":status": 200, "grpc-status": "0" });
  t.like(await raw(t, port, { ":path": "/no.such.Service/Method" }, empty), { "grpc-status": "12" });
  t.like(await raw(t, port, {}, Buffer.from([0, 0, 0, 0, 2, 0x0f, 0xff])), { "grpc-status": "3" }); // not protobuf
  t.like(await raw(t, port, {}, Buffer.from([0, 0, 0, 0, 9, 1])), { "grpc-status": "3" }); // cut short
  t.like(await raw(t, port, {}, Buffer.from([1, 0, 0, 0, 0])), { "grpc-status": "12" }); // compressed
  t.like(await raw(t, port, {}, Buffer.alloc(0)), { "grpc-status": "12" }); // no request
  t.like(await raw(t, port, {}, Buffer.alloc(10)), { "grpc-status": "12" }); // two requests
  t.like(await raw(t, port, { "grpc-timeout": "soon" }, empty), { "grpc-status": "13" });
  t.like(await raw(t, port, { "content-type": "text/plain" }, empty), { ":status": 415 });
  t.like(await raw(t, port, { ":method": "GET" }, Buffer.alloc(0)), { ":status": 405 });
});

test("F1: a message over the limit is refused without taking it in, and the connection goes on", async (t) => {
  const { worker, handlers } = await world(t);
  const channel = await worker();
  await refused(
    t,
    channel.unary(Heartbeat, HeartbeatRequest.create({ sessionId: "x".repeat(5 * 1024 * 1024) })),
    Status.RESOURCE_EXHAUSTED,
  );
  t.is(handlers.calls.length, 0);
  await t.notThrowsAsync(channel.unary(Heartbeat, HeartbeatRequest.create({ sessionId: "x".repeat(3 * 1024 * 1024) })));
});

test("a deadline ends the call on both sides", async (t) => {
  const { worker, handlers, port, root } = await world(t);
  const channel = await worker();
  await refused(
    t,
    channel.unary(Heartbeat, HeartbeatRequest.create({ sessionId: "wait" }), { timeoutMs: 50 }),
    Status.DEADLINE_EXCEEDED,
  );
  await until(() => handlers.aborted.length === 1);
  t.true(handlers.calls[0]?.signal.aborted);
  // By the server's own clock too, for a client that only asks for it.
  const body = frame(HeartbeatRequest.encode(HeartbeatRequest.create({ sessionId: "wait" })));
  const answer = await raw(
    t,
    port,
    { ":path": Heartbeat.path, "grpc-timeout": "10m" },
    body,
    await identityOf({ root }),
  );
  t.like(answer, { "grpc-status": "4" });
  t.true(handlers.calls[1]?.signal.aborted);
});

test("a server stream tells its messages in order, then its end", async (t) => {
  const { worker } = await world(t);
  const channel = await worker();
  const short = collect<SessionMessage>();
  channel.serverStream(Session, SessionRequest.create({ sessionId: "short" }), short.receiver);
  t.is(await short.ended, null);
  t.deepEqual(
    short.messages.map((message) => message.sessionId),
    ["s1"],
  );
  const aborted = collect<SessionMessage>();
  channel.serverStream(Session, SessionRequest.create({ sessionId: "abort" }), aborted.receiver);
  t.like(await aborted.ended, { code: Status.ABORTED, message: "node must disconnect" });
  t.is(aborted.messages.length, 1);
  const refusal = collect<SessionMessage>();
  channel.serverStream(Session, SessionRequest.create({ sessionId: "refuse" }), refusal.receiver);
  t.like(await refusal.ended, { code: Status.UNKNOWN, message: "node not found" });
});

test("a stream without messages yet sends its headers at once", async (t) => {
  const { worker, root, port } = await world(t);
  await worker();
  const identity = await identityOf({ root });
  const socket = connectTlsSocket({
    host: "127.0.0.1",
    port,
    ca: root.certificatePem,
    cert: identity.certificatePem,
    key: identity.keyPem,
    servername: "swarm-manager",
  });
  const session = connectHttp2("https://swarm-manager", { createConnection: () => socket });
  t.teardown(() => session.destroy());
  const stream = session.request({
    ":method": "POST",
    ":path": Tasks.path,
    "content-type": "application/grpc",
    te: "trailers",
  });
  stream.end(Buffer.alloc(5));
  const [headers] = await once(stream, "response");
  t.like(headers as object, { ":status": 200, "content-type": "application/grpc" });
});

test("C2: a cancelled stream aborts its handler's signal, and its receiver hears nothing more", async (t) => {
  const { worker, handlers } = await world(t);
  const channel = await worker();
  const { messages, receiver, ended } = collect<SessionMessage>();
  const stream = channel.serverStream(Session, SessionRequest.create(), receiver);
  await until(() => messages.length === 1);
  stream.cancel();
  await until(() => handlers.aborted.includes("session"));
  (handlers.sinks[0] as Sink<unknown>).write(SessionMessage.create());
  (handlers.sinks[0] as Sink<unknown>).end();
  await channel.unary(Heartbeat, HeartbeatRequest.create());
  t.is(messages.length, 1);
  t.is(await Promise.race([ended, Promise.resolve("nothing")]), "nothing");
});

test("C2: a call that ends well never aborts its signal", async (t) => {
  const { worker, handlers } = await world(t);
  const channel = await worker();
  await channel.unary(UpdateTaskStatus, UpdateTaskStatusRequest.create());
  channel.close();
  await until(() => handlers.calls.length === 1);
  t.false(handlers.calls[0]?.signal.aborted);
});

test("a lost connection aborts its streams and fails the client's calls with UNAVAILABLE", async (t) => {
  const { worker, handlers, server } = await world(t);
  const channel = await worker();
  let closed = 0;
  channel.onClosed(() => (closed += 1));
  const { ended, messages, receiver } = collect<SessionMessage>();
  channel.serverStream(Session, SessionRequest.create(), receiver);
  await until(() => messages.length === 1);
  await server.close(0);
  t.is((await ended)?.code, Status.UNAVAILABLE);
  await until(() => closed === 1);
  t.true(handlers.aborted.includes("session"));
  await refused(t, channel.unary(Heartbeat, HeartbeatRequest.create()), Status.UNAVAILABLE);
  t.is(closed, 1);
});

test("K1: closing a channel ends its calls with CANCELLED, and is not reported as a loss", async (t) => {
  const { worker, handlers } = await world(t);
  const channel = await worker();
  channel.onClosed(() => t.fail("closed by us"));
  const waiting = channel.unary(Heartbeat, HeartbeatRequest.create({ sessionId: "wait" }));
  await until(() => handlers.calls.length === 1);
  channel.close();
  await refused(t, waiting, Status.CANCELLED);
  await until(() => handlers.aborted.includes("heartbeat"));
});

test("a closing server lets a unary call finish within the grace, and ends streams at once", async (t) => {
  const { worker, handlers, server } = await world(t);
  const channel = await worker();
  const stream = collect<SessionMessage>();
  channel.serverStream(Session, SessionRequest.create(), stream.receiver);
  const waiting = channel.unary(Heartbeat, HeartbeatRequest.create({ sessionId: "wait" }));
  await until(() => handlers.calls.length === 2);
  const closing = server.close(5_000);
  t.is((await stream.ended)?.code, Status.UNAVAILABLE);
  handlers.release[0]?.();
  await t.notThrowsAsync(waiting);
  await closing;
  t.is(server.connectionCount, 0);
});

test("a client stream arrives message by message", async (t) => {
  const { worker, handlers } = await world(t);
  const stream = (await worker()).clientStream(PublishLogs);
  for (const subscriptionId of ["a", "b", "c"]) stream.write(PublishLogsMessage.create({ subscriptionId }));
  t.deepEqual(await stream.finish(), PublishLogsResponse.create());
  t.deepEqual(handlers.seen, ["a", "b", "c"]);
});

test("a client stream may be answered before it ends", async (t) => {
  const { worker, handlers } = await world(t);
  const channel = await worker();
  const stream = channel.clientStream(PublishLogs);
  stream.write(PublishLogsMessage.create({ subscriptionId: "stop" }));
  await until(() => handlers.seen.length === 1);
  for (let at = 0; at < 100; at += 1) stream.write(PublishLogsMessage.create({ subscriptionId: "late" }));
  t.deepEqual(await stream.finish(), PublishLogsResponse.create());
  await t.notThrowsAsync(channel.unary(Heartbeat, HeartbeatRequest.create()));
});

test("a slow handler of a client stream holds its sender back instead of buffering", async (t) => {
  const { worker, handlers } = await world(t);
  const stream = (await worker()).clientStream(PublishLogs);
  stream.write(PublishLogsMessage.create({ subscriptionId: "wait" }));
  const messages = [LogMessage.create({ data: Buffer.alloc(64 * 1024) })];
  for (let at = 0; at < 200; at += 1) stream.write(PublishLogsMessage.create({ subscriptionId: "a", messages }));
  await until(() => handlers.seen.length === 1);
  handlers.release[0]?.();
  await stream.finish();
  t.is(handlers.seen.length, 201);
});

test("a request queue pauses its stream when full and resumes it when half empty", async (t) => {
  const flow: string[] = [];
  const queue = new RequestStream<number>({
    pause: () => void flow.push("pause"),
    resume: () => void flow.push("resume"),
  });
  for (let at = 0; at < 64; at += 1) {
    t.deepEqual(flow, []);
    queue.push(at, 1);
  }
  t.deepEqual(flow, ["pause"]);
  queue.end(null);
  const taken: number[] = [];
  for await (const message of queue) {
    taken.push(message);
    t.is(flow.length, taken.length <= 31 ? 1 : 2);
  }
  t.deepEqual(
    taken,
    Array.from({ length: 64 }, (_, at) => at),
  );
  t.deepEqual(flow, ["pause", "resume"]);
  const large = new RequestStream<number>({ pause: () => void flow.push("large"), resume: () => {} });
  large.push(1, 1024 * 1024);
  t.is(flow.at(-1), "large");
});

test("a cancelled client stream ends its handler's messages with an error", async (t) => {
  const { worker, handlers } = await world(t);
  const stream = (await worker()).clientStream(PublishLogs);
  stream.write(PublishLogsMessage.create({ subscriptionId: "a" }));
  await until(() => handlers.seen.length === 1);
  stream.cancel();
  await refused(t, stream.finish(), Status.CANCELLED);
  await until(() => handlers.aborted.includes("logs"));
});

test("a sink knows what its peer has not taken, and large messages arrive whole", async (t) => {
  const { worker, handlers } = await world(t);
  const { messages, receiver } = collect<AssignmentsMessage>();
  const channel = await worker();
  channel.serverStream(Assignments, AssignmentsRequest.create({ sessionId: "50" }), receiver);
  await until(() => messages.length === 50);
  t.true(messages.every((message, at) => message.resultsIn === String(at).repeat(100)));
  const sink = handlers.sinks[0] as Sink<unknown>;
  t.is(sink.bufferedBytes(), 0);
  sink.write(AssignmentsMessage.create({ resultsIn: "y".repeat(12 * 1024 * 1024) }));
  t.true(sink.bufferedBytes() > 8 * 1024 * 1024);
  // A heartbeat is answered while the large message is under way.
  await channel.unary(Heartbeat, HeartbeatRequest.create());
  await until(() => messages.length === 51);
  t.is(messages[50]?.resultsIn.length, 12 * 1024 * 1024);
  await until(() => sink.bufferedBytes() === 0);
});

test("an engine that reopens a stream a thousand times is not cut off", async (t) => {
  const { worker } = await world(t);
  const channel = await worker();
  for (let at = 0; at < 1_500; at += 1)
    channel.serverStream(Tasks, TasksRequest.create(), { onMessage: () => {}, onEnd: () => {} }).cancel();
  await t.notThrowsAsync(channel.unary(Heartbeat, HeartbeatRequest.create()));
});

test("G2: new credentials serve new connections while old ones go on", async (t) => {
  const { worker, channel, server, handlers } = await world(t);
  const old = await worker();
  const { messages, receiver } = collect<SessionMessage>();
  old.serverStream(Session, SessionRequest.create(), receiver);
  await until(() => messages.length === 1);
  const nextRoot = await createRoot();
  const next = await identityOf({ root: nextRoot, nodeId: "m1", role: "swarm-manager" });
  server.setCredentials({ ...next, rootPem: nextRoot.certificatePem });
  await old.unary(Heartbeat, HeartbeatRequest.create());
  (handlers.sinks[0] as Sink<unknown>).write(SessionMessage.create({ sessionId: "s2" }));
  await until(() => messages.length === 2);
  const fresh = await channel(await identityOf({ root: nextRoot }), nextRoot.certificatePem);
  await t.notThrowsAsync(fresh.unary(Heartbeat, HeartbeatRequest.create()));
  await refused(t, worker(), Status.UNAVAILABLE); // it trusts the old root only
});

test("a client without a root verifies nothing, with one it verifies issuer and name", async (t) => {
  const { port, root } = await world(t);
  const target = { host: "127.0.0.1", port, timeoutMs: 5_000 };
  const blind = await connectTls({ ...target, serverName: "swarm-ca" });
  await t.notThrowsAsync(blind.unary(GetRootCACertificate, GetRootCACertificateRequest.create()));
  blind.close();
  await refused(
    t,
    connectTls({ ...target, serverName: "swarm-ca", rootPem: (await createRoot()).certificatePem }),
    Status.UNAVAILABLE,
  );
  await refused(
    t,
    connectTls({ ...target, serverName: "somebody" as "swarm-ca", rootPem: root.certificatePem }),
    Status.UNAVAILABLE,
    /somebody/,
  );
});

test("a manager that is not there, or does not answer, is UNAVAILABLE", async (t) => {
  const silent = createServer(() => {});
  await once(silent.listen(0, "127.0.0.1"), "listening");
  t.teardown(() => silent.close());
  const { port } = silent.address() as { port: number };
  await refused(
    t,
    connectTls({ host: "127.0.0.1", port, serverName: "swarm-ca", timeoutMs: 50 }),
    Status.UNAVAILABLE,
    /no answer within 50 ms/,
  );
  await refused(
    t,
    connectTls({ host: "127.0.0.1", port: 1, serverName: "swarm-ca", timeoutMs: 5_000 }),
    Status.UNAVAILABLE,
  );
  await refused(t, connectUnix(join(temporaryFolder(t), "absent.sock")), Status.UNAVAILABLE);
});

test("a port in use is told in one sentence", async (t) => {
  const { port, manager, root } = await world(t);
  const { ports } = telemetry();
  const second = createGrpcServer({ telemetry: ports });
  t.teardown(() => second.close(0));
  const credentials = { ...manager, rootPem: root.certificatePem };
  const listening = second.listenTls({
    host: "127.0.0.1",
    port,
    credentials,
    organization: () => "",
    isRemoved: () => false,
  });
  await t.throwsAsync(listening, {
    name: "ListenError",
    message: `127.0.0.1:${port} is in use: stop what listens there or choose another address`,
  });
});

test("L3: the control socket is its owner's alone, and its callers are local", async (t) => {
  const { server, handlers } = await world(t);
  const path = join(temporaryFolder(t), "control.sock");
  await server.listenUnix(path);
  t.is(statSync(path).mode & 0o777, 0o600);
  const channel = await connectUnix(path);
  t.teardown(() => channel.close());
  await t.notThrowsAsync(channel.unary(ListNodes, ListNodesRequest.create()));
  await channel.unary(GetRootCACertificate, GetRootCACertificateRequest.create());
  t.deepEqual(handlers.calls[0]?.peer, { identity: null, local: true, address: "" });
  // Being local makes nobody a node.
  await refused(t, channel.unary(Heartbeat, HeartbeatRequest.create()), Status.PERMISSION_DENIED);
});

test("L4: the control socket understands TLS as well, as Docker's clients speak it there, and those are local too", async (t) => {
  const { server, handlers } = await world(t);
  const path = join(temporaryFolder(t), "control.sock");
  await server.listenUnix(path);
  const secured = connectTlsSocket({ path, rejectUnauthorized: false, ALPNProtocols: ["h2"] });
  t.teardown(() => secured.destroy());
  await once(secured, "secureConnect");
  t.is(secured.alpnProtocol, "h2");
  const client = connectHttp2("http://localhost", { createConnection: () => secured });
  t.teardown(() => client.destroy());
  const request = client.request({
    ":method": "POST",
    ":path": ListNodes.path,
    "content-type": "application/grpc",
    te: "trailers",
  });
  request.end(frame(ListNodesRequest.encode(ListNodesRequest.create())));
  const trailers = once(request, "trailers");
  request.resume();
  const [{ "grpc-status": status }] = (await trailers) as [Record<string, string>];
  t.is(status, "0");
  t.true(handlers.calls.every(({ peer }) => peer.local));
});

test("a connection to the control socket that says nothing ends with the server", async (t) => {
  const { server } = await world(t);
  const path = join(temporaryFolder(t), "control.sock");
  await server.listenUnix(path);
  const silent = connectSocket({ path });
  t.teardown(() => silent.destroy());
  await once(silent, "connect");
  // Accepted by the kernel is not yet accepted by the server: somebody who is served came after it.
  const channel = await connectUnix(path);
  await channel.unary(ListNodes, ListNodesRequest.create());
  channel.close();
  const closed = once(silent.resume(), "close");
  await server.close(0);
  await closed;
  t.pass();
});

test("the socket file of a dead process is replaced, one in use or another file is not", async (t) => {
  const folder = temporaryFolder(t);
  const path = join(folder, "control.sock");
  const script = `require("net").createServer().listen(${JSON.stringify(path)}, () => process.kill(process.pid, "SIGKILL"))`;
  spawnSync(process.execPath, ["-e", script]);
  t.true(statSync(path).isSocket());
  const { server } = await world(t);
  await server.listenUnix(path);
  const { server: second } = await world(t);
  await t.throwsAsync(second.listenUnix(path), { name: "ListenError", message: /in use by a running process/ });
  writeFileSync(join(folder, "file"), "precious");
  await t.throwsAsync(second.listenUnix(join(folder, "file")), { name: "ListenError", message: /is not a socket/ });
});
