/**
 * gRPC's message framing: one flag byte, four length bytes, then the message.
 *
 * F1: a message longer than the limit is refused as soon as its length is read; nothing of it is kept.
 * F2: a message owns its bytes and does not keep alive the 64 KiB receive buffer in which it arrived, so a decoded message may
 *     be stored indefinitely.
 */

/** Why a stream of frames cannot continue. */
type FrameProblem = "compressed" | "too-large";

export interface FrameReceiver {
  /** Called for each complete message, in order. */
  onFrame(message: Uint8Array): void;
}

export const headerBytes = 5;
/** Minimum of the first allocation for a message that arrives in parts, which is twice what has arrived; it doubles from
 *  there, so that a length alone costs no memory. */
const bodyBytesMin = 512;
/** Up to this size, header and message are copied into one piece; above, two writes are cheaper than the copy. */
const joinedBytesMax = 16 * 1024;

/** A message of up to `joinedBytesMax` bytes with its header, ready to be sent. */
export function frame(message: Uint8Array): Buffer {
  const bytes = Buffer.allocUnsafe(headerBytes + message.length);
  bytes[0] = 0;
  bytes.writeUInt32BE(message.length, 1);
  bytes.set(message, headerBytes);
  return bytes;
}

/** The header alone, for a message sent in a separate write. */
export function frameHeader(length: number): Buffer {
  const bytes = Buffer.allocUnsafe(headerBytes);
  bytes[0] = 0;
  bytes.writeUInt32BE(length, 1);
  return bytes;
}

/** A message as the pieces to send, in order. */
export function framed(message: Uint8Array): readonly Uint8Array[] {
  return message.length <= joinedBytesMax ? [frame(message)] : [frameHeader(message.length), message];
}

/**
 * Encodes and frames for one method. Sending the same message to many streams in a row encodes it once, and all of them queue
 * the same bytes. Nothing is cached beyond the current turn of the event loop.
 */
export function framedOnce(encode: (message: unknown) => Uint8Array): (message: unknown) => readonly Uint8Array[] {
  let last: unknown = null;
  let pieces: readonly Uint8Array[] = [];
  const forget = (): void => {
    last = null;
    pieces = [];
  };
  return (message) => {
    if (last === message) return pieces;
    if (last === null) queueMicrotask(forget);
    pieces = framed(encode(message));
    last = message;
    return pieces;
  };
}

/** Splits a stream into messages. */
export class FrameReader {
  readonly #messageBytesMax: number;
  readonly #receiver: FrameReceiver;
  /** A partial header, and how many bytes of it have arrived. */
  #header: Uint8Array | null = null;
  #headerAt = 0;
  /** The current message, its total length, and how much of it has arrived. */
  #body: Uint8Array | null = null;
  #length = 0;
  #bodyAt = 0;

  constructor(messageBytesMax: number, receiver: FrameReceiver) {
    this.#messageBytesMax = messageBytesMax;
    this.#receiver = receiver;
  }

  /** True between messages: a stream that ends elsewhere was truncated. */
  get isBetweenMessages(): boolean {
    return this.#body === null && this.#headerAt === 0;
  }

  /** Bytes of the current message that have arrived, including its header. */
  get keptBytes(): number {
    return this.#body === null ? this.#headerAt : headerBytes + this.#bodyAt;
  }

  /** Reads the next bytes. After a problem the reader must not be used again. */
  push(chunk: Uint8Array): FrameProblem | null {
    let at = 0;
    while (at < chunk.length) {
      if (this.#body !== null) {
        at += this.#fill(chunk, at);
        continue;
      }
      let header = chunk;
      let headerAt = at;
      if (this.#headerAt > 0 || chunk.length - at < headerBytes) {
        this.#header ??= new Uint8Array(headerBytes);
        const taken = Math.min(headerBytes - this.#headerAt, chunk.length - at);
        this.#header.set(chunk.subarray(at, at + taken), this.#headerAt);
        this.#headerAt += taken;
        at += taken;
        if (this.#headerAt < headerBytes) return null;
        header = this.#header;
        headerAt = 0;
        this.#headerAt = 0;
      } else {
        at += headerBytes;
      }
      if (header[headerAt] !== 0) return "compressed";
      const length =
        (header[headerAt + 1] as number) * 0x1000000 +
        (((header[headerAt + 2] as number) << 16) |
          ((header[headerAt + 3] as number) << 8) |
          (header[headerAt + 4] as number));
      if (length > this.#messageBytesMax) return "too-large";
      if (chunk.length - at >= length) {
        const message = new Uint8Array(length);
        message.set(chunk.subarray(at, at + length));
        at += length;
        this.#receiver.onFrame(message);
      } else {
        this.#length = length;
        this.#bodyAt = 0;
        this.#body = new Uint8Array(Math.min(length, Math.max(bodyBytesMin, 2 * (chunk.length - at))));
      }
    }
    return null;
  }

  /** Adds to the current message; returns the number of bytes used. */
  #fill(chunk: Uint8Array, at: number): number {
    let body = this.#body as Uint8Array;
    const taken = Math.min(this.#length - this.#bodyAt, chunk.length - at);
    const needed = this.#bodyAt + taken;
    if (needed > body.length) {
      const grown = new Uint8Array(Math.min(this.#length, Math.max(needed, body.length * 2)));
      grown.set(body.subarray(0, this.#bodyAt));
      this.#body = grown;
      body = grown;
    }
    body.set(chunk.subarray(at, at + taken), this.#bodyAt);
    this.#bodyAt = needed;
    if (needed === this.#length) {
      this.#body = null;
      this.#receiver.onFrame(body);
    }
    return taken;
  }
}
