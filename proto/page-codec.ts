/** The codecs of `proto/gen/page.ts` and `proto/gen/cluster.ts`: plain protobufjs, without what only Node has (`codec.ts`). */
import protobuf from "protobufjs/minimal.js";

// 64-bit fields are plain numbers: times in milliseconds and counters, safe to 2^53.
(protobuf.util as { Long: unknown }).Long = null;
// Fields that a newer client sets on a service must survive a change by this page.
(protobuf.Reader as unknown as { discardUnknown: boolean }).discardUnknown = false;
protobuf.configure();

export interface Codec<T> {
  /** Creates a message with the given fields; the others have their defaults (an absent message is null). */
  create(fields?: Partial<T>): T;
  encode(message: T): Uint8Array<ArrayBuffer>;
  /** Throws on malformed bytes. */
  decode(bytes: Uint8Array): T;
  /** A copy with some fields replaced; shares everything else, including unknown fields. */
  patch(message: T, fields: Partial<T>): T;
  /** Plain JSON: enums as names, bytes as base64, field names in camelCase; defaults are omitted. */
  toJson(message: T): Record<string, unknown>;
  /** Ignores unknown fields. Throws on values of the wrong kind, as far as they cannot be converted. */
  fromJson(json: object): T;
}

export interface MethodDescriptor<Request, Response> {
  /** Such as `/muster.v1.Inspection/Watch`. */
  readonly path: string;
  readonly request: Codec<Request>;
  readonly response: Codec<Response>;
  readonly requestStream: boolean;
  readonly responseStream: boolean;
}

/** The used part of a generated protobufjs class. */
interface GeneratedType {
  new (properties?: object): object;
  encode(message: object): protobuf.Writer;
  decode(bytes: Uint8Array): object;
  toObject(message: object, options: protobuf.IConversionOptions): Record<string, unknown>;
  fromObject(object: object): object;
}

/** Copies the bytes of unknown fields, which copying an object's properties does not include. */
function withUnknown<T>(from: T, to: T): T {
  const { $unknowns } = from as { readonly $unknowns?: readonly Uint8Array[] };
  if ($unknowns !== undefined) Object.defineProperty(to, "$unknowns", { value: $unknowns, writable: true });
  return to;
}

export function codec<T>(_typeName: string, generated: GeneratedType): Codec<T> {
  return {
    create: (fields) => new generated(fields) as T,
    encode: (message) => new Uint8Array(generated.encode(message as object).finish()),
    decode: (bytes) => generated.decode(bytes) as T,
    patch: (message, fields) => withUnknown(message, Object.assign(new generated(message as object), fields) as T),
    toJson: (message) => generated.toObject(message as object, { enums: String, bytes: String, longs: Number }),
    fromJson: (json) => generated.fromObject(json) as T,
  };
}
