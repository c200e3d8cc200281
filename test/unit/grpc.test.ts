// Calls as client and server see them: what arrives, what is rejected with which status, and when a call is over.
import { once } from "node:events";
import { connect as connectHttp2 } from "node:http2";
import { connect as connectTlsSocket } from "node:tls";
import test, { type ExecutionContext } from "ava";
import { frame } from "../../edges/grpc/framing.ts";
import {
  HeartbeatRequest,
  HeartbeatResponse,
  PublishLogsMessage,
  UpdateTaskStatusRequest,
} from "../../proto/gen/messages.ts";
import { watchCauses } from "../../runtime/observation/cause.ts";
import { Status } from "../../runtime/ports/rpc.ts";
import {
  Heartbeat,
  GetRootCACertificate,
  PublishLogs,
  UpdateTaskStatus,
  organization,
  identityOf,
  world,
  until,
  refused,
} from "../support/grpc-world.ts";

test("a handler sees who calls, from where and in which trace", async (t) => {
  const { worker, handlers } = await world(t);
  const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  const channel = await worker();
  t.deepEqual(
    await channel.unary(Heartbeat, HeartbeatRequest.create({ sessionId: "s1" }), { traceparent }),
    HeartbeatResponse.create(),
  );
  const { certifiedFromMs = 0, ...peer } = handlers.calls[0]?.peer ?? {};
  t.deepEqual(peer, {
    identity: { nodeId: "w1", role: "swarm-worker", organization },
    local: false,
    address: "127.0.0.1",
  });
  t.true(certifiedFromMs !== null && certifiedFromMs > 0 && certifiedFromMs <= Date.now());
  t.is(handlers.calls[0]?.traceparent, traceparent);
});

test("while somebody watches, a handler that waits continues as the work of its call until the call is over", async (t) => {
  const watching = watchCauses();
  t.teardown(() => watching.unsubscribe());
  const { worker, handlers } = await world(t);
  const channel = await worker();
  const waiting = HeartbeatRequest.create({ sessionId: "wait" });
  const released = async (count: number): Promise<void> => {
    await until(() => handlers.release.length === count);
    handlers.release[count - 1]?.();
    await until(() => handlers.causes.length === count);
  };
  const answered = channel.unary(Heartbeat, waiting);
  await released(1);
  await answered;
  const logs = channel.clientStream(PublishLogs);
  logs.write(PublishLogsMessage.create({ subscriptionId: "wait" }));
  await released(2);
  await logs.finish();
  const late = channel.unary(Heartbeat, waiting, { timeoutMs: 50 });
  await until(() => handlers.release.length === 3);
  await t.throwsAsync(late);
  await until(() => handlers.aborted.includes("heartbeat"));
  await released(3);
  t.deepEqual(handlers.causes, ["Dispatcher.Heartbeat", "LogBroker.PublishLogs", ""]);
});

test("a handler's error arrives unchanged", async (t) => {
  const { worker } = await world(t);
  await refused(
    t,
    (await worker()).unary(Heartbeat, HeartbeatRequest.create({ sessionId: "refuse" })),
    Status.INVALID_ARGUMENT,
    "session invalid: 100% of Grün",
  );
});

test("a handler's exception is logged, and only INTERNAL is returned", async (t) => {
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

/** One call of raw bytes; the result has headers and trailers together. */
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
  t.like(await raw(t, port, {}, Buffer.from([0, 0, 0, 0, 9, 1])), { "grpc-status": "3" }); // truncated
  t.like(await raw(t, port, {}, Buffer.from([1, 0, 0, 0, 0])), { "grpc-status": "12" }); // compressed
  t.like(await raw(t, port, {}, Buffer.alloc(0)), { "grpc-status": "12" }); // no request
  t.like(await raw(t, port, {}, Buffer.alloc(10)), { "grpc-status": "12" }); // two requests
  t.like(await raw(t, port, { "grpc-timeout": "soon" }, empty), { "grpc-status": "13" });
  t.like(await raw(t, port, { "content-type": "text/plain" }, empty), { ":status": 415 });
  t.like(await raw(t, port, { ":method": "GET" }, Buffer.alloc(0)), { ":status": 405 });
});

test("F1: a message over the limit is rejected without reading it, and the connection continues", async (t) => {
  const { worker, handlers } = await world(t);
  const channel = await worker();
  await refused(
    t,
    channel.unary(Heartbeat, HeartbeatRequest.create({ sessionId: "x".repeat(5 * 1024 * 1024) })),
    Status.RESOURCE_EXHAUSTED,
  );
  t.is(handlers.calls.length, 0);
  const report = UpdateTaskStatusRequest.create({ sessionId: "x".repeat(3 * 1024 * 1024) });
  await t.notThrowsAsync(channel.unary(UpdateTaskStatus, report));
  // A heartbeat never needs as much.
  await refused(
    t,
    channel.unary(Heartbeat, HeartbeatRequest.create({ sessionId: "x".repeat(64 * 1024) })),
    Status.RESOURCE_EXHAUSTED,
  );
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
  // Also by the server's own clock, for a client that only sends the header.
  const body = frame(HeartbeatRequest.encode(HeartbeatRequest.create({ sessionId: "wait" })));
  let answer: Record<string, unknown> | null = null;
  const identity = await identityOf({ root });
  void raw(t, port, { ":path": Heartbeat.path, "grpc-timeout": "10m" }, body, identity).then((got) => (answer = got));
  await until(() => answer !== null);
  t.like(answer, { "grpc-status": "4" });
  t.true(handlers.calls[1]?.signal.aborted);
});
