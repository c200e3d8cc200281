// Limits on the cost of one connection: retained bytes, header lists, frames without content, unread answers.
import { duplexPair } from "node:stream";
import test from "ava";
import { ByteBudget } from "../../edges/grpc/admission/byte-budget.ts";
import { TimeShare } from "../../edges/grpc/admission/time-share.ts";
import {
  ErrorCode,
  FrameType,
  anonymousLimits,
  headerListBytesMax,
  knownLimits,
  preface,
  type ConnectionLimits,
} from "../../edges/grpc/http2/protocol.ts";
import { RequestHeaders } from "../../edges/grpc/http2/request-headers.ts";
import { ServerConnection } from "../../edges/grpc/http2/server-connection.ts";
import type { Http2Stream } from "../../edges/grpc/http2/stream.ts";
import { ServerCall, type ServedMethod } from "../../edges/grpc/server-call.ts";

const endHeaders = 4;
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
const kib = 1024;

function frame(type: number, flags: number, streamId: number, payload: Uint8Array = new Uint8Array(0)): Buffer {
  const header = Buffer.alloc(9);
  header.writeUIntBE(payload.length, 0, 3);
  header[3] = type;
  header[4] = flags;
  header.writeUInt32BE(streamId, 5);
  return Buffer.concat([header, payload]);
}

const text = (value: string): Buffer => Buffer.concat([Buffer.from([value.length]), Buffer.from(value)]);
const literal = (name: string, value: string): Buffer => Buffer.concat([Buffer.from([0]), text(name), text(value)]);
const request = Buffer.concat([
  literal(":method", "POST"),
  literal(":scheme", "http"),
  literal(":path", "/a.B/C"),
  literal("content-type", "application/grpc"),
]);
const greeting = Buffer.concat([preface, frame(FrameType.SETTINGS, 0, 0)]);

interface Sent {
  readonly type: number;
  readonly streamId: number;
  readonly payload: Buffer;
}

function serve(options: { limits?: ConnectionLimits; budget?: ByteBudget; time?: TimeShare; reads?: boolean } = {}) {
  const [client, socket] = duplexPair();
  const received: Buffer[] = [];
  if (options.reads !== false) client.on("data", (chunk: Buffer) => received.push(chunk));
  client.on("error", () => {});
  const streams: Http2Stream[] = [];
  const kept: number[] = [];
  const given: number[] = [];
  const connection: ServerConnection = new ServerConnection(
    socket,
    {
      onRequest: (stream) => {
        const at = streams.push(stream) - 1;
        given[at] = 0;
        stream.receiver = {
          receive: (chunk) => {
            given[at] = (given[at] ?? 0) + chunk.length;
            return kept[at] ?? given[at];
          },
          received: () => {},
          closed: () => {},
        };
      },
      onClose: () => {},
    },
    options.limits ?? knownLimits,
    { bytes: options.budget ?? new ByteBudget(Number.POSITIVE_INFINITY), time: options.time ?? null },
  );
  client.write(greeting);
  return {
    client,
    socket,
    connection,
    streams,
    kept,
    send: async (...frames: readonly Buffer[]) => {
      for (const each of frames) client.write(each);
      await turn();
      await turn();
    },
    sent: (type: number): readonly Sent[] => {
      const bytes = Buffer.concat(received);
      const out: Sent[] = [];
      for (let at = 0; at + 9 <= bytes.length;) {
        const length = bytes.readUIntBE(at, 3);
        const payload = bytes.subarray(at + 9, at + 9 + length);
        if (bytes[at + 3] === type) out.push({ type, streamId: bytes.readUInt32BE(at + 5), payload });
        at += 9 + length;
      }
      return out;
    },
  };
}

const begin = (streamId: number, block: Buffer = request): Buffer =>
  frame(FrameType.HEADERS, endHeaders, streamId, block);
const data = (streamId: number, bytes: number): Buffer => frame(FrameType.DATA, 0, streamId, Buffer.alloc(bytes));

