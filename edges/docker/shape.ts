/**
 * The Go structs of request bodies as tables: each field has its JSON type, its Go type and the field of the message that it
 * fills. A table gives both the JSON schema that ajv checks a body with and the conversion to the message.
 *
 * SH1: like Go, names match in any case, unknown fields are ignored, and null is the same as absent.
 * SH2: a value of a wrong type is refused with the sentence of Go's decoder, before anything is converted.
 */
import { Ajv, type ErrorObject, type ValidateFunction } from "ajv";
import type { Codec } from "../../proto/codec.ts";
import { Duration } from "../../proto/gen/messages.ts";
import { badRequest } from "./failure.ts";

export type Json = Readonly<Record<string, unknown>>;

/** A JSON schema with the Go type of its value, and the name of the struct if it is one. */
interface Schema {
  readonly type: readonly string[];
  readonly goType: string;
  readonly struct?: string;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly items?: Schema;
  readonly additionalProperties?: Schema;
  readonly format?: "base64";
  readonly minimum?: number;
  readonly maximum?: number;
}

/** One field of a struct, which fills `Key` of a message. */
export interface Field<Key extends string> {
  readonly schema: Schema;
  /** `into`: what has been read of the message. */
  put(into: Record<string, unknown>, value: unknown): void;
  /** Never set: only the type counts. */
  readonly key?: Key;
}

export interface Shape<Message> {
  readonly schema: Schema;
  /** `given`: a value that `check` has accepted. Throws Failure. */
  read(given: Json): Message;
}

type KeyOf<Message> = keyof Message & string;

/** `finish`: completes the message where a field depends on others; may throw Failure. */
export function shape<Message>(
  goType: string,
  codec: Codec<Message>,
  fields: Readonly<Record<string, Field<KeyOf<Message>>>>,
  finish: (message: Message, given: Json) => Message = (message) => message,
): Shape<Message> {
  const properties = Object.fromEntries(Object.entries(fields).map(([name, { schema }]) => [name, schema]));
  const struct = goType.slice(goType.lastIndexOf(".") + 1);
  return {
    schema: { type: ["object", "null"], goType, struct, properties },
    read(given) {
      const into: Record<string, unknown> = {};
      for (const [name, field] of Object.entries(fields)) {
        const value = given[name];
        if (value !== null && value !== undefined) field.put(into, value);
      }
      return finish(codec.create(into as Partial<Message>), given);
    },
  };
}

function field<Key extends string>(schema: Schema, key: Key, convert: (value: unknown) => unknown): Field<Key> {
  return { schema, put: (into, value) => (into[key] = convert(value)) };
}

const same = (value: unknown): unknown => value;
const stringSchema: Schema = { type: ["string", "null"], goType: "string" };

export function text<Key extends string>(key: Key): Field<Key> {
  return field(stringSchema, key, same);
}

export function flag<Key extends string>(key: Key): Field<Key> {
  return field({ type: ["boolean", "null"], goType: "bool" }, key, same);
}

/** A boolean of which null is a third value, as a message of its own. */
export function maybeFlag<Key extends string>(key: Key, codec: Codec<{ readonly value: boolean }>): Field<Key> {
  return field({ type: ["boolean", "null"], goType: "bool" }, key, (value) =>
    codec.create({ value: value as boolean }),
  );
}

/** Bounds of Go's integers; above 2^53 JSON numbers are not exact here, and no field needs them. */
const bounds = {
  uint64: [0, 2 ** 64],
  int64: [-(2 ** 63), 2 ** 63],
  int: [-(2 ** 63), 2 ** 63],
  uint32: [0, 2 ** 32 - 1],
  "fs.FileMode": [0, 2 ** 32 - 1],
  "time.Duration": [-(2 ** 63), 2 ** 63],
} as const;
type Integer = keyof typeof bounds;

function integerSchema(goType: Integer): Schema {
  const [minimum, maximum] = bounds[goType];
  return { type: ["integer", "null"], goType, minimum, maximum };
}

export function integer<Key extends string>(key: Key, goType: Integer): Field<Key> {
  return field(integerSchema(goType), key, same);
}

export function real<Key extends string>(key: Key, goType: "float32" | "float64"): Field<Key> {
  return field({ type: ["number", "null"], goType }, key, same);
}

/** Nanoseconds. */
export function duration<Key extends string>(key: Key): Field<Key> {
  return field(integerSchema("time.Duration"), key, (value) => durationOf(value as number));
}

/** Like Go's conversion, both parts have the sign. */
export function durationOf(nanos: number): Duration {
  const seconds = Math.trunc(nanos / 1e9);
  return Duration.create({ seconds, nanos: nanos - seconds * 1e9 });
}

export function texts<Key extends string>(key: Key): Field<Key> {
  return field({ type: ["array", "null"], goType: "[]string", items: stringSchema }, key, (value) =>
    (value as readonly (string | null)[]).map((each) => each ?? ""),
  );
}

const mapSchema: Schema = { type: ["object", "null"], goType: "map[string]string", additionalProperties: stringSchema };

export function map<Key extends string>(key: Key): Field<Key> {
  return field(mapSchema, key, (value) =>
    Object.fromEntries(
      Object.entries(value as Readonly<Record<string, string | null>>).map(([name, held]) => [name, held ?? ""]),
    ),
  );
}

