// Streams of messages in either direction: their order, their ends, and their flow control.
import { once } from "node:events";
import { connect as connectHttp2 } from "node:http2";
import { connect as connectTlsSocket } from "node:tls";
import test from "ava";
import { RequestStream } from "../../edges/grpc/request-stream.ts";
import {
  AssignmentsMessage,
  AssignmentsRequest,
  HeartbeatRequest,
  LogMessage,
  PublishLogsMessage,
  PublishLogsResponse,
  SessionMessage,
  SessionRequest,
  TasksRequest,
  UpdateTaskStatusRequest,
} from "../../proto/gen/messages.ts";
import { Status, type Sink } from "../../runtime/ports/rpc.ts";
import {
  Heartbeat,
  Session,
  Assignments,
  Tasks,
  UpdateTaskStatus,
  PublishLogs,
  identityOf,
  world,
  until,
  refused,
  collect,
} from "../support/grpc-world.ts";

test("a server stream delivers its messages in order, then its end", async (t) => {
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

test("C2: a cancelled stream aborts its handler's signal, and its receiver gets nothing more", async (t) => {
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

test("C2: a call that ends normally never aborts its signal", async (t) => {
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

test("a slow handler of a client stream blocks its sender instead of buffering", async (t) => {
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
    taken: () => {},
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
  const large = new RequestStream<number>({ pause: () => void flow.push("large"), resume: () => {}, taken: () => {} });
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

test("a sink knows what its peer has not read, and large messages arrive whole", async (t) => {
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
  // A heartbeat is answered while the large message is in transit.
  await channel.unary(Heartbeat, HeartbeatRequest.create());
  await until(() => messages.length === 51);
  t.is(messages[50]?.resultsIn.length, 12 * 1024 * 1024);
  await until(() => sink.bufferedBytes() === 0);
});

test("an engine that reopens a stream a thousand times is not disconnected", async (t) => {
  const { worker } = await world(t);
  const channel = await worker();
  for (let at = 0; at < 1_500; at += 1)
    channel.serverStream(Tasks, TasksRequest.create(), { onMessage: () => {}, onEnd: () => {} }).cancel();
  await t.notThrowsAsync(channel.unary(Heartbeat, HeartbeatRequest.create()));
});
