/**
 * OTLP's messages for traces (opentelemetry/proto/trace/v1, common/v1 and resource/v1 of version 1), and a strict reader of their JSON
 * form: ids as hexadecimal digits, 64-bit numbers as decimal digits, no unknown fields.
 */
import protobuf from "protobufjs";

const fields = (text: string): Record<string, protobuf.IField> =>
  Object.fromEntries(
    text
      .trim()
      .split(/\s*;\s*/)
      .map((each) => {
        const [, rule, type = "", name = "", id = ""] = /^(repeated )?([\w.]+) (\w+) (\d+)$/.exec(each) ?? [];
        return [name, { type, id: Number(id), ...(rule === undefined ? {} : { rule: "repeated" }) }];
      }),
  );

const root = protobuf.Root.fromJSON({
  nested: {
    TracesData: { fields: fields("repeated ResourceSpans resourceSpans 1") },
    ResourceSpans: { fields: fields("Resource resource 1; repeated ScopeSpans scopeSpans 2; string schemaUrl 3") },
    Resource: { fields: fields("repeated KeyValue attributes 1; uint32 droppedAttributesCount 2") },
    ScopeSpans: { fields: fields("Scope scope 1; repeated Span spans 2; string schemaUrl 3") },
    Scope: {
      fields: fields(
        "string name 1; string version 2; repeated KeyValue attributes 3; uint32 droppedAttributesCount 4",
      ),
    },
    Span: {
      fields: fields(
        "bytes traceId 1; bytes spanId 2; string traceState 3; bytes parentSpanId 4; string name 5; uint32 kind 6;" +
          "fixed64 startTimeUnixNano 7; fixed64 endTimeUnixNano 8; repeated KeyValue attributes 9; uint32 droppedAttributesCount 10;" +
          "repeated Event events 11; uint32 droppedEventsCount 12; repeated Link links 13; uint32 droppedLinksCount 14;" +
          "Status status 15; fixed32 flags 16",
      ),
    },
    Event: {
      fields: fields(
        "fixed64 timeUnixNano 1; string name 2; repeated KeyValue attributes 3; uint32 droppedAttributesCount 4",
      ),
    },
    Link: {
      fields: fields(
        "bytes traceId 1; bytes spanId 2; string traceState 3; repeated KeyValue attributes 4; uint32 droppedAttributesCount 5; fixed32 flags 6",
      ),
    },
    Status: { fields: fields("string message 2; uint32 code 3") },
    KeyValue: { fields: fields("string key 1; AnyValue value 2") },
    AnyValue: {
      fields: fields(
        "string stringValue 1; bool boolValue 2; int64 intValue 3; double doubleValue 4; bytes bytesValue 7",
      ),
      oneofs: { value: { oneof: ["stringValue", "boolValue", "intValue", "doubleValue", "bytesValue"] } },
    },
  },
});

export interface OtlpSpan {
  /** Ids in base64. */
  readonly traceId: string;
  readonly spanId: string;
  /** Empty: a root span. */
  readonly parentSpanId: string;
  readonly name: string;
  readonly kind: number;
  /** Nanoseconds since the epoch, in decimal digits. */
  readonly startTimeUnixNano: string;
  readonly endTimeUnixNano: string;
}

interface TracesData {
  readonly resourceSpans: readonly { readonly scopeSpans: readonly { readonly spans: readonly OtlpSpan[] }[] }[];
}

const shown: protobuf.IConversionOptions = { longs: String, bytes: String, defaults: true, arrays: true };

/** The spans of protobuf bytes. Throws if they do not decode. */
export function spansOfBytes(bytes: Uint8Array): readonly OtlpSpan[] {
  const type = root.lookupType("TracesData");
  return flat(type.toObject(type.decode(bytes), shown) as TracesData);
}

/** The spans of OTLP's JSON. Throws if it is not of the schema. */
export function spansOfJson(bytes: Uint8Array): readonly OtlpSpan[] {
  const type = root.lookupType("TracesData");
  const message = type.fromObject(read(type, JSON.parse(new TextDecoder().decode(bytes)) as Json, "") as object);
  return flat(type.toObject(message, shown) as TracesData);
}

type Json = Readonly<Record<string, unknown>>;

function read(type: protobuf.Type, json: Json, path: string): Json {
  return Object.fromEntries(
    Object.entries(json).map(([name, value]) => {
      const field = type.fields[name];
      const at = `${path}.${name}`;
      if (field === undefined) throw new Error(`${at} is not a field of ${type.name}`);
      if (Array.isArray(value) !== field.repeated) throw new Error(`${at}: repeated, or not`);
      const one = (each: unknown): unknown => readValue(field.resolve(), each, at);
      return [name, Array.isArray(value) ? value.map(one) : one(value)];
    }),
  );
}

function readValue(field: protobuf.Field, value: unknown, at: string): unknown {
  if (field.resolvedType instanceof protobuf.Type) return read(field.resolvedType, value as Json, at);
  const isId = field.type === "bytes";
  if (isId && (typeof value !== "string" || !/^(?:[0-9a-f]{32}|[0-9a-f]{16})$/.test(value)))
    throw new Error(`${at}: ${String(value)} is not an id`);
  if (isId) return Buffer.from(value as string, "hex");
  if (field.type === "fixed64" && (typeof value !== "string" || !/^\d+$/.test(value)))
    throw new Error(`${at}: ${String(value)} is not a time`);
  if (field.type.startsWith("uint") && !Number.isInteger(value))
    throw new Error(`${at}: ${String(value)} is not whole`);
  if (field.type === "string" && typeof value !== "string") throw new Error(`${at} is not a text`);
  return value;
}

const flat = ({ resourceSpans }: TracesData): readonly OtlpSpan[] =>
  resourceSpans.flatMap(({ scopeSpans }) => scopeSpans.flatMap(({ spans }) => spans));
