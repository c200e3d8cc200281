// X1: our patched protobufjs against a plain one, loaded a second time and without generated code: for every message type, both
// read the same from the same bytes, write the same bytes, and reject the same.
import { readdirSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { isDeepStrictEqual } from "node:util";
import test from "ava";
import fc from "fast-check";
import type protobuf from "protobufjs";
import patched from "protobufjs/minimal.js";
import type { Codec } from "../../proto/codec.ts";
import * as felix from "../../proto/gen/felix.ts";
import * as messages from "../../proto/gen/messages.ts";
import * as nomad from "../../proto/gen/nomad.ts";
import { arbitraryMessage } from "../support/arbitrary-message.ts";

const load = createRequire(import.meta.url);
for (const file of Object.keys(load.cache)) if (file.includes("/protobufjs/")) delete load.cache[file];
const plain = load("protobufjs") as typeof protobuf;
// The settings of proto/patches.ts, which are not patches.
(plain.util as { Long: unknown }).Long = null;
plain.configure();
(plain.Reader as unknown as { discardUnknown: boolean }).discardUnknown = false;

const folder = fileURLToPath(new URL("../../proto/", import.meta.url));
const root = new plain.Root();
root.resolvePath = (_origin, target) => join(folder, target);
root.loadSync(readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((file) => file.endsWith(".proto")));
root.resolveAll();

function typesIn(namespace: protobuf.NamespaceBase): protobuf.Type[] {
  return namespace.nestedArray.flatMap((nested) => [
    ...(nested instanceof plain.Type ? [nested] : []),
    ...(nested instanceof plain.Namespace ? typesIn(nested) : []),
  ]);
}
const types = typesIn(root);

const codecs = [messages, nomad, felix]
  .flatMap((module) => Object.values(module as unknown as Readonly<Record<string, unknown>>))
  .filter(
    (value): value is Codec<object> =>
      typeof value === "object" && value !== null && "typeName" in value && "decode" in value,
  );

type Message = Readonly<Record<string, unknown>> & { readonly $unknowns?: readonly Uint8Array[] };

/** Everything that is visible of a message, with the order of its own properties, which decides about a oneof's member. */
function shape(type: protobuf.Type, message: Message): unknown {
  const value = (field: protobuf.Field, of: unknown): unknown => {
    // The default of bytes is an array where protobufjs compiles types itself, as the plain one does here.
    if (field.type === "bytes" && of !== null) return Buffer.from(of as Uint8Array).toString("hex");
    return field.resolvedType instanceof plain.Type && of !== null ? shape(field.resolvedType, of as Message) : of;
  };
  return {
    own: Object.keys(message),
    fields: type.fieldsArray.map((field) => {
      // Where protobufjs compiles types itself, an absent member of a oneof reads as its default instead of null.
      const of = field.partOf !== null && !Object.hasOwn(message, field.name) ? null : message[field.name];
      if (field.map) return Object.entries(of as object).map(([key, each]) => [key, value(field, each)]);
      return field.repeated ? (of as readonly unknown[]).map((each) => value(field, each)) : value(field, of);
    }),
    members: type.oneofsArray.map(({ name }) => message[name]),
    unknown: message.$unknowns?.map((bytes) => Buffer.from(bytes).toString("hex")),
  };
}

function decoded(decode: () => object): Message | null {
  try {
    return decode() as Message;
  } catch {
    return null;
  }
}

/** Whether both accept the bytes. Throws when they differ. */
function agree(codec: Codec<object>, bytes: Uint8Array): boolean {
  const type = root.lookupType(codec.typeName);
  const differ = (what: string): Error =>
    new Error(`${codec.typeName}: ${what}: ${Buffer.from(bytes).toString("hex")}`);
  let isAccepted = true;
  // Two readers: of a plain array, and of a Buffer.
  for (const input of [Uint8Array.from(bytes), Buffer.from(bytes)]) {
    const ours = decoded(() => codec.decode(input));
    const theirs = decoded(() => type.decode(input));
    if ((ours === null) !== (theirs === null))
      throw differ(`only the ${ours === null ? "patched" : "plain"} one rejects`);
    isAccepted = ours !== null;
    if (ours === null || theirs === null) continue;
    if (!isDeepStrictEqual(shape(type, ours), shape(type, theirs))) throw differ("different messages");
    const written = codec.encode(ours);
    if (Buffer.compare(type.encode(theirs).finish(), written) !== 0) throw differ("different bytes");
    if (
      !isDeepStrictEqual(
        shape(type, type.decode(written) as unknown as Message),
        shape(type, codec.decode(written) as Message),
      )
    )
      throw differ("different messages after writing");
    const made = codec.encode(codec.fromJson(type.toObject(theirs as unknown as protobuf.Message)));
    if (
      Buffer.compare(
        made,
        type.encode(type.fromObject(type.toObject(theirs as unknown as protobuf.Message))).finish(),
      ) !== 0
    )
      throw differ("different bytes of a new message");
  }
  return isAccepted;
}

/** Fields that no message has, one of each wire type, and a string that is not UTF-8 in the first field. */
const strangers: readonly (readonly number[])[] = [
  [0xf8, 0xff, 0x07, 0x05],
  [0xf9, 0xff, 0x07, 1, 2, 3, 4, 5, 6, 7, 8],
  [0xfa, 0xff, 0x07, 0x02, 0xc3, 0x28],
  [0xfd, 0xff, 0x07, 1, 2, 3, 4],
  [0x0a, 0x02, 0xc3, 0x28],
];

test("the plain protobufjs is not patched, and every type has a codec", (t) => {
  t.not(plain.util.utf8.write, patched.util.utf8.write);
  t.not(plain.util.utf8.readStrict, patched.util.utf8.readStrict);
  const names = new Set(codecs.map(({ typeName }) => typeName));
  t.deepEqual(
    types.map(({ fullName }) => fullName.slice(1)).filter((name) => !names.has(name)),
    [],
  );
  t.true(types.length > 400);
});

test("X1: both agree on messages of every type, whole, joined, truncated, damaged and with unknown fields", (t) => {
  let rejected = 0;
  for (const codec of codecs) {
    const arbitrary = arbitraryMessage(codec.typeName, {
      depth: 2,
      texts: ["x".repeat(13), "y".repeat(63), "ä".repeat(20)],
    });
    fc.assert(
      fc.property(
        arbitrary,
        arbitrary,
        fc.constantFrom(...strangers),
        fc.nat(),
        fc.nat(255),
        (one, other, stranger, at, mask) => {
          if (!agree(codec, one)) throw new Error(`${codec.typeName}: a valid message is rejected`);
          // Fields appear twice: the last one counts, messages are merged, and a second member replaces a oneof's first.
          agree(codec, Uint8Array.from([...one, ...other]));
          agree(codec, Uint8Array.from([...one, ...stranger]));
          if (!agree(codec, one.subarray(0, at % (one.length + 1)))) rejected += 1;
          const damaged = Uint8Array.from(one);
          if (one.length > 0) damaged[at % one.length] = (damaged[at % one.length] ?? 0) ^ mask;
          if (!agree(codec, damaged)) rejected += 1;
        },
      ),
      { numRuns: 6 },
    );
  }
  t.true(rejected > codecs.length, `${rejected} inputs were rejected by both`);
});

test("X1: both read lists of numbers, packed or not, and numbers at the ends of their ranges", (t) => {
  let lists = 0;
  for (const codec of codecs) {
    for (const field of root.lookupType(codec.typeName).fieldsArray) {
      const name = field.resolvedType instanceof plain.Enum ? "int32" : field.type;
      const wireType = (plain.types.basic as Readonly<Record<string, number>>)[name];
      if (wireType === undefined || name === "string" || name === "bytes" || field.map) continue;
      const isLong = name.endsWith("64");
      const largest = name === "bool" ? 1 : isLong ? Number.MAX_SAFE_INTEGER : 2 ** 31 - 1;
      const values = [0, 1, largest, ...(/^u|^fixed|bool/.test(name) ? [] : [-1, -largest])];
      const write = (writer: protobuf.Writer, value: number): unknown =>
        (writer as unknown as Record<string, (value: number) => unknown>)[name]?.(value);
      const [single, packed] = [plain.Writer.create(), plain.Writer.create()];
      for (const value of values) write(single.uint32((field.id << 3) | wireType), value);
      packed.uint32((field.id << 3) | 2).fork();
      for (const value of values) write(packed, value);
      t.true(agree(codec, single.finish()));
      t.true(agree(codec, packed.ldelim().finish()));
      if (field.repeated) lists += 1;
    }
  }
  t.true(lists > 5, `${lists} lists of numbers`);
});
