/** Messages of any type, generated from the .proto files: for properties of codecs and of handlers of untrusted messages. */
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import fc from "fast-check";
import protobuf from "protobufjs";
// Sets up protobufjs.
import "../../proto/codec.ts";

const folder = fileURLToPath(new URL("../../proto/", import.meta.url));
const files = readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((file) => file.endsWith(".proto"));
const root = new protobuf.Root();
root.resolvePath = (_origin, target) => join(folder, target);
root.loadSync(files, { keepCase: false });
root.resolveAll();

/** The type of that name, as the .proto files describe it. */
export function messageType(name: string): protobuf.Type {
  return root.lookupType(name);
}

interface Hints {
  /** Strings with a meaning for the reader of the message, such as existing ids. */
  readonly texts?: readonly string[];
  /** Levels of nested messages. */
  readonly depth?: number;
}

/** Multi-byte characters, a NUL, half a surrogate pair, a property name of all objects, and one that is far too long. */
const oddTexts = [
  "",
  "a",
  "é\u0000ü",
  "\ud800",
  "__proto__",
  "constructor",
  "x".repeat(300),
  "a/b",
  "*",
  "{{.Task.Slot}}",
];
const oddNumbers = [0, 1, -1, 2 ** 31 - 1, -(2 ** 31)];
const oddLongs = [...oddNumbers, 2 ** 53 - 1, -(2 ** 53 - 1)];

function scalar(type: string, texts: readonly string[]): fc.Arbitrary<unknown> {
  switch (type) {
    case "string":
      return fc.constantFrom(...oddTexts, ...texts, ...texts);
    case "bytes":
      return fc.uint8Array({ maxLength: 12 });
    case "bool":
      return fc.boolean();
    case "double":
    case "float":
      return fc.constantFrom(0, 0.5, -1, 1e30, Number.NaN, Number.POSITIVE_INFINITY);
    case "int64":
    case "sint64":
    case "sfixed64":
      return fc.constantFrom(...oddLongs);
    case "uint64":
    case "fixed64":
      return fc.constantFrom(...oddLongs.filter((value) => value >= 0));
    case "uint32":
    case "fixed32":
      return fc.constantFrom(...oddNumbers.filter((value) => value >= 0));
    default:
      return fc.constantFrom(...oddNumbers);
  }
}

function valueOf(field: protobuf.Field, depth: number, texts: readonly string[]): fc.Arbitrary<unknown> {
  const type = field.resolvedType;
  if (type instanceof protobuf.Enum) return fc.constantFrom(...Object.values(type.values), 77, -1);
  if (type instanceof protobuf.Type) return messageOf(type, depth - 1, texts);
  return scalar(field.type, texts);
}

function messageOf(
  type: protobuf.Type,
  depth: number,
  texts: readonly string[],
): fc.Arbitrary<Record<string, unknown>> {
  const fields: Record<string, fc.Arbitrary<unknown>> = {};
  for (const field of type.fieldsArray) {
    if (field.resolvedType instanceof protobuf.Type && depth <= 0) continue;
    const value = valueOf(field, depth, texts);
    fields[field.name] = field.map
      ? fc.dictionary(fc.constantFrom("a", "", "constructor", "hasOwnProperty"), value, { maxKeys: 2 })
      : field.repeated
        ? fc.array(value, { maxLength: 2 })
        : value;
  }
  return fc.record(fields, { requiredKeys: [] });
}

/** The bytes of an arbitrary message of the type with that full name. */
export function arbitraryMessage(typeName: string, { texts = [], depth = 4 }: Hints = {}): fc.Arbitrary<Uint8Array> {
  const type = root.lookupType(typeName);
  return messageOf(type, depth, texts).map((fields) => type.encode(type.create(fields)).finish());
}
