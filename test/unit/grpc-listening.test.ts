// Where the server listens and how it starts and stops: addresses, credentials, the control socket.
import { once } from "node:events";
import { statSync, writeFileSync } from "node:fs";
import { connect as connectHttp2 } from "node:http2";
import { connect as connectSocket, createServer, type Socket } from "node:net";
import { join } from "node:path";
import { duplexPair } from "node:stream";
import { connect as connectTlsSocket } from "node:tls";
import { spawnSync } from "node:child_process";
import test from "ava";
import { connectTls, connectTlsOver, connectUnix } from "../../edges/grpc/client.ts";
import { frame } from "../../edges/grpc/framing.ts";
import { notDockerMessage } from "../../edges/grpc/http1.ts";
import { createGrpcServer } from "../../edges/grpc/server.ts";
import {
  GetRootCACertificateRequest,
  HeartbeatRequest,
  ListNodesRequest,
  SessionMessage,
  SessionRequest,
} from "../../proto/gen/messages.ts";
import { createRoot } from "../../lib/pki/index.ts";
import { Status, type Sink } from "../../runtime/ports/rpc.ts";
import { SystemClock } from "../../runtime/system/clock.ts";
import {
  Heartbeat,
  Session,
  GetRootCACertificate,
  ListNodes,
  identityOf,
  telemetry,
  world,
  temporaryFolder,
  until,
  refused,
  collect,
} from "../support/grpc-world.ts";