/** Base64, as Go decodes it strictly, or an array of numbers. */
export function bytes<Key extends string>(key: Key): Field<Key> {
  return field({ type: ["string", "array", "null"], goType: "[]uint8", format: "base64" }, key, (value) =>
    typeof value === "string" ? Buffer.from(value, "base64") : Uint8Array.from(value as readonly number[]),
  );
}

function withoutLineEnds(base64: string): string {
  return base64.replaceAll(/[\r\n]/g, "");
}

function isBase64(given: string): boolean {
  const compact = withoutLineEnds(given);
  return Buffer.from(compact, "base64").toString("base64") === compact;
}

/** Where Go's decoder stops. */
function wrongByte(given: string): number {
  const odd = /[^A-Za-z0-9+/]/.exec(given)?.index ?? -1;
  if (odd < 0) return given.length - (given.length % 4);
  const place = odd % 4;
  if (given[odd] !== "=" || place < 2) return odd;
  if (place === 2 && odd + 1 === given.length) return given.length;
  return odd + (place === 2 && given[odd + 1] === "=" ? 2 : 1);
}

export function object<Key extends string>(key: Key, inner: Shape<unknown>): Field<Key> {
  return field(inner.schema, key, (value) => inner.read(value as Json));
}

/** A null in the list is an empty struct; with `skipsNull`, as in lists of pointers, it is left out. */
export function list<Key extends string>(key: Key, inner: Shape<unknown>, pointer: "" | "*" = ""): Field<Key> {
  const { goType } = inner.schema;
  return field({ type: ["array", "null"], goType: `[]${pointer}${goType}`, items: inner.schema }, key, (value) =>
    (value as readonly (Json | null)[]).map((each) => inner.read(each ?? {})),
  );
}

/** A string of a type of its own. `convert` may throw Failure; it does not see absent values. */
export function word<Key extends string>(key: Key, goType: string, convert: (value: string) => unknown): Field<Key> {
  return field({ type: ["string", "null"], goType }, key, (value) => convert(value as string));
}

/** A field that is checked here and read by `finish`. */
export function checked(of: Field<string>): Field<never> {
  return { schema: of.schema, put: () => undefined };
}

/** A field of the message within `key`, such as the name among the annotations. */
export function within<Key extends string, Inner>(
  key: Key,
  codec: Codec<Inner>,
  inner: Field<KeyOf<Inner>>,
): Field<Key> {
  return {
    schema: inner.schema,
    put(into, value) {
      const held: Record<string, unknown> = {};
      inner.put(held, value);
      into[key] = codec.patch((into[key] as Inner | undefined) ?? codec.create({}), held as Partial<Inner>);
    },
  };
}

/** Without optimization of the generated code, the first service waits 35 ms for its compilation instead of 110, and checks take as long. */
const ajv = new Ajv({
  strict: false,
  verbose: true,
  validateSchema: false,
  addUsedSchema: false,
  code: { optimize: false },
});
ajv.addFormat("base64", isBase64);
/** Compiled when the first body of its shape arrives. */
const validators = new WeakMap<Schema, ValidateFunction>();

/** The body with the names of the table. SH1. Throws Failure. SH2 */
export function check({ schema }: Shape<unknown>, body: unknown): Json {
  const folded = fold(schema, body);
  let validate = validators.get(schema);
  if (validate === undefined) validators.set(schema, (validate = ajv.compile(schema)));
  if (!validate(folded)) throw badRequest(sentence(schema, validate.errors?.[0] as ErrorObject));
  return (folded ?? {}) as Json;
}

function isObject(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** SH1 */
function fold(schema: Schema, value: unknown): unknown {
  const { additionalProperties, items, properties } = schema;
  if (items !== undefined && Array.isArray(value)) return value.map((each) => fold(items, each));
  if (!isObject(value) || additionalProperties !== undefined) return value;
  const names = properties ?? {};
  const entries = Object.entries(value).flatMap(([name, held]): [string, unknown][] => {
    const known = Object.hasOwn(names, name)
      ? name
      : Object.keys(names).find((each) => each.toLowerCase() === name.toLowerCase());
    return known === undefined ? [] : [[known, fold(names[known] as Schema, held)]];
  });
  return Object.fromEntries(entries);
}

function kindOf(value: unknown, goType: string): string {
  if (Array.isArray(value)) return "array";
  if (typeof value === "number") return Object.hasOwn(bounds, goType) ? `number ${value}` : "number";
  return typeof value === "boolean" ? "bool" : typeof value;
}

/** Go's sentence for a value of a wrong type. */
function sentence(root: Schema, { data, instancePath, keyword, parentSchema }: ErrorObject): string {
  if (keyword === "format") return `illegal base64 data at input byte ${wrongByte(withoutLineEnds(data as string))}`;
  const { goType } = parentSchema as Schema;
  const kind = kindOf(data, goType);
  const path: string[] = [];
  let struct = root.struct ?? "";
  let at: Schema | undefined = root;
  for (const part of instancePath.split("/").slice(1)) {
    struct = at?.struct ?? struct;
    const { additionalProperties, items, properties }: Schema = at ?? root;
    if (items === undefined && additionalProperties === undefined) path.push(part);
    at = items ?? additionalProperties ?? properties?.[part];
  }
  if (path.length === 0) return `json: cannot unmarshal ${kind} into Go value of type ${goType}`;
  return `json: cannot unmarshal ${kind} into Go struct field ${struct}.${path.join(".")} of type ${goType}`;
}
