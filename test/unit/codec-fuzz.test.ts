// Codecs against untrusted bytes: decoding always ends with a message or an error, and a decoded message is encoded unchanged,
// including unknown fields.
import test from "ava";
import fc from "fast-check";
import type { Codec } from "../../proto/codec.ts";
import * as messages from "../../proto/gen/messages.ts";
import { arbitraryMessage } from "../support/arbitrary-message.ts";

const codecs = Object.values(messages as unknown as Readonly<Record<string, unknown>>).filter(
  (value): value is Codec<object> =>
    typeof value === "object" && value !== null && "typeName" in value && "decode" in value,
);
const documented = codecs.filter(({ typeName }) => /^(?:docker\.swarmkit|muster)\./.test(typeName));

/** The decoded message; null if decoding fails, which is always by an Error. */
function decoded(codec: Codec<object>, bytes: Uint8Array): object | null {
  try {
    return codec.decode(bytes);
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    return null;
  }
}

/** Like `t.deepEqual`, which would take most of the time here. */
function same(actual: Uint8Array, expected: Uint8Array, what: string): void {
  if (Buffer.compare(actual, expected) !== 0)
    throw new Error(`${what}: ${Buffer.from(actual).toString("hex")} is not ${Buffer.from(expected).toString("hex")}`);
}

/** A field that no message has, in each wire type. */
const strangers: readonly (readonly number[])[] = [
  [0xf8, 0xff, 0x07, 0x05],
  [0xf9, 0xff, 0x07, 1, 2, 3, 4, 5, 6, 7, 8],
  [0xfa, 0xff, 0x07, 0x02, 0xc3, 0x28],
  [0xfd, 0xff, 0x07, 1, 2, 3, 4],
];

test("there are codecs to test", (t) => {
  t.true(documented.length > 250);
});

test("arbitrary bytes decode to a message or an error, and a decoded message survives a round trip", (t) => {
  fc.assert(
    fc.property(fc.constantFrom(...codecs), fc.uint8Array({ maxLength: 80 }), (codec, bytes) => {
      const message = decoded(codec, bytes);
      if (message === null) return;
      const written = codec.encode(message);
      same(codec.encode(codec.decode(written)), written, codec.typeName);
      codec.toJson(message);
    }),
    { numRuns: 3_000 },
  );
  t.pass();
});

test("each message survives encoding and decoding, whole and as a copy, with fields unknown to this version", (t) => {
  for (const codec of documented) {
    fc.assert(
      fc.property(arbitraryMessage(codec.typeName, { depth: 2 }), fc.constantFrom(...strangers), (bytes, stranger) => {
        const message = codec.decode(bytes);
        const written = codec.encode(message);
        same(codec.encode(codec.decode(written)), written, codec.typeName);
        const newer = Uint8Array.from([...written, ...stranger]);
        same(codec.encode(codec.decode(newer)), newer, codec.typeName);
        same(codec.encode(codec.patch(codec.decode(newer), {})), newer, `a copy of ${codec.typeName}`);
      }),
      { numRuns: 6 },
    );
  }
  t.pass();
});

test("a valid message that is truncated or has a flipped bit decodes to a message or an error", (t) => {
  const big = ["Service", "Task", "Node", "Cluster", "Network", "Volume"].map((name) => `docker.swarmkit.v1.${name}`);
  for (const codec of codecs.filter(({ typeName }) => big.includes(typeName))) {
    fc.assert(
      fc.property(arbitraryMessage(codec.typeName), fc.nat(), fc.nat(255), (bytes, at, mask) => {
        decoded(codec, bytes.subarray(0, at % (bytes.length + 1)));
        const flipped = Uint8Array.from(bytes);
        if (bytes.length > 0) flipped[at % bytes.length] = (flipped[at % bytes.length] ?? 0) ^ mask;
        const message = decoded(codec, flipped);
        if (message !== null) codec.decode(codec.encode(message));
      }),
      { numRuns: 100 },
    );
  }
  t.pass();
});

test("half a surrogate pair is encoded as a character that every decoder accepts", (t) => {
  const { Annotations } = messages;
  for (const text of ["\ud800", "a\udc00b", `${"x".repeat(50)}\ud800`]) {
    t.is(Annotations.decode(Annotations.encode(Annotations.create({ name: text }))).name, text.toWellFormed());
  }
});

test("bytes that are not UTF-8 are not a string", (t) => {
  t.throws(() => messages.Annotations.decode(Uint8Array.from([0x0a, 3, 0xed, 0xa0, 0x80])));
  t.throws(() => messages.Annotations.decode(Uint8Array.from([0x0a, 2, 0xc3, 0x28])));
});

test("lengths beyond the data are rejected at once, however large they claim to be", (t) => {
  const { Service } = messages;
  for (const length of [[0x7f], [0xff, 0x7f], [0xff, 0xff, 0xff, 0xff, 0x07], [0xff, 0xff, 0xff, 0xff, 0x0f]]) {
    t.throws(() => Service.decode(Uint8Array.from([0x1a, ...length])));
  }
});
