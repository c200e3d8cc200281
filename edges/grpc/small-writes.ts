/**
 * Keeps what Node holds of a quiet TLS connection small. What it has encrypted goes to the kernel by way of buffers that
 * stay with the connection: the first as large as its half of the handshake (1 KiB at least), and 16 KiB more from the
 * first time on that this one is full. So the little that most connections are ever sent goes in pieces that fit, each
 * once the one before has left.
 *
 * Stages: quiet → busy (for good).
 *
 * W1: every byte leaves in its order, and a write is over when its last piece is.
 */
import type { Duplex } from "node:stream";

/** With the header, type and seal of its record (22 bytes, RFC 8446 §5.2) a piece fits into the smallest first buffer. */
const pieceBytesMax = 1_000;
/** A connection that is sent more at once is busy: pieces would only cost time. */
const quietBytesMax = 4 * 1024;
/** So is one with more writes that had to be cut than this; a node's join takes one or two. */
const cutWritesMax = 32;

type Done = (error?: Error | null) => void;
type Chunks = readonly { readonly chunk: Uint8Array }[];

const binary = "buffer" as BufferEncoding;

const writes = Symbol("writes");

interface SmallSocket extends Duplex {
  [writes]: { readonly whole: Duplex["_write"]; cut: number };
}

/** `socket`: one that is given bytes alone, no text. */
export function writeSmall(socket: Duplex): void {
  const small = socket as SmallSocket;
  small[writes] = { whole: socket._write, cut: 0 };
  // The same functions for all: each its own would take 0.4 kB of every connection.
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
