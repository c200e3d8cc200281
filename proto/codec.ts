/** The typed face of protobufjs' generated codecs: what every message constant of `proto/gen/messages.ts` is. */
import protobuf from "protobufjs/minimal.js";

// 64-bit fields are plain numbers here (safe to 2^53): without this the values would be Long objects wherever the
// package `long` happens to be installed, whatever the types say.
(protobuf.util as { Long: unknown }).Long = null;
protobuf.configure();
// What a newer client says of a service must reach a newer engine through an older manager: fields that are not known here
// are kept, as Go's codecs keep them.
(protobuf.Reader as unknown as { discardUnknown: boolean }).discardUnknown = false;

// Half a surrogate pair, which JSON can carry, would become bytes that no decoder takes, ours included: a record in the log
// that stops every manager. It is written as U+FFFD, as Node writes it in texts that are long enough for it to do the work.
// Most texts are ids, names and digests, which are ASCII and need no look at pairs.
const writeText = protobuf.util.utf8.write;
protobuf.util.utf8.write = (text, buffer, offset) => {
  for (let at = 0; at < text.length; at += 1) {
    const unit = text.charCodeAt(at);
    if (unit > 0x7f) return writeText(text.isWellFormed() ? text : text.toWellFormed(), buffer, offset);
    buffer[offset + at] = unit;
  }
  return text.length;
};

/** Shorter texts are put together from their characters without a rope; longer ones protobufjs hands to a decoder. */
const ropeLengthMin = 13;
const decoderLengthMin = 64;
const { latin1Slice } = Buffer.prototype as unknown as {
  latin1Slice(this: Uint8Array, start: number, end: number): string;
};

// protobufjs joins a text's pieces by `+`: a rope, which is copied when it is first looked up by. ASCII is read in one piece.
const readText = protobuf.util.utf8.readStrict;
protobuf.util.utf8.readStrict = (buffer, start, end) => {
  const length = end - start;
  if (length < ropeLengthMin || length >= decoderLengthMin) return readText(buffer, start, end);
  let bits = 0;
  for (let at = start; at < end; at += 1) bits |= buffer[at] as number;
  return bits > 0x7f ? readText(buffer, start, end) : latin1Slice.call(buffer, start, end);
};

/** All messages are encoded into this, one after the other, and copied: no buffer is made to grow, and none is too large. */
const scratch = protobuf.Writer.create() as protobuf.Writer & {
  pos: number;
  buf: Uint8Array;
  view: DataView | null;
  states: number[] | null;
};
/** Bytes; what a larger message needed is let go. */
const scratchBytes = 64 * 1024;
scratch.buf = Buffer.allocUnsafeSlow(scratchBytes);

function encoded(generated: GeneratedType, message: object): Uint8Array<ArrayBuffer> {
  scratch.pos = 0;
  // Something is left in it when an encoder threw.
  scratch.states = null;
  const bytes = generated.encode(message, scratch).finish() as Uint8Array<ArrayBuffer>;
  if (scratch.buf.length > scratchBytes) {
    scratch.buf = Buffer.allocUnsafeSlow(scratchBytes);
    scratch.view = null;
  }
  return bytes;
}

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
  /** Encodes it as the next part of what is being written. */
  write(message: T, writer: protobuf.Writer): void;
  /** A copy with some fields replaced; shares everything else, fields that this version does not know among it. */
  patch(message: T, fields: Partial<T>): T;
  /** Plain JSON: enums as names, bytes as base64, field names in camelCase; defaults are left out unless `defaults` is true. */
  toJson(message: T, defaults?: boolean): Record<string, unknown>;
  fromJson(json: object): T;
}

/** Null for bytes that are no such message: what comes from another process may be anything. */
export function decodedOrNull<T>(codec: Pick<Codec<T>, "decode">, bytes: Uint8Array): T | null {
  try {
    return codec.decode(bytes);
  } catch {
    return null;
  }
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
  encode(message: object, writer: protobuf.Writer): protobuf.Writer;
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
    encode: (message) => encoded(generated, message as object),
    write: (message, writer) => void generated.encode(message as object, writer),
    decode: (bytes) => generated.decode(bytes) as T,
    patch: (message, fields) => withUnknown(message, Object.assign(new generated(message as object), fields) as T),
    toJson: (message, defaults = false) =>
      generated.toObject(message as object, { enums: String, bytes: String, longs: Number, defaults }),
    fromJson: (json) => generated.fromObject(json) as T,
  };
}
