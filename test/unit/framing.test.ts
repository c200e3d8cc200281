import test from "ava";
import fc from "fast-check";
import { FrameReader, frame, frameHeader } from "../../edges/grpc/framing.ts";
import {
  decodeStatusMessage,
  encodeStatusMessage,
  formatTimeout,
  parseStatus,
  parseTimeout,
} from "../../edges/grpc/status.ts";

function reader(messageBytesMax = 1024) {
  const messages: Buffer[] = [];
  return {
    messages,
    reader: new FrameReader(messageBytesMax, { onFrame: (message) => void messages.push(Buffer.from(message)) }),
  };
}

test("messages survive any split of their bytes", (t) => {
  fc.assert(
    fc.property(
      fc.array(fc.uint8Array({ maxLength: 300 }), { maxLength: 6 }),
      fc.array(fc.integer({ min: 1, max: 50 }), { minLength: 1 }),
      (sent, cuts) => {
        const { messages, reader: frames } = reader();
        const bytes = Buffer.concat(sent.map((message) => frame(message)));
        for (let at = 0, turn = 0; at < bytes.length; turn += 1) {
          const length = cuts[turn % cuts.length] as number;
          if (frames.push(bytes.subarray(at, at + length)) !== null) return false;
          at += length;
        }
        return (
          frames.isBetweenMessages &&
          messages.length === sent.length &&
          messages.every((message, index) => message.equals(sent[index] as Uint8Array))
        );
      },
    ),
    { numRuns: 300, seed: 1 },
  );
  t.pass();
});

test("a message larger than the first allocation arrives whole", (t) => {
  const { messages, reader: frames } = reader(1_000_000);
  const message = Buffer.alloc(700_001, "muster");
  const bytes = Buffer.concat([frameHeader(message.length), message]);
  for (let at = 0; at < bytes.length; at += 16_384) t.is(frames.push(bytes.subarray(at, at + 16_384)), null);
  t.true(messages[0]?.equals(message));
});

test("F1: a message over the limit is rejected by its length alone", (t) => {
  const { messages, reader: frames } = reader(100);
  t.is(frames.push(frameHeader(101)), "too-large");
  t.is(messages.length, 0);
  t.is(reader(100).reader.push(Buffer.concat([frameHeader(100), Buffer.alloc(100)])), null);
  t.is(reader(100).reader.push(Uint8Array.of(0, 0xff, 0xff, 0xff, 0xff)), "too-large");
});

test("F2: a message does not keep its receive buffer alive", (t) => {
  const received: Uint8Array[] = [];
  const frames = new FrameReader(1024, { onFrame: (message) => void received.push(message) });
  frames.push(Buffer.concat([frame(Buffer.from("abc")), Buffer.alloc(60_000).fill(0, 0, 0)]).subarray(0, 8));
  t.is(received[0]?.buffer.byteLength, 3);
});

test("a compressed message is rejected", (t) => {
  t.is(reader().reader.push(Uint8Array.of(1, 0, 0, 0, 0)), "compressed");
});

test("a stream cut within a header or a message is not between messages", (t) => {
  const { reader: frames } = reader();
  t.true(frames.isBetweenMessages);
  frames.push(Uint8Array.of(0, 0));
  t.false(frames.isBetweenMessages);
  frames.push(Uint8Array.of(0, 0, 2, 9));
  t.false(frames.isBetweenMessages);
  frames.push(Uint8Array.of(9));
  t.true(frames.isBetweenMessages);
});

test("a status text survives its encoding, and is ASCII in transit", (t) => {
  fc.assert(
    fc.property(fc.string({ unit: "grapheme" }), (text) => {
      const encoded = encodeStatusMessage(text);
      return /^[\x20-\x7e]*$/.test(encoded) && decodeStatusMessage(encoded) === text;
    }),
    { numRuns: 500, seed: 1 },
  );
  t.is(encodeStatusMessage("50% of Grün\n"), "50%25 of Gr%C3%BCn%0A");
  t.is(decodeStatusMessage("100%, %zz"), "100%, %zz");
});

test("deadlines are read in every unit and rounded up to milliseconds", (t) => {
  t.is(parseTimeout("4999962u"), 5_000);
  t.is(parseTimeout("20m"), 20);
  t.is(parseTimeout("5S"), 5_000);
  t.is(parseTimeout("1n"), 1);
  t.is(parseTimeout("2H"), 7_200_000);
  for (const text of ["", "5", "S", "123456789m", "-1S", "1.5S", "5s"]) t.is(parseTimeout(text), null, text);
});

test("deadlines are written with at most 8 digits", (t) => {
  t.is(formatTimeout(5_000), "5000m");
  t.is(formatTimeout(0), "1m");
  t.is(formatTimeout(1e9), "1000000S");
});

test("a status that is not a number from 0 to 16 is UNKNOWN", (t) => {
  t.is(parseStatus("5"), 5);
  for (const text of ["", "17", "-1", "x", "1.5"]) t.is(parseStatus(text), 2, text);
});
