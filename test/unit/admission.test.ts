// Admission while others try to keep callers out: classes of connections, the pace of handshakes, and reports of refusals.
import { connect as connectSocket, type Socket } from "node:net";
import { duplexPair } from "node:stream";
import { connect as connectTlsSocket, type TLSSocket } from "node:tls";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import test, { type ExecutionContext } from "ava";
import { CallTurns } from "../../edges/grpc/admission/call-turns.ts";
import { Crowd } from "../../edges/grpc/admission/crowd.ts";
import { sourceOf } from "../../runtime/source-of.ts";
import { Handshakes } from "../../edges/grpc/admission/handshakes.ts";
import { Refusals } from "../../edges/grpc/admission/refusals.ts";
import {
  GetRootCACertificateRequest,
  HeartbeatRequest,
  PublishLogsMessage,
  SessionRequest,
} from "../../proto/gen/messages.ts";
import { type RpcError, Status } from "../../runtime/ports/rpc.ts";
import {
  GetRootCACertificate,
  Heartbeat,
  ListNodes,
  PublishLogs,
  Session,
  identityOf,
  refused,
  telemetry,
  until,
  world,
} from "../support/grpc-world.ts";

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;

const member = (name: string, isServed = false) => ({ name, isServed });

test("W1: when the limit is reached, the oldest connection of the most crowded source is closed, whoever connects", (t) => {
  const crowd = new Crowd<ReturnType<typeof member>>(4);
  for (const name of ["a1", "a2", "a3"]) t.is(crowd.add("a", member(name), 10), null);
  t.is(crowd.add("b", member("b1"), 10), null);
  t.is(crowd.add("c", member("c1"), 10)?.name, "a1");
  t.is(crowd.add("a", member("a4"), 10)?.name, "a2");
  t.is(crowd.size, 4);
});

test("W1: a source gets no more than its own share, and connections in use are closed last", (t) => {
  const crowd = new Crowd<ReturnType<typeof member>>(10);
  const served = member("a1", true);
  crowd.add("a", served, 2);
  crowd.add("a", member("a2"), 2);
  t.is(crowd.add("a", member("a3"), 2)?.name, "a2");
  t.is(crowd.add("b", member("b1"), 2), null);
  t.true(crowd.remove("a", served));
  t.false(crowd.remove("a", served));
  t.is(crowd.size, 2);
});