/** Codes of sent resets, by stream. */
function resets(served: { sent(type: number): readonly Sent[] }): [number, number][] {
  return served.sent(FrameType.RST_STREAM).map(({ streamId, payload }) => [streamId, payload.readUInt32BE(0)]);
}
const goAway = (served: { sent(type: number): readonly Sent[] }): number | null =>
  served.sent(FrameType.GOAWAY)[0]?.payload.readUInt32BE(4) ?? null;

test("S2: no window reopens for retained bytes of an unfinished message, and both do when it is consumed", async (t) => {
  const served = serve({ limits: anonymousLimits });
  await served.send(begin(1), data(1, 16 * kib), data(1, 16 * kib), data(1, 15 * kib));
  t.deepEqual(served.sent(FrameType.WINDOW_UPDATE), []);
  served.streams[0]?.keeps(0);
  await turn();
  t.deepEqual(
    served.sent(FrameType.WINDOW_UPDATE).map(({ streamId, payload }) => [streamId, payload.readUInt32BE(0)]),
    [
      [0, 47 * kib],
      [1, 47 * kib],
    ],
  );
});

test("a stream that exceeds its window is reset, even if the connection's window is open", async (t) => {
  const served = serve({ limits: { ...knownLimits, streamWindowBytes: 65_535 } });
  await served.send(begin(1), ...Array.from({ length: 5 }, () => data(1, 16 * kib)));
  t.deepEqual(resets(served)[0], [1, ErrorCode.FLOW_CONTROL_ERROR]);
});

test("a connection that exceeds its window ends, even if its streams' windows are open", async (t) => {
  const limits = { ...knownLimits, streamWindowBytes: 1024 * kib, connectionWindowBytes: 65_535 };
  const served = serve({ limits });
  await served.send(begin(1));
  // Reads nothing, so that no window reopens.
  served.streams[0]?.pause();
  await served.send(data(1, 16 * kib), data(1, 16 * kib), data(1, 16 * kib), data(1, 16 * kib - 1));
  t.is(goAway(served), null);
  await served.send(data(1, 1));
  t.is(goAway(served), ErrorCode.FLOW_CONTROL_ERROR);
});

test("a request whose content does not have the declared length is reset", async (t) => {
  const promising = (bytes: number): Buffer => Buffer.concat([request, literal("content-length", String(bytes))]);
  const endStream = 1;
  const served = serve();
  await served.send(
    begin(1, promising(100)),
    frame(FrameType.DATA, endStream, 1, Buffer.alloc(99)),
    begin(3, promising(100)),
    data(3, 101),
    begin(5, promising(100)),
    frame(FrameType.DATA, endStream, 5, Buffer.alloc(100)),
  );
  t.deepEqual(resets(served), [
    [1, ErrorCode.PROTOCOL_ERROR],
    [3, ErrorCode.PROTOCOL_ERROR],
  ]);
});

test("N3: when unfinished messages have used up the connection's window, the largest is reset and the others continue", async (t) => {
  const served = serve({ limits: anonymousLimits });
  await served.send(begin(1), begin(3), data(1, 16 * kib), data(1, 16 * kib), data(3, 16 * kib), data(3, 8 * kib));
  t.deepEqual(resets(served), [[1, ErrorCode.ENHANCE_YOUR_CALM]]);
  t.is(goAway(served), null);
  // Its bytes have been released, so that the other stream can complete.
  t.is(
    served
      .sent(FrameType.WINDOW_UPDATE)
      .find(({ streamId }) => streamId === 0)
      ?.payload.readUInt32BE(0),
    32 * kib,
  );
});

