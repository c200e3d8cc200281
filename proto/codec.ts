/** Typed wrapper of protobufjs' generated codecs: the type of every message constant in `proto/gen/messages.ts`. */
import type protobuf from "protobufjs/minimal.js";
import { encodedWith } from "./patches.ts";

/** The part of a codec that transports need. */
export interface WireCodec<T> {
  /** Full protobuf name, such as `docker.swarmkit.v1.Task`. */
  readonly typeName: string;
  encode(message: T): Uint8Array<ArrayBuffer>;
  /** Throws on malformed bytes. */
  decode(bytes: Uint8Array): T;
}

export interface Codec<T> extends WireCodec<T> {
  /**
   * Creates a message with the given fields; the others have their defaults (an absent message is null). Nested messages must
   * come from `create` or `decode`.
   */
  create(fields?: Partial<T>): T;
  /** Encodes the message at the end of `writer`. */
  write(message: T, writer: protobuf.Writer): void;
  /** A copy with some fields replaced; shares everything else, including unknown fields. */
  patch(message: T, fields: Partial<T>): T;
  /** Plain JSON: enums as names, bytes as base64, field names in camelCase; defaults are omitted unless `defaults` is true. */
  toJson(message: T, defaults?: boolean): Record<string, unknown>;
  fromJson(json: object): T;
}

/** Decodes bytes from another process; null for malformed ones. */
export function decodedOrNull<T>(codec: Pick<Codec<T>, "decode">, bytes: Uint8Array): T | null {
  try {
    return codec.decode(bytes);
  } catch {
    return null;
  }
}

/** The part of a method that a server needs. */
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

/** The used part of a generated protobufjs class. */
interface GeneratedType {
  new (properties?: object): object;
  encode(message: object, writer: protobuf.Writer): protobuf.Writer;
  decode(reader: Uint8Array): object;
  toObject(message: object, options?: protobuf.IConversionOptions): Record<string, unknown>;
  fromObject(object: object): object;
}

/**
 * Copies unknown fields, so that a newer writer's fields survive a change by an older one: decoders keep their bytes under this
 * name, which copying an object's properties does not include.
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
    encode: (message) => encodedWith((writer) => generated.encode(message as object, writer)),
    write: (message, writer) => void generated.encode(message as object, writer),
    decode: (bytes) => generated.decode(bytes) as T,
    patch: (message, fields) => withUnknown(message, Object.assign(new generated(message as object), fields) as T),
    toJson: (message, defaults = false) =>
      generated.toObject(message as object, { enums: String, bytes: String, longs: Number, defaults }),
    fromJson: (json) => generated.fromObject(json) as T,
  };
}