test("addresses of one IPv6 network are one source, and each IPv4 address is its own, in any notation", (t) => {
  t.is(sourceOf("192.0.2.1"), "192.0.2.1");
  t.is(sourceOf("::ffff:192.0.2.1"), "192.0.2.1");
  t.is(sourceOf("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2");
  t.is(sourceOf("2001:db8:1:2::9"), "2001:db8:1:2");
  t.is(sourceOf("2001:db8::9"), "2001:db8:0:0");
  t.is(sourceOf("fe80::1%eth0"), "fe80:0:0:0");
  t.is(sourceOf("::1"), "0:0:0:0");
});

/** Counts the turns of the event loop from now until the end of the test. */
function countTurns(t: ExecutionContext): () => number {
  let turns = 0;
  let isCounting = true;
  const count = (): void => {
    turns += 1;
    if (isCounting) setImmediate(count);
  };
  setImmediate(count);
  t.teardown(() => (isCounting = false));
  return () => turns;
}

/** Takes some milliseconds of the event loop, as a handshake does. */
function busy(ms: number): void {
  const end = performance.now() + ms;
  while (performance.now() < end);
}

test("H1: handshakes start in turns between their sources, a few in each turn of the event loop", async (t) => {
  const begun: string[] = [];
  const turns = countTurns(t);
  const handshakes = new Handshakes(8, () => true);
  const offer = (source: string, isWanted = true): void =>
    handshakes.offer(
      source,
      () => {
        begun.push(`${source} ${turns()}`);
        // Node works on a handshake in a tick of its own.
        process.nextTick(busy, 5);
      },
      () => isWanted,
    );
  for (let n = 0; n < 6; n += 1) offer("crowd");
  offer("gone", false);
  offer("one");
  t.is(begun.length, 0, "none starts before the other events of its turn");
  await until(() => begun.length === 7);
  t.true(begun.findIndex((each) => each.startsWith("one")) <= 2, begun.join(", "));
  t.false(begun.some((each) => each.startsWith("gone")));
  const perTurn = Map.groupBy(begun, (each) => each.split(" ")[1]);
  t.true(
    [...perTurn.values()].every(({ length }) => length <= 2),
    begun.join(", "),
  );
});

test("H2: while the oldest has waited long, the newest is next", async (t) => {
  let now = 0;
  let mayStart = false;
  const begun: string[] = [];
  const handshakes = new Handshakes(
    100,
    () => mayStart,
    () => now,
  );
  const offer = (name: string, isWanted = () => true): void =>
    handshakes.offer("crowd", () => begun.push(name), isWanted);
  offer("gone", () => now < 1);
  offer("oldest");
  offer("second");
  now = 1_500;
  offer("newest");
  offer("gone too", () => now < 1_501);
  now = 2_000;
  t.is(handshakes.waitMs(), 2_000, "the oldest that has not left");
  mayStart = true;
  handshakes.ended();
  await until(() => begun.length === 3);
  t.is(handshakes.waitMs(), 0);
  t.deepEqual(begun, ["newest", "second", "oldest"]);
  now = 3_000;
  for (const name of ["first", "last"]) offer(name);
  await until(() => begun.length === 5);
  t.deepEqual(begun.slice(3), ["first", "last"]);
});

test("H3: while connections arrive in each turn, handshakes wait for them, though not for long", async (t) => {
  let now = 0;
  let turns = 0;
  let isArriving = true;
  const handshakes = new Handshakes(
    10,
    () => true,
    () => now,
  );
  const arrive = (): void => {
    turns += 1;
    now += 1;
    handshakes.arrived();
    if (isArriving) setImmediate(arrive);
  };
  t.teardown(() => (isArriving = false));
  const begun: number[] = [];
  const offer = (): void =>
    handshakes.offer(
      "crowd",
      () => begun.push(now),
      () => true,
    );
  offer();
  await until(() => begun.length === 1);
  arrive();
  const since = now;
  offer();
  await until(() => begun.length === 2);
  t.is(handshakes.waitMs(), now - since, "the kernel may hold more");
  t.true((begun[1] ?? 0) >= 20 && (begun[1] ?? 0) <= 25, `started after ${begun[1]} ms`);
  isArriving = false;
  const before = now;
  await new Promise((resolve) => setImmediate(resolve));
  await until(() => handshakes.waitMs() === 0);
  offer();
  await until(() => begun.length === 3);
  t.true((begun[2] ?? 0) <= before + 2);
  t.true(turns >= 20);
});

test("H4: connections that have left are forgotten, although the oldest of their source waits", async (t) => {
  const handshakes = new Handshakes(10, () => false);
  const kept: WeakRef<() => void>[] = [];
  const offer = (isWanted: () => boolean): void => {
    const start = (): void => void kept.length;
    kept.push(new WeakRef(start));
    handshakes.offer("crowd", start, isWanted);
  };
  offer(() => true);
  for (let n = 0; n < 10_000; n += 1) {
    let isWanted = true;
    offer(() => isWanted);
    offer(() => n < 100);
    isWanted = false;
  }
  offer(() => true);
  await new Promise((resolve) => setTimeout(resolve, 1));
  collect();
  const { length } = kept.filter((each) => each.deref() !== undefined);
  t.true(length >= 102 && length <= 600, `${length} are kept`);
});

test("E1: a connection over a link is closed once its peer has ended its side while it waits", async (t) => {
  const { counts, server } = await world(t, { limits: { handshakesMax: 0 } });
  const [ours, theirs] = duplexPair();
  server.accept(ours, { address: "192.0.2.1", site: "north" });
  theirs.write(Buffer.from([0x16, 3, 1, 0, 200, 1]));
  await new Promise((resolve) => setTimeout(resolve, 100));
  t.false(ours.destroyed);
  theirs.end();
  await until(() => ours.destroyed);
  t.is(counts.get("muster_refused_total grpc handshake-time"), undefined, "not closed because it waited too long");
});

test("E1: a connection that its peer ends while it waits for its handshake is closed at once", async (t) => {
  const { port, counts } = await world(t, { limits: { handshakesMax: 0 } });
  const socket = connectSocket({ host: "127.0.0.1", port });
  t.teardown(() => socket.destroy());
  socket.on("error", () => {});
  socket.write(Buffer.from([0x16, 3, 1, 0, 200, 1]));
  await new Promise((resolve) => setTimeout(resolve, 100));
  t.false(socket.closed);
  socket.end();
  await until(() => socket.closed);
  t.is(counts.get("muster_refused_total grpc handshake-time"), undefined, "not closed because it waited too long");
});

test("CT1, CT2: waiting calls are handled in the order of their classes, some in each turn of the event loop", async (t) => {
  let now = 0;
  const turns = countTurns(t);
  const begun: string[] = [];
  const calls = new CallTurns({ callTurnMs: 10, waitingCallsMax: 100 }, undefined, () => now);
  const call =
    (name: string, ms = 6) =>
    () => {
      begun.push(`${name} ${turns()}`);
      now += ms;
    };
  for (const name of ["read 1", "read 2", "read 3"]) calls.offer("reads", call(name));
  t.deepEqual(begun, ["read 1 0", "read 2 0"], "the turn has 10 ms");
  t.is(calls.nodesWaitMs(), 0, "no node's call waits");
  calls.offer("registrations", call("registration"));
  now += 3;
  calls.offer("assignments", call("assignment"));
  now += 4;
  t.is(calls.nodesWaitMs(), 7);
  calls.offer("reads", call("read 4"));
  await until(() => begun.length === 6);
  t.deepEqual(
    begun.slice(2).map((text) => text.slice(0, -2)),
    ["assignment", "registration", "read 3", "read 4"],
  );
  const turnOf = (at: number): number => Number(begun[at]?.slice(-1));
  t.is(turnOf(2), turnOf(3));
  t.true(turnOf(4) > turnOf(3), "two calls took more than 10 ms");
});

test("CT3: a class's calls beyond the limit are refused, and other classes still wait", async (t) => {
  const waiting: string[] = [];
  const calls = new CallTurns({ callTurnMs: 0.001, waitingCallsMax: 2 }, (of, count) => waiting.push(`${of} ${count}`));
  let done = 0;
  const busy = (): void => {
    const until_ = performance.now() + 1;
    while (performance.now() < until_);
    done += 1;
  };
  t.deepEqual(
    [1, 2, 3, 4].map(() => calls.offer("reads", busy)),
    [true, true, true, false],
  );
  t.true(calls.offer("assignments", busy));
  await until(() => done === 4);
  t.deepEqual(waiting.slice(0, 3), ["reads 1", "reads 2", "assignments 1"]);
  t.deepEqual(waiting.slice(-3), ["assignments 0", "reads 1", "reads 0"]);
});

test("CT3: an overloaded server refuses registrations beyond its limit, and still answers heartbeats", async (t) => {
  const { worker, counts } = await world(t, { limits: { callTurnMs: 0.001, waitingCallsMax: 3 } });
  const channel = await worker();
  const ended: (RpcError | null)[] = [];
  for (let number = 0; number < 20; number += 1)
    channel.serverStream(Session, SessionRequest.create(), {
      onMessage: () => undefined,
      onEnd: (error) => ended.push(error),
    });
  await channel.unary(Heartbeat, HeartbeatRequest.create({ sessionId: "s1" }));
  const refusals = (): number => counts.get("muster_refused_total grpc waiting-calls") ?? 0;
  await until(() => refusals() > 0 && ended.length >= refusals());
  const [first] = ended;
  t.is(first?.code, Status.UNAVAILABLE);
  t.regex(first?.message ?? "", /overloaded/);
  t.true(refusals() <= 16, "one was handled at once, and three waited");
});

test("each refusal is counted, and its reason is logged once per interval with the number of refusals", (t) => {
  let now = 0;
  const lines: object[] = [];
  const { ports, counts } = telemetry();
  const refusals = new Refusals(
    { ...ports, log: { ...ports.log, warn: (fields) => void lines.push(fields) } },
    () => now,
  );
  for (let n = 0; n < 100; n += 1) refusals.count("grpc", "anonymous-limit", "192.0.2.1");
  now = 10_000;
  refusals.count("grpc", "anonymous-limit", "192.0.2.1");
  t.is(counts.get("muster_refused_total grpc anonymous-limit"), 101);
  t.deepEqual(
    lines.map((line) => (line as { refused: number }).refused),
    [1, 100],
  );
});

/** A connection without a certificate, as a stranger opens it. */
async function stranger(t: ExecutionContext, port: number, family: { localAddress?: string } = {}): Promise<TLSSocket> {
  const socket = connectTlsSocket({
    host: "127.0.0.1",
    port,
    rejectUnauthorized: false,
    ALPNProtocols: ["h2"],
    ...family,
  });
  t.teardown(() => socket.destroy());
  socket.on("error", () => {}).resume();
  await new Promise<void>((resolve) => socket.once("secureConnect", resolve).once("close", () => resolve()));
  return socket;
}

const greeting = Buffer.concat([
  Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
  Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0]),
]);