test("B1: when all connections hold more than their budget, the largest one ends", async (t) => {
  const budget = new ByteBudget(40 * kib);
  const [small, large, third] = [serve({ budget }), serve({ budget }), serve({ budget })];
  await small.send(begin(1), data(1, 8 * kib));
  await large.send(begin(1), data(1, 16 * kib), data(1, 8 * kib));
  t.is(budget.bytes, 32 * kib);
  await third.send(begin(1), data(1, 10 * kib));
  t.is(goAway(large), ErrorCode.ENHANCE_YOUR_CALM);
  t.is(goAway(small), null);
  t.is(goAway(third), null);
  t.is(budget.bytes, 18 * kib);
  small.client.destroy();
  third.client.destroy();
  await turn();
  t.is(budget.bytes, 0);
});

test("bytes held for a paused stream count in the budget too, and are released when it resumes", async (t) => {
  const budget = new ByteBudget(1024 * kib);
  const served = serve({ budget });
  served.kept[0] = 0;
  await served.send(begin(1));
  served.streams[0]?.pause();
  await served.send(data(1, 16 * kib), data(1, 16 * kib));
  t.is(budget.bytes, 32 * kib);
  served.streams[0]?.resume();
  t.is(budget.bytes, 0);
});

test("streams beyond an anonymous peer's limit are refused, and each counts for some bytes", async (t) => {
  const budget = new ByteBudget(1024 * kib);
  const served = serve({ limits: anonymousLimits, budget });
  const { concurrentStreamsMax: most, streamCostBytes } = anonymousLimits;
  await served.send(...Array.from({ length: most + 2 }, (_, at) => begin(2 * at + 1)));
  t.is(served.streams.length, most);
  t.deepEqual(resets(served), [
    [2 * most + 1, ErrorCode.REFUSED_STREAM],
    [2 * most + 3, ErrorCode.REFUSED_STREAM],
  ]);
  t.is(budget.bytes, most * streamCostBytes);
  await served.send(frame(FrameType.RST_STREAM, 0, 1, Buffer.alloc(4)));
  t.is(budget.bytes, (most - 1) * streamCostBytes);
});

test("window updates of one byte, priorities and unknown frames are a flood too", async (t) => {
  const one = Buffer.from([0, 0, 0, 1]);
  const floods: readonly Buffer[] = [
    frame(FrameType.WINDOW_UPDATE, 0, 0, one),
    frame(FrameType.PRIORITY, 0, 1, Buffer.from([0, 0, 0, 0, 1])),
    frame(0x7f, 0, 0, one),
  ];
  for (const each of floods) {
    const served = serve({ limits: anonymousLimits });
    await served.send(Buffer.concat(Array.from({ length: 3 * anonymousLimits.rates.others.burst }, () => each)));
    t.is(goAway(served), ErrorCode.ENHANCE_YOUR_CALM);
  }
});

test("Q1: no more of an oversized header list is checked than the limit, however often a field is repeated", (t) => {
  const headers = new RequestHeaders();
  let judged = 0;
  const value = "x".repeat(4_000);
  // The checker reads the value, and the byte counter reads it once.
  const field = {
    name: "x-long",
    get value() {
      judged += 1;
      return value;
    },
  };
  for (let at = 0; at < 16_000; at += 1) headers.onField(field);
  t.true(headers.bytes > 16_000 * 4_000);
  t.true(judged < 16_000 + 2 * Math.ceil(headerListBytesMax / 4_000) + 2, `${judged}`);
});

test("header lists over their limit cost a proportional number of resets, and end the connection", async (t) => {
  const long = Buffer.concat([
    request,
    // A field of 4,000 bytes enters the table once, and is referenced 4,000 times by a byte each.
    Buffer.concat([Buffer.from([0x40]), text("x-long"), Buffer.from([0x7f, 0xa1, 0x1e]), Buffer.alloc(4_000, 0x61)]),
    Buffer.alloc(4_000, 0x80 | 62),
  ]);
  const served = serve({ limits: anonymousLimits });
  await served.send(begin(1, long), begin(3, long), begin(5, long));
  t.deepEqual(resets(served), [
    [1, ErrorCode.ENHANCE_YOUR_CALM],
    [3, ErrorCode.ENHANCE_YOUR_CALM],
  ]);
  t.is(goAway(served), ErrorCode.ENHANCE_YOUR_CALM);
});

