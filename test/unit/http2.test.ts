// HTTP/2 against what its peers may send: vectors, every split of the bytes, garbage, and floods.
import { duplexPair, type Duplex } from "node:stream";
import test from "ava";
import fc from "fast-check";
import { ServerConnection } from "../../edges/grpc/http2/server-connection.ts";
import { HpackDecoder } from "../../edges/grpc/http2/hpack-decoder.ts";
import { ErrorCode, FrameType, headerTableBytesMax, knownLimits, preface } from "../../edges/grpc/http2/protocol.ts";
import type { Http2Stream } from "../../edges/grpc/http2/stream.ts";

function hex(text: string): Buffer {
  return Buffer.from(text.replaceAll(/\s/g, ""), "hex");
}

function decodeAll(decoder: HpackDecoder, block: Buffer): string[] {
  const fields: string[] = [];
  decoder.decode(block, 0, block.length, { onField: ({ name, value }) => fields.push(`${name}: ${value}`) });
  return fields;
}

function frame(type: number, flags: number, streamId: number, payload: Buffer = Buffer.alloc(0)): Buffer {
  const header = Buffer.alloc(9);
  header.writeUIntBE(payload.length, 0, 3);
  header[3] = type;
  header[4] = flags;
  header.writeUInt32BE(streamId, 5);
  return Buffer.concat([header, payload]);
}

const settings = frame(FrameType.SETTINGS, 0, 0);

interface Served {
  readonly client: Duplex;
  readonly requests: string[];
  readonly bodies: string[];
  /** Frames that the server has sent, as type and payload. */
  frames(): { readonly type: number; readonly payload: Buffer }[];
  /** Error code of the GOAWAY; null if none arrived. */
  goAway(): number | null;
  closed(): boolean;
}

function serve(): Served {
  const [client, socket] = duplexPair();
  const received: Buffer[] = [];
  const requests: string[] = [];
  const bodies: string[] = [];
  let isClosed = false;
  client.on("data", (chunk: Buffer) => received.push(chunk));
  client.on("error", () => {});
  new ServerConnection(socket, {
    onRequest: (stream: Http2Stream, headers) => {
      requests.push(headers.path);
      const at = bodies.push("") - 1;
      stream.receiver = {
        receive: (bytes: Uint8Array) => {
          bodies[at] += Buffer.from(bytes).toString("hex");
          return 0;
        },
        received: () => (bodies[at] += "."),
        closed: () => {},
      };
    },
    onClose: () => (isClosed = true),
  });
  const frames = (): { type: number; payload: Buffer }[] => {
    const bytes = Buffer.concat(received);
    const out: { type: number; payload: Buffer }[] = [];
    for (let at = 0; at + 9 <= bytes.length;) {
      const length = bytes.readUIntBE(at, 3);
      out.push({ type: bytes[at + 3] as number, payload: bytes.subarray(at + 9, at + 9 + length) });
      at += 9 + length;
    }
    return out;
  };
  return {
    client,
    requests,
    bodies,
    frames,
    goAway: () =>
      frames()
        .find(({ type }) => type === FrameType.GOAWAY)
        ?.payload.readUInt32BE(4) ?? null,
    closed: () => isClosed,
  };
}

/** A header block of literals without indexing. */
function block(fields: Readonly<Record<string, string>>): Buffer {
  const text = (value: string): Buffer => Buffer.concat([Buffer.from([value.length]), Buffer.from(value)]);
  return Buffer.concat(Object.entries(fields).flatMap(([name, value]) => [Buffer.from([0]), text(name), text(value)]));
}

const request = block({
  ":method": "POST",
  ":scheme": "http",
  ":path": "/a.B/C",
  "content-type": "application/grpc",
  te: "trailers",
});
const endStream = 1;
const endHeaders = 4;
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test("HPACK decodes the request sequence of RFC 7541 C.4, with Huffman coding and the dynamic table", (t) => {
  const decoder = new HpackDecoder(headerTableBytesMax);
  t.deepEqual(decodeAll(decoder, hex("8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff")), [
    ":method: GET",
    ":scheme: http",
    ":path: /",
    ":authority: www.example.com",
  ]);
  t.deepEqual(decodeAll(decoder, hex("8286 84be 5886 a8eb 1064 9cbf")), [
    ":method: GET",
    ":scheme: http",
    ":path: /",
    ":authority: www.example.com",
    "cache-control: no-cache",
  ]);
  t.deepEqual(decodeAll(decoder, hex("8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf")), [
    ":method: GET",
    ":scheme: https",
    ":path: /index.html",
    ":authority: www.example.com",
    "custom-key: custom-value",
  ]);
});

test("HPACK evicts from a small table as in RFC 7541 C.5", (t) => {
  const decoder = new HpackDecoder(256);
  decodeAll(
    decoder,
    hex(`4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3120 474d
         546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d`),
  );
  t.deepEqual(decodeAll(decoder, hex("4803 3330 37c1 c0bf")), [
    ":status: 307",
    "cache-control: private",
    "date: Mon, 21 Oct 2013 20:13:21 GMT",
    "location: https://www.example.com",
  ]);
});