test("G4: strangers displace each other, and a caller with a certificate gets in and stays", async (t) => {
  const { port, server, counts, worker } = await world(t, { limits: { anonymousMax: 5, anonymousPerAddressMax: 4 } });
  const known = await worker();
  const strangers: TLSSocket[] = [];
  for (let n = 0; n < 12; n += 1) strangers.push(await stranger(t, port));
  await until(() => strangers.filter(({ closed }) => closed).length === 8);
  t.deepEqual(
    strangers.map(({ closed }) => closed),
    Array.from({ length: 12 }, (_, n) => n < 8),
  );
  await until(() => server.connectionCount === 5);
  await t.notThrowsAsync(known.unary(Heartbeat, HeartbeatRequest.create()));
  await t.notThrowsAsync((await worker()).unary(Heartbeat, HeartbeatRequest.create()));
  t.is(counts.get("muster_refused_total grpc anonymous-limit"), 8);
  // Another address still gets in.
  const other = await stranger(t, port, { localAddress: "127.0.0.2" });
  await new Promise((resolve) => setTimeout(resolve, 20));
  t.false(other.closed);
});

test("G4: connections of one node have a limit too, and the newest is served", async (t) => {
  const { channel, root, server } = await world(t, { limits: { workerConnectionsMax: 2 } });
  const identity = await identityOf({ root });
  for (let n = 0; n < 5; n += 1) {
    const opened = await channel(identity);
    await t.notThrowsAsync(opened.unary(Heartbeat, HeartbeatRequest.create()));
  }
  await until(() => server.connectionCount === 2);
  t.is(server.connectionCount, 2);
});

