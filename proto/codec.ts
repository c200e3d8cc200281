/** The typed face of protobufjs' generated codecs: what every message constant of `proto/gen/messages.ts` is. */
import protobuf from "protobufjs";

// 64-bit fields are plain numbers here (safe to 2^53): without this the values would be Long objects wherever the
// package `long` happens to be installed, whatever the types say.
(protobuf.util as { Long: unknown }).Long = null;
protobuf.configure();

export interface Codec<T> {
  /** Full protobuf name, such as `docker.swarmkit.v1.Task`. */
  readonly typeName: string;
  /** A message with the given fields; the others read as their defaults (an absent message as null). Nested messages must
   *  themselves come from `create` or `decode`. */
  create(fields?: Partial<T>): T;
  encode(message: T): Uint8Array<ArrayBuffer>;
  /** Throws on malformed bytes. */
  decode(bytes: Uint8Array): T;
  /** A copy with some fields replaced; shares everything else. */
  patch(message: T, fields: Partial<T>): T;
  /** Plain JSON: enums as names, bytes as base64, field names in camelCase; defaults are left out. */
  toJson(message: T): Record<string, unknown>;
  fromJson(json: object): T;
}

export interface MethodDescriptor<Request, Response> {
  /** HTTP/2 path of the method. */
  readonly path: string;
  readonly request: Codec<Request>;
  readonly response: Codec<Response>;
  readonly requestStream: boolean;
  readonly responseStream: boolean;
}

/** The part of a generated protobufjs class that codecs stand on. */
interface GeneratedType {
  new (properties?: object): object;
  encode(message: object): protobuf.Writer;
  decode(reader: Uint8Array): object;
  toObject(message: object, options?: protobuf.IConversionOptions): Record<string, unknown>;
  fromObject(object: object): object;
}

export function codec<T>(typeName: string, generated: GeneratedType): Codec<T> {
  return {
    typeName,
    create: (fields) => new generated(fields) as T,
    encode: (message) => generated.encode(message as object).finish() as Uint8Array<ArrayBuffer>,
    decode: (bytes) => generated.decode(bytes) as T,
    patch: (message, fields) => Object.assign(new generated(message as object), fields) as T,
    toJson: (message) => generated.toObject(message as object, { enums: String, bytes: String, longs: Number }),
    fromJson: (json) => generated.fromObject(json) as T,
  };
}
