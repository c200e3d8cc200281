/** The codecs of `proto/gen/page.ts`: plain protobufjs, without what only Node has (`codec.ts`). */
import protobuf from "protobufjs/minimal.js";

// 64-bit fields are plain numbers: times in milliseconds and counters, safe to 2^53.
(protobuf.util as { Long: unknown }).Long = null;
protobuf.configure();

export interface Codec<T> {
  /** Creates a message with the given fields; the others have their defaults (an absent message is null). */
  create(fields?: Partial<T>): T;
  encode(message: T): Uint8Array<ArrayBuffer>;
  /** Throws on malformed bytes. */
  decode(bytes: Uint8Array): T;
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
}

export function codec<T>(_typeName: string, generated: GeneratedType): Codec<T> {
  return {
    create: (fields) => new generated(fields) as T,
    encode: (message) => new Uint8Array(generated.encode(message as object).finish()),
    decode: (bytes) => generated.decode(bytes) as T,
  };
}