test("a stranger without a complete request is disconnected in time, whatever it sends; one that has been answered is not", async (t) => {
  const limits = { anonymousIdleMs: 300, anonymousSweepMs: 20 };
  const { port, server, counts, channel } = await world(t, { limits });
  const idle = await stranger(t, port);
  const silent = await stranger(t, port);
  silent.write(greeting);
  const busy = await channel(null);
  await busy.unary(GetRootCACertificate, GetRootCACertificateRequest.create());
  // Headers of an endless call, and an occasional ping.
  const unfinished = await stranger(t, port);
  const literal = (name: string, value: string): Buffer =>
    Buffer.concat([Buffer.of(0, name.length), Buffer.from(name), Buffer.of(value.length), Buffer.from(value)]);
  const block = Buffer.concat([
    literal(":method", "POST"),
    literal(":scheme", "https"),
    literal(":path", GetRootCACertificate.path),
    literal("content-type", "application/grpc"),
  ]);
  unfinished.write(Buffer.concat([greeting, Buffer.from([0, 0, block.length, 1, 4, 0, 0, 0, 1]), block]));
  const pings = setInterval(
    () => unfinished.write(Buffer.from([0, 0, 8, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])),
    50,
  );
  t.teardown(() => clearInterval(pings));
  await until(() => idle.closed && silent.closed && unfinished.closed);
  clearInterval(pings);
  await until(() => server.connectionCount <= 1);
  t.is(counts.get("muster_refused_total grpc anonymous-idle"), 1);
});

