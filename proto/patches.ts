/**
 * Everything in which our codecs differ from plain protobufjs: changes of its generated text, of its runtime, and the use of
 * its writers' private fields. ADR 44 has what each one gains.
 *
 * X1: patched and plain code write the same bytes for a message, read the same message from the same bytes, and reject the
 *     same bytes. The one exception is half a surrogate pair, which plain code writes as bytes that no decoder accepts.
 */
import protobuf from "protobufjs/minimal.js";

// At generation

/**
 * Removes from protobufjs' output two costs per decoded message:
 * - a separate array for each empty list: all share the frozen one of their prototypes;
 * - a `delete` of each other member when a oneof's member is read: only a second member has one to delete.
 */
export function patchedSource(source: string): string {
  return source
    .replaceAll(/this\.(\w+) = \[\];/g, "this.$1 = $util.emptyArray;")
    .replaceAll(/message = _target \|\| new [^;]+;/g, "$& let oneofs = _target ? 1 : 0;")
    .replaceAll(/message\.(\w+) = ("\w+");/g, "if (oneofs++ > 0) message.$1 = $2;");
}

// At run time: settings that protobufjs offers

// 64-bit fields are plain numbers here (safe to 2^53): otherwise the values would be Long objects wherever the package `long`
// is installed, whatever the types say. The generator imports this, too: its output has no branches for Long.
(protobuf.util as { Long: unknown }).Long = null;
protobuf.configure();
// Keep unknown fields, like Go's codecs: what a newer client sets on a service must reach a newer engine through an older
// manager.
(protobuf.Reader as unknown as { discardUnknown: boolean }).discardUnknown = false;

// At run time: patches

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

/** A writer with its private fields: bytes before `pos` are written. */
type OpenWriter = protobuf.Writer & {
  pos: number;
  buf: Uint8Array;
  view: DataView | null;
  states: number[] | null;
};

/** A writer with room for `bytes` bytes; it grows by doubling. */
export function openWriter(bytes: number): OpenWriter {
  const writer = protobuf.Writer.create() as OpenWriter;
  writer.buf = Buffer.allocUnsafeSlow(bytes);
  return writer;
}

/** Bytes; a larger buffer is released after use. */
const scratchBytes = 64 * 1024;
/** Writer that all messages are encoded with, one at a time, and copied from: no buffer has to grow, and none is too large. */
let scratch = openWriter(scratchBytes);

export function encodedWith(write: (writer: protobuf.Writer) => protobuf.Writer): Uint8Array<ArrayBuffer> {
  scratch.pos = 0;
  // An encoder that threw leaves state behind.
  scratch.states = null;
  const bytes = write(scratch).finish() as Uint8Array<ArrayBuffer>;
  if (scratch.buf.length > scratchBytes) scratch = openWriter(scratchBytes);
  return bytes;
}
