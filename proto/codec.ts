/** Typed wrapper of protobufjs' generated codecs: the type of every message constant in `proto/gen/messages.ts`. */
import protobuf from "protobufjs/minimal.js";

// 64-bit fields are plain numbers here (safe to 2^53): otherwise the values would be Long objects wherever the package `long`
// is installed, whatever the types say.
(protobuf.util as { Long: unknown }).Long = null;
protobuf.configure();
// Keep unknown fields, like Go's codecs: what a newer client sets on a service must reach a newer engine through an older
// manager.
(protobuf.Reader as unknown as { discardUnknown: boolean }).discardUnknown = false;

// A lone surrogate, which JSON can carry, would be encoded as bytes that every decoder rejects, including ours: a record in the
// log that stops every manager. It is written as U+FFFD, as Node does for long strings. Most strings are ids, names and
// digests: ASCII, without surrogates.
const writeText = protobuf.util.utf8.write;
protobuf.util.utf8.write = (text, buffer, offset) => {
  for (let at = 0; at < text.length; at += 1) {
    const unit = text.charCodeAt(at);
    if (unit > 0x7f) return writeText(text.isWellFormed() ? text : text.toWellFormed(), buffer, offset);
    buffer[offset + at] = unit;
  }
  return text.length;
};

/** Shorter strings are built from characters without a rope; for longer ones protobufjs uses a decoder. */
const ropeLengthMin = 13;
const decoderLengthMin = 64;
const { latin1Slice } = Buffer.prototype as unknown as {
  latin1Slice(this: Uint8Array, start: number, end: number): string;
};

// protobufjs joins pieces with `+`, which makes a rope that is copied on its first lookup. ASCII is read in one piece.
const readText = protobuf.util.utf8.readStrict;
protobuf.util.utf8.readStrict = (buffer, start, end) => {
  const length = end - start;
  if (length < ropeLengthMin || length >= decoderLengthMin) return readText(buffer, start, end);
  let bits = 0;
  for (let at = start; at < end; at += 1) bits |= buffer[at] as number;
  return bits > 0x7f ? readText(buffer, start, end) : latin1Slice.call(buffer, start, end);
};

/** Buffer that all messages are encoded into, one at a time, and copied from: no buffer has to grow, and none is too large. */
const scratch = protobuf.Writer.create() as protobuf.Writer & {
  pos: number;
  buf: Uint8Array;
  view: DataView | null;
  states: number[] | null;
};
/** Bytes; a larger buffer is released after use. */
const scratchBytes = 64 * 1024;
scratch.buf = Buffer.allocUnsafeSlow(scratchBytes);

function encoded(generated: GeneratedType, message: object): Uint8Array<ArrayBuffer> {
  scratch.pos = 0;
  // An encoder that threw leaves state behind.
  scratch.states = null;
  const bytes = generated.encode(message, scratch).finish() as Uint8Array<ArrayBuffer>;
  if (scratch.buf.length > scratchBytes) {
    scratch.buf = Buffer.allocUnsafeSlow(scratchBytes);
    scratch.view = null;
  }
  return bytes;
}

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
    encode: (message) => encoded(generated, message as object),
    write: (message, writer) => void generated.encode(message as object, writer),
    decode: (bytes) => generated.decode(bytes) as T,
    patch: (message, fields) => withUnknown(message, Object.assign(new generated(message as object), fields) as T),
    toJson: (message, defaults = false) =>
      generated.toObject(message as object, { enums: String, bytes: String, longs: Number, defaults }),
    fromJson: (json) => generated.fromObject(json) as T,
  };
}