test("a peer that does not read its acknowledgements is disconnected", async (t) => {
  const limits = { ...anonymousLimits, rates: { ...anonymousLimits.rates, pings: { burst: 1e6, perSecond: 1 } } };
  const served = serve({ limits, reads: false });
  const pings = Buffer.concat(Array.from({ length: 1_000 }, () => frame(FrameType.PING, 0, 0, Buffer.alloc(8))));
  for (let at = 0; at < 200 && !served.socket.destroyed; at += 1) await served.send(pings);
  t.true(served.socket.destroyed);
});

test("data held by a sink for a peer that does not read is bounded, alone and with the connection's other streams", async (t) => {
  const served = serve({ limits: { ...knownLimits, queuedBytesMax: 3 * 1024 * kib } });
  await served.send(begin(1), begin(3), begin(5));
  const piece = new Uint8Array(1024 * kib);
  const method: ServedMethod = {
    path: "/a.B/C",
    messageBytesMax: 1_000,
    decode: (bytes) => bytes,
    frame: () => [piece],
    metrics: { started: () => 0, ended: () => {} },
    log: { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} },
    handler: { kind: "unary", run: () => null },
  };
  const peer = { identity: null, local: true, address: "" };
  const call = (at: number, canQueue: () => boolean): ServerCall =>
    new ServerCall(served.streams[at] as Http2Stream, method, peer, "", new Set(), { canQueue });
  const [alone, first, second] = [
    call(0, () => true),
    call(1, () => served.connection.canQueue),
    call(2, () => served.connection.canQueue),
  ];
  for (let at = 0; at < 70 && served.streams[0]?.isClosed === false; at += 1) alone.write(null);
  t.true(served.streams[0]?.isClosed);
  t.is(served.connection.queuedBytes, 0);
  first.write(null);
  first.write(null);
  second.write(null);
  // Full, although none of its own data is queued behind it.
  t.is(served.connection.queuedBytes, 3 * 1024 * kib);
  first.write(null);
  t.false(served.streams[1]?.isClosed);
  first.write(null);
  t.true(served.streams[1]?.isClosed);
  t.false(served.streams[2]?.isClosed);
  await turn();
  t.deepEqual(
    resets(served).map(([id]) => id),
    [1, 3],
  );
});

test("T1: a peer whose class has used up its time is read again when time is available", async (t) => {
  let now = 0;
  const paused: string[] = [];
  const time = new TimeShare(
    { share: 0.25, burstMs: 10 },
    () => paused.push("one"),
    () => now,
  );
  const peer = { isPaused: false, pause: () => (peer.isPaused = true), resume: () => (peer.isPaused = false) };
  time.run(peer, () => (now += 9));
  t.false(peer.isPaused);
  time.run(peer, () => (now += 9));
  t.true(peer.isPaused);
  t.is(time.waiting, 1);
  t.deepEqual(paused, ["one"]);
  now += 1_000;
  const deadline = Date.now() + 60_000;
  while (peer.isPaused && Date.now() < deadline) await new Promise((resolve) => setTimeout(resolve, 5));
  t.false(peer.isPaused);
  t.is(time.waiting, 0);
});

test("an answer that ends a request leaves nothing held, however it ended", async (t) => {
  const budget = new ByteBudget(1024 * kib);
  const served = serve({ budget });
  await served.send(begin(1), begin(3), begin(5), data(1, 100), data(3, 100), data(5, 100));
  t.is(budget.bytes, 300);
  await served.send(frame(FrameType.RST_STREAM, 0, 1, Buffer.alloc(4)));
  t.is(budget.bytes, 200);
  served.streams[1]?.reset(ErrorCode.CANCEL);
  t.is(budget.bytes, 100);
  served.streams[2]?.end(Buffer.alloc(0));
  await turn();
  t.is(budget.bytes, 0);
});
