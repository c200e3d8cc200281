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

/** `socket`: one that is given bytes alone, no text. */
export function writeSmall(socket: Duplex): void {
  const writeWhole = socket._write.bind(socket);
  let cutWrites = 0;
  let isBusy = false;
  const write = (bytes: Uint8Array, done: Done): void => {
    isBusy ||= bytes.length > quietBytesMax || cutWrites === cutWritesMax;
    if (isBusy || bytes.length <= pieceBytesMax) {
      writeWhole(bytes, binary, done);
      return;
    }
    cutWrites += 1;
    writePieces(bytes, 0, done);
  };
  const writePieces = (bytes: Uint8Array, from: number, done: Done): void => {
    const to = from + pieceBytesMax;
    writeWhole(bytes.subarray(from, to), binary, (error) => {
      if (to >= bytes.length || (error ?? null) !== null) done(error);
      else writePieces(bytes, to, done);
    });
  };
  socket._write = (bytes: Uint8Array, _encoding, done) => write(bytes, done);
  socket._writev = (chunks: Chunks, done) => write(Buffer.concat(chunks.map(({ chunk }) => chunk)), done);
}