test("a stranger's request is small, and its declared length alone gets it rejected", async (t) => {
  const { channel, worker } = await world(t, { limits: { anonymousMessageBytesMax: 1_000 } });
  const large = {
    ...GetRootCACertificate,
    request: { ...GetRootCACertificate.request, encode: () => new Uint8Array(2_000) },
  };
  const strange = await channel(null);
  await refused(t, strange.unary(large as never, {}), Status.RESOURCE_EXHAUSTED, /limit 1000 bytes/);
  await t.notThrowsAsync(
    (await worker()).unary(large as never, {}).catch((error: RpcError) => t.not(error.code, Status.RESOURCE_EXHAUSTED)),
  );
  await refused(t, strange.unary(ListNodes, {} as never), Status.PERMISSION_DENIED);
});

test("a node's incomplete request ends with DEADLINE_EXCEEDED, and a stream between two messages continues", async (t) => {
  const { worker, handlers, counts } = await world(t, { limits: { knownSweepMs: 200 } });
  const channel = await worker();
  const open = channel.clientStream(PublishLogs);
  open.write(PublishLogsMessage.create({ subscriptionId: "first" }));
  await until(() => handlers.seen.length === 1);
  // A heartbeat call whose request never arrives.
  channel.clientStream({ ...PublishLogs, path: Heartbeat.path });
  await until(() => counts.get("muster_refused_total grpc unfinished-request") === 1);
  open.write(PublishLogsMessage.create({ subscriptionId: "second" }));
  await until(() => handlers.seen.length === 2);
  await t.notThrowsAsync(open.finish());
});

test("E1: connections that never complete a handshake leave capacity for those that do", async (t) => {
  const limits = { pendingMax: 8, pendingPerAddressMax: 6, handshakesMax: 2, handshakePatienceMs: 50 };
  const { port, worker, counts } = await world(t, { limits });
  const silent: Socket[] = [];
  const open = async (bytes: Buffer | null): Promise<void> => {
    const socket = connectSocket({ host: "127.0.0.1", port });
    t.teardown(() => socket.destroy());
    socket.on("error", () => {});
    await new Promise((resolve) => socket.once("connect", resolve));
    if (bytes !== null) socket.write(bytes);
    silent.push(socket);
  };
  for (let n = 0; n < 20; n += 1) await open(null);
  // The beginning of a handshake that is never completed.
  for (let n = 0; n < 5; n += 1) await open(Buffer.from([0x16, 3, 1, 0, 200, 1]));
  const channel = await worker();
  await t.notThrowsAsync(channel.unary(Heartbeat, HeartbeatRequest.create()));
  await until(() => silent.filter(({ closed }) => closed).length >= 17);
  t.true((counts.get("muster_refused_total grpc pending-limit") ?? 0) > 0);
  // Bytes with which no handshake begins.
  await open(Buffer.alloc(20_000));
  await until(() => (counts.get("muster_refused_total grpc first-bytes") ?? 0) > 0);
});
