/** The typed face of protobufjs' generated codecs: what every message constant of `proto/gen/messages.ts` is. */
import protobuf from "protobufjs";

// 64-bit fields are plain numbers here (safe to 2^53): without this the values would be Long objects wherever the
// package `long` happens to be installed, whatever the types say.
(protobuf.util as { Long: unknown }).Long = null;
protobuf.configure();
// What a newer client says of a service must reach a newer engine through an older manager: fields that are not known here
// are kept, as Go's codecs keep them.
(protobuf.Reader as unknown as { discardUnknown: boolean }).discardUnknown = false;

// Half a surrogate pair, which JSON can carry, would become bytes that no decoder takes, ours included: a record in the log
// that stops every manager. It is written as U+FFFD, as Node writes it in texts that are long enough for it to do the work.
const writeText = protobuf.util.utf8.write;
protobuf.util.utf8.write = (text, buffer, offset) =>
  writeText(text.isWellFormed() ? text : text.toWellFormed(), buffer, offset);

/** What it takes to carry a message. */
export interface WireCodec<T> {
  /** Full protobuf name, such as `docker.swarmkit.v1.Task`. */
  readonly typeName: string;
  encode(message: T): Uint8Array<ArrayBuffer>;
  /** Throws on malformed bytes. */
  decode(bytes: Uint8Array): T;
}

export interface Codec<T> extends WireCodec<T> {
  /** A message with the given fields; the others read as their defaults (an absent message as null). Nested messages must
   *  themselves come from `create` or `decode`. */
  create(fields?: Partial<T>): T;
  /** A copy with some fields replaced; shares everything else, fields that this version does not know among it. */
  patch(message: T, fields: Partial<T>): T;
  /** Plain JSON: enums as names, bytes as base64, field names in camelCase; defaults are left out. */
  toJson(message: T): Record<string, unknown>;
  fromJson(json: object): T;
}

/** What serving a method takes. */
export interface WireMethod<Request, Response> {
  /** HTTP/2 path of the method. */
  readonly path: string;
  readonly request: WireCodec<Request>;
  readonly response: WireCodec<Response>;
  readonly requestStream: boolean;
  readonly responseStream: boolean;
}

export interface MethodDescriptor<Request, Response> extends WireMethod<Request, Response> {
  readonly request: Codec<Request>;
  readonly response: Codec<Response>;
}

/** The part of a generated protobufjs class that codecs stand on. */
interface GeneratedType {
  new (properties?: object): object;
  encode(message: object): protobuf.Writer;
  decode(reader: Uint8Array): object;
  toObject(message: object, options?: protobuf.IConversionOptions): Record<string, unknown>;
  fromObject(object: object): object;
}

/**
 * What a newer writer has put into a message stays there when an older one changes something else: decoders keep the bytes of
 * unknown fields under this name, which copying an object's properties leaves behind.
 */
function withUnknown<T>(from: T, to: T): T {
  const { $unknowns } = from as { readonly $unknowns?: readonly Uint8Array[] };
  if ($unknowns !== undefined) Object.defineProperty(to, "$unknowns", { value: $unknowns, writable: true });
  return to;
}

export function codec<T>(typeName: string, generated: GeneratedType): Codec<T> {
  return {
    typeName,
    create: (fields) => new generated(fields) as T,
    encode: (message) => generated.encode(message as object).finish() as Uint8Array<ArrayBuffer>,
    decode: (bytes) => generated.decode(bytes) as T,
    patch: (message, fields) => withUnknown(message, Object.assign(new generated(message as object), fields) as T),
    toJson: (message) => generated.toObject(message as object, { enums: String, bytes: String, longs: Number }),
    fromJson: (json) => generated.fromObject(json) as T,
  };
}
