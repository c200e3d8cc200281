/**
 * Writes to a TLS socket piece by piece, each after the socket has accepted the previous one. Node encrypts a whole write at
 * once: a reply of some megabytes would delay all other connections, and its buffers stay with the connection (100 KiB more
 * after 80 KiB in one write than after the same amount in pieces).
 */
import type { Duplex } from "node:stream";

/**
 * With header and seal, one TLS record (RFC 8446 §5.1), which fills one of the 16 KiB buffers that Node keeps per connection.
 * Twice the size keeps 20 KiB more, half the size takes a quarter more time.
 */
const pieceBytesMax = 16_384 - 64;
/** Maximum size of a piece that ends with the beginning of a large chunk; Node allocates it from a pool. */
const joinedBytesMax = 4_000;

interface Chunk {
  readonly chunk: Uint8Array | string;
  readonly encoding: BufferEncoding;
}
type Done = (error?: Error | null) => void;

interface PieceWriter {
  /** Bytes accepted of the current write, which the stream counts as unsent until its end. */
  readonly takenBytes: number;
}

export function writeInPieces(socket: Duplex): PieceWriter {
  const writer = { takenBytes: 0 };
  const writeWhole = socket._write.bind(socket);
  function write(chunks: readonly Chunk[], done: Done): void {
    const pieces = piecesOf(chunks);
    let writing = 0;
    let isWriting = false;
    let isNextDue = true;
    function next(error?: Error | null): void {
      writer.takenBytes += writing;
      writing = 0;
      if (error !== undefined && error !== null) return end(error);
      isNextDue = true;
      // The socket may accept a piece before the call returns. A loop avoids one level of recursion per piece.
      if (isWriting) return;
      isWriting = true;
      while (isNextDue) {
        const { value: piece } = pieces.next();
        if (piece === undefined) return end();
        isNextDue = false;
        writing = piece.length;
        writeWhole(piece, "buffer" as BufferEncoding, next);
      }
      isWriting = false;
    }
    function end(error?: Error): void {
      writer.takenBytes = 0;
      done(error);
    }
    next();
  }
  socket._write = (chunk: Uint8Array | string, encoding, done) => write([{ chunk, encoding }], done);
  socket._writev = write;
  return writer;
}

/**
 * Yields the same bytes: small chunks are joined with the next one, and text is encoded when its turn comes. Only the
 * beginning of a large chunk is copied, because thousands of clients may be sent the same bytes.
 */
function* piecesOf(chunks: readonly Chunk[]): Generator<Uint8Array, undefined> {
  let parts: Uint8Array[] = [];
  let room = pieceBytesMax;
  for (const { chunk, encoding } of chunks) {
    for (const bytes of typeof chunk === "string" ? encoded(chunk, encoding) : [chunk]) {
      let at = 0;
      if (parts.length > 0 && bytes.length >= pieceBytesMax) {
        at = Math.max(0, room - (pieceBytesMax - joinedBytesMax));
        if (at > 0) parts.push(bytes.subarray(0, at));
        yield joined(parts);
        [parts, room] = [[], pieceBytesMax];
      }
      while (at < bytes.length) {
        const part = bytes.subarray(at, at + room);
        parts.push(part);
        at += part.length;
        room -= part.length;
        if (room > 0) continue;
        yield joined(parts);
        [parts, room] = [[], pieceBytesMax];
      }
    }
  }
  if (parts.length > 0) yield joined(parts);
  return undefined;
}

function* encoded(text: string, encoding: BufferEncoding): Generator<Uint8Array> {
  for (let at = 0; at < text.length;) {
    let end = at + pieceBytesMax;
    // Do not split a surrogate pair.
    if (end < text.length && isHighHalf(text.charCodeAt(end - 1))) end += 1;
    yield Buffer.from(text.slice(at, end), encoding);
    at = end;
  }
}

const isHighHalf = (code: number): boolean => code >= 0xd8_00 && code < 0xdc_00;

function joined(parts: readonly Uint8Array[]): Uint8Array {
  const [only] = parts;
  return parts.length === 1 && only !== undefined ? only : Buffer.concat(parts);
}