test("a closing server lets a unary call finish within the grace period, and ends streams at once", async (t) => {
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

test("G2: new credentials serve new connections while old ones continue", async (t) => {
  const { worker, channel, server, handlers, root } = await world(t);
  const old = await worker();
  const { messages, receiver } = collect<SessionMessage>();
  old.serverStream(Session, SessionRequest.create(), receiver);
  await until(() => messages.length === 1);
  const nextRoot = await createRoot();
  const next = await identityOf({ root: nextRoot, nodeId: "m1", role: "swarm-manager" });
  server.setCredentials({ ...next, rootPem: root.certificatePem + nextRoot.certificatePem });
  await old.unary(Heartbeat, HeartbeatRequest.create());
  (handlers.sinks[0] as Sink<unknown>).write(SessionMessage.create({ sessionId: "s2" }));
  await until(() => messages.length === 2);
  const fresh = await channel(await identityOf({ root: nextRoot }), nextRoot.certificatePem);
  await t.notThrowsAsync(fresh.unary(Heartbeat, HeartbeatRequest.create()));
  await refused(t, worker(), Status.UNAVAILABLE); // it trusts only the old root
});

test("a client without a root verifies nothing, and with one it verifies issuer and name", async (t) => {
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

test("a connection that another edge has accepted is served as over TCP, by its certificate, and has its site", async (t) => {
  const { handlers, root, server } = await world(t);
  const carrier = { address: "198.51.100.7", site: "lab" };
  const dial = async (identity: object) => {
    const [near, far] = duplexPair();
    near.once("close", () => far.destroy());
    far.once("close", () => near.destroy());
    server.accept(far, carrier);
    const securing = {
      rootPem: root.certificatePem,
      serverName: "swarm-manager",
      timeoutMs: 5_000,
      ...identity,
    } as const;
    const channel = await connectTlsOver(near, "lab", securing);
    t.teardown(() => channel.close());
    return { channel, far };
  };
  const [first, second] = await Promise.all([
    identityOf({ root, nodeId: "w1" }).then(dial),
    identityOf({ root, nodeId: "w2" }).then(dial),
  ]);
  for (const { channel } of [first, second]) await channel.unary(Heartbeat, HeartbeatRequest.create());
  t.deepEqual(
    handlers.calls.map(({ peer: { address, identity, site } }) => [identity?.nodeId, address, site]),
    [
      ["w1", "198.51.100.7", "lab"],
      ["w2", "198.51.100.7", "lab"],
    ],
  );
  t.is(server.connectionCount, 2);
  const stranger = await dial({});
  await refused(t, stranger.channel.unary(Heartbeat, HeartbeatRequest.create()), Status.PERMISSION_DENIED);
  const closed = new Promise<void>((resolve) => first.channel.onClosed(resolve));
  first.far.destroy();
  await closed;
  second.channel.close();
  await until(() => server.connectionCount === 1);
  await until(() => second.far.destroyed);
});

test("an accepted connection without a handshake is closed, and one that fails harms nobody", async (t) => {
  const { counts, root, server } = await world(t, { limits: { pendingPerAddressMax: 2 } });
  const carrier = { address: "198.51.100.7", site: "lab" };
  const silent = Array.from({ length: 3 }, () => duplexPair());
  for (const [near, far] of silent) {
    near.on("error", () => undefined);
    server.accept(far, carrier);
  }
  await until(() => silent.filter(([, far]) => far.destroyed).length === 1);
  t.is(counts.get("muster_refused_total grpc pending-limit"), 1);
  const [near, far] = duplexPair();
  near.on("error", () => undefined);
  server.accept(far, { ...carrier, site: "attic" });
  near.write("neither TLS nor HTTP");
  await until(() => far.destroyed);
  const [good, other] = duplexPair();
  server.accept(other, { ...carrier, site: "attic" });
  const securing = { rootPem: root.certificatePem, serverName: "swarm-manager", timeoutMs: 5_000 } as const;
  const channel = await connectTlsOver(good, "attic", securing);
  t.teardown(() => channel.close());
  await t.notThrowsAsync(channel.unary(GetRootCACertificate, GetRootCACertificateRequest.create()));
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

test("a port in use is reported in one sentence", async (t) => {
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
    onChange: () => ({ unsubscribe: () => {} }),
    clock: new SystemClock(),
  });
  await t.throwsAsync(listening, {
    name: "ListenError",
    message: `127.0.0.1:${port} is in use: stop the process that uses it or choose another address`,
  });
});

test("L3: only its owner can use the control socket, and its callers are local", async (t) => {
  const { server, handlers } = await world(t);
  const path = join(temporaryFolder(t), "control.sock");
  await server.listenUnix(path);
  t.is(statSync(path).mode & 0o777, 0o600);
  const channel = await connectUnix(path);
  t.teardown(() => channel.close());
  await t.notThrowsAsync(channel.unary(ListNodes, ListNodesRequest.create()));
  await channel.unary(GetRootCACertificate, GetRootCACertificateRequest.create());
  t.deepEqual(handlers.calls[0]?.peer, { identity: null, local: true, address: "" });
  // A local caller is not thereby a node.
  await refused(t, channel.unary(Heartbeat, HeartbeatRequest.create()), Status.PERMISSION_DENIED);
});

test("L4: the control socket also accepts TLS, as Docker's clients speak it there, and those are local too", async (t) => {
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

/** Everything that the server sends until it closes. */
async function answerTo(socket: Socket, request: string): Promise<string> {
  socket.on("error", () => {});
  socket.write(request);
  return (await socket.toArray()).join("");
}

test("L5: an HTTP/1 request is answered with Docker's JSON error, on the control socket and on the port, TLS or not", async (t) => {
  const { server, port } = await world(t);
  const path = join(temporaryFolder(t), "control.sock");
  await server.listenUnix(path);
  const connections: (() => Socket)[] = [
    () => connectSocket({ path }),
    () => connectTlsSocket({ path, rejectUnauthorized: false }),
    () => connectSocket(port, "127.0.0.1"),
    () => connectTlsSocket({ port, host: "127.0.0.1", rejectUnauthorized: false }),
  ];
  for (const open of connections) {
    const answer = await answerTo(open(), "GET /v1.41/containers/json HTTP/1.1\r\nHost: docker\r\n\r\n");
    const [head = "", body = ""] = answer.split("\r\n\r\n");
    t.regex(head, /^HTTP\/1\.1 400 Bad Request\r\nContent-Type: application\/json\r\n/);
    t.deepEqual(JSON.parse(body), { message: notDockerMessage });
    t.true(head.includes(`Content-Length: ${Buffer.byteLength(body)}`));
    const headOnly = await answerTo(open(), "HEAD /_ping HTTP/1.1\r\nHost: docker\r\n\r\n");
    t.true(headOnly.endsWith("\r\n\r\n"));
  }
  // Neither HTTP/1 nor HTTP/2: closed as before.
  t.notRegex(await answerTo(connectSocket({ path }), "EHLO there\r\n"), /HTTP/);
});

test("a silent connection to the control socket ends with the server", async (t) => {
  const { server } = await world(t);
  const path = join(temporaryFolder(t), "control.sock");
  await server.listenUnix(path);
  const silent = connectSocket({ path });
  t.teardown(() => silent.destroy());
  await once(silent, "connect");
  // Accepted by the kernel is not yet accepted by the server: a caller that is served came after it.
  const channel = await connectUnix(path);
  await channel.unary(ListNodes, ListNodesRequest.create());
  channel.close();
  const closed = once(silent.resume(), "close");
  await server.close(0);
  await closed;
  t.pass();
});

test("the socket file of a dead process is replaced, and one in use or another file is not", async (t) => {
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
