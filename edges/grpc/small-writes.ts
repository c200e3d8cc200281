/**
 * Reduces Node's memory for a quiet TLS connection. Node passes encrypted data to the kernel in buffers that stay with the
 * connection: the first as large as its half of the handshake (at least 1 KiB), and 16 KiB more from the first time that
 * this one is full. So the few bytes that most connections are ever sent are written in pieces that fit, each after the
 * previous one has left.
 *
 * Stages: quiet → busy (permanently).
 *
 * W1: bytes keep their order, and a write completes with its last piece.
 */
import type { Duplex } from "node:stream";

/** With its record's header, type and seal (22 bytes, RFC 8446 §5.2), a piece fits into the smallest first buffer. */
const pieceBytesMax = 1_000;
/** A connection that is sent more at once is busy: splitting would only cost time. */
const quietBytesMax = 4 * 1024;
/** A connection is also busy after more split writes than this; a node's join takes one or two. */
const cutWritesMax = 32;

type Done = (error?: Error | null) => void;
type Chunks = readonly { readonly chunk: Uint8Array }[];

const binary = "buffer" as BufferEncoding;

const writes = Symbol("writes");

interface SmallSocket extends Duplex {
  [writes]: { readonly whole: Duplex["_write"]; cut: number };
}

/** `socket` must be written bytes only, no text. */
export function writeSmall(socket: Duplex): void {
  const small = socket as SmallSocket;
  small[writes] = { whole: socket._write, cut: 0 };
  // Shared functions: separate ones would take 0.4 kB per connection.
  small._write = write;
  small._writev = writeAll;
}

function write(this: SmallSocket, bytes: Uint8Array, _encoding: unknown, done: Done): void {
  const state = this[writes];
  if (bytes.length > quietBytesMax) state.cut = cutWritesMax;
  if (state.cut === cutWritesMax || bytes.length <= pieceBytesMax) {
    state.whole.call(this, bytes, binary, done);
    return;
  }
  state.cut += 1;
  writePieces(this, bytes, 0, done);
}

function writeAll(this: SmallSocket, chunks: Chunks, done: Done): void {
  write.call(this, Buffer.concat(chunks.map(({ chunk }) => chunk)), binary, done);
}

function writePieces(socket: SmallSocket, bytes: Uint8Array, from: number, done: Done): void {
  const to = from + pieceBytesMax;
  socket[writes].whole.call(socket, bytes.subarray(from, to), binary, (error) => {
    if (to >= bytes.length || (error ?? null) !== null) done(error);
    else writePieces(socket, bytes, to, done);
  });
}
