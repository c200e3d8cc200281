/**
 * The frames on a dataplane driver's pipes: a length of eight bytes, little-endian, then that many bytes of protobuf
 * (docs/reference/felix-dataplane-protocol.md §1).
 *
 * F1: a reader's memory is bounded by the largest frame, whatever lengths a peer sends and however its bytes are split.
 * F2: nothing is read after an invalid frame: frame boundaries are lost for good.
 */

/** The protocol itself has no limit. A set of a million members, the most that Felix accepts, takes about 17 MB. */
const frameBytesMax = 256 * 1024 * 1024;

const headerBytes = 8;

/** The stream is permanently broken. F2 */
export class FrameError extends Error {
  override readonly name = "FrameError";
}

/** `body` with its frame header, in one buffer. */
export function frameOf(body: Uint8Array): Buffer {
  const frame = Buffer.allocUnsafe(headerBytes + body.length);
  frame.writeBigUInt64LE(BigInt(body.length), 0);
  frame.set(body, headerBytes);
  return frame;
}

/** Reassembles frames from arbitrary chunks. */
export class FrameReader {
  readonly #bytesMax: number;
  readonly #header = Buffer.alloc(headerBytes);
  #headerLength = 0;
  /** Null while a header is being read. */
  #body: { readonly length: number; readonly pieces: Uint8Array[]; missing: number } | null = null;
  #isBroken = false;

  constructor(bytesMax: number = frameBytesMax) {
    this.#bytesMax = bytesMax;
  }

  /** True between two frames, the only place where a stream may end. */
  get isBetween(): boolean {
    return this.#headerLength === 0 && this.#body === null;
  }

  /** The bodies that `chunk` completes. Throws FrameError on a length over the limit, and on each call after that. */
  push(chunk: Uint8Array): Buffer[] {
    if (this.#isBroken) throw new FrameError("the stream is broken");
    const bodies: Buffer[] = [];
    let at = 0;
    while (at < chunk.length || this.#body?.missing === 0) {
      const body = this.#body;
      if (body === null) {
        const taken = Math.min(headerBytes - this.#headerLength, chunk.length - at);
        this.#header.set(chunk.subarray(at, at + taken), this.#headerLength);
        this.#headerLength += taken;
        at += taken;
        if (this.#headerLength === headerBytes) this.#begin();
        continue;
      }
      const taken = Math.min(body.missing, chunk.length - at);
      // Copied: a slice would keep the stream's own buffer alive, or be overwritten with it.
      if (taken > 0) body.pieces.push(Buffer.from(chunk.subarray(at, at + taken)));
      body.missing -= taken;
      at += taken;
      if (body.missing === 0) {
        bodies.push(Buffer.concat(body.pieces, body.length));
        this.#body = null;
      } else if (body.pieces.length > 1_024) {
        // A peer that writes byte by byte must not cost an object per byte (F1).
        body.pieces.splice(0, body.pieces.length, Buffer.concat(body.pieces));
      }
    }
    return bodies;
  }

  #begin(): void {
    const length = this.#header.readBigUInt64LE(0);
    this.#headerLength = 0;
    if (length > BigInt(this.#bytesMax)) {
      this.#isBroken = true;
      throw new FrameError(`frame of ${length} bytes exceeds the limit of ${this.#bytesMax}`);
    }
    this.#body = { length: Number(length), pieces: [], missing: Number(length) };
  }
}