test("requests are parsed the same however their bytes are split, with header blocks in any number of frames", async (t) => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.nat(400), { maxLength: 20 }),
      fc.integer({ min: 1, max: request.length - 1 }),
      fc.uint8Array({ maxLength: 200 }),
      async (cuts, headersAt, body) => {
        const bytes = Buffer.concat([
          preface,
          settings,
          frame(FrameType.HEADERS, 0, 1, request.subarray(0, headersAt)),
          frame(FrameType.CONTINUATION, endHeaders, 1, request.subarray(headersAt)),
          frame(FrameType.DATA, 0, 1, Buffer.from(body)),
          frame(FrameType.HEADERS, endHeaders | endStream, 3, request),
          frame(FrameType.DATA, endStream, 1),
        ]);
        const served = serve();
        let from = 0;
        for (const cut of cuts.toSorted((a, b) => a - b)) {
          served.client.write(bytes.subarray(from, cut));
          from = Math.max(from, Math.min(cut, bytes.length));
        }
        served.client.write(bytes.subarray(from));
        await turn();
        await turn();
        t.deepEqual(served.requests, ["/a.B/C", "/a.B/C"]);
        t.deepEqual(served.bodies, [`${Buffer.from(body).toString("hex")}.`, "."]);
        t.is(served.goAway(), null);
        served.client.destroy();
      },
    ),
    { numRuns: 100 },
  );
});

test("no bytes bring down more than their own connection", async (t) => {
  const frames = fc.tuple(
    fc.nat(12),
    fc.nat(255),
    fc.constantFrom(0, 1, 1, 2, 3, 5, 0x7fffffff),
    fc.uint8Array({ maxLength: 120 }),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(frames, { maxLength: 30 }), fc.uint8Array({ maxLength: 60 }), async (list, tail) => {
      const served = serve();
      served.client.write(preface);
      served.client.write(settings);
      for (const [type, flags, streamId, payload] of list)
        served.client.write(frame(type, flags, streamId, Buffer.from(payload)));
      served.client.write(Buffer.from(tail));
      await turn();
      await turn();
      served.client.destroy();
      await turn();
    }),
    { numRuns: 500 },
  );
  await fc.assert(
    fc.asyncProperty(fc.uint8Array({ maxLength: 300 }), async (bytes) => {
      const served = serve();
      served.client.write(Buffer.from(bytes));
      await turn();
      served.client.destroy();
      await turn();
    }),
    { numRuns: 300 },
  );
  t.pass();
});

async function flood(make: (at: number) => Buffer, count: number): Promise<number | null> {
  const served = serve();
  served.client.write(Buffer.concat([preface, settings]));
  for (let at = 0; at < count && served.goAway() === null; at += 500) {
    served.client.write(Buffer.concat(Array.from({ length: 500 }, (_, more) => make(at + more))));
    await turn();
    if (at % 10_000 === 0) await turn();
  }
  await turn();
  const code = served.goAway();
  served.client.destroy();
  return code;
}

test("floods end with ENHANCE_YOUR_CALM: pings, settings, empty data, rapid resets, endless header blocks", async (t) => {
  const calm = ErrorCode.ENHANCE_YOUR_CALM;
  t.is(await flood(() => frame(FrameType.PING, 0, 0, Buffer.alloc(8)), knownLimits.rates.pings.burst * 3), calm);
  t.is(await flood(() => settings, knownLimits.rates.settings.burst * 3), calm);
  t.is(
    await flood(
      (at) => (at === 0 ? frame(FrameType.HEADERS, endHeaders, 1, request) : frame(FrameType.DATA, 0, 1)),
      knownLimits.rates.emptyData.burst * 3,
    ),
    calm,
  );
  t.is(
    await flood(
      (at) =>
        Buffer.concat([
          frame(FrameType.HEADERS, endHeaders, 2 * at + 1, request),
          frame(FrameType.RST_STREAM, 0, 2 * at + 1, Buffer.alloc(4)),
        ]),
      knownLimits.rates.resets.burst * 3,
    ),
    calm,
  );
  t.is(
    await flood((at) => frame(at === 0 ? FrameType.HEADERS : FrameType.CONTINUATION, 0, 1, Buffer.alloc(1)), 1_000),
    calm,
  );
});

test("a client that exceeds its window, or breaks framing, gets an error", async (t) => {
  const violation = async (...bytes: readonly Buffer[]): Promise<number | null> => {
    const served = serve();
    served.client.write(Buffer.concat([preface, settings, ...bytes]));
    await turn();
    await turn();
    const code = served.goAway();
    served.client.destroy();
    return code;
  };
  t.is(await violation(frame(FrameType.DATA, 0, 1, Buffer.alloc(1))), ErrorCode.PROTOCOL_ERROR);
  t.is(await violation(frame(FrameType.HEADERS, endHeaders, 2, request)), ErrorCode.PROTOCOL_ERROR);
  t.is(await violation(frame(FrameType.HEADERS, endHeaders, 1, hex("80"))), ErrorCode.COMPRESSION_ERROR);
  t.is(await violation(frame(FrameType.PING, 0, 0, Buffer.alloc(7))), ErrorCode.FRAME_SIZE_ERROR);
  t.is(await violation(frame(FrameType.PUSH_PROMISE, 0, 1, Buffer.alloc(4))), ErrorCode.PROTOCOL_ERROR);
  t.is(await violation(frame(FrameType.WINDOW_UPDATE, 0, 0, Buffer.alloc(4))), ErrorCode.PROTOCOL_ERROR);
  t.is(
    await violation(frame(FrameType.HEADERS, 0, 1, request), frame(FrameType.PING, 0, 0, Buffer.alloc(8))),
    ErrorCode.PROTOCOL_ERROR,
  );
});
