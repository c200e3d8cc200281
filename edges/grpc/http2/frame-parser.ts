/**
 * Splits a socket's bytes into HTTP/2 frames, after the preface. A frame that arrives complete is passed on in place; one
 * that arrives in parts is assembled once, in a buffer of its own size.
 *
 * P1: a frame longer than `frameBytesMax` is never buffered.
 */
import { ConnectionError, ErrorCode, frameBytesMax, frameHeaderBytes, preface } from "./protocol.ts";

export interface FrameSink {
  /** The payload is bytes[at..end), valid only during the call. May throw ConnectionError. */
  onFrame(type: number, flags: number, streamId: number, bytes: Buffer, at: number, end: number): void;
}

export class FrameParser {
  readonly #sink: FrameSink;
  #prefaceAt = 0;
  /** A partial header, and how much of it has arrived. */
  #header: Buffer | null = null;
  #headerAt = 0;
  /** A partial payload, and how much of it has arrived. */
  #payload: Buffer | null = null;
  #payloadAt = 0;

  constructor(sink: FrameSink) {
    this.#sink = sink;
  }

  /** Reads the next bytes. Throws ConnectionError; afterwards the parser must not be used again. */
  push(chunk: Buffer): void {
    let at = this.#prefaceAt < preface.length ? this.#matchPreface(chunk) : 0;
    const { length } = chunk;
    while (at < length) {
      if (this.#payload !== null) {
        at += this.#fill(chunk, at);
        continue;
      }
      let header = chunk;
      let headerAt = at;
      if (this.#headerAt > 0 || length - at < frameHeaderBytes) {
        this.#header ??= Buffer.allocUnsafeSlow(frameHeaderBytes);
        const taken = Math.min(frameHeaderBytes - this.#headerAt, length - at);
        chunk.copy(this.#header, this.#headerAt, at, at + taken);
        this.#headerAt += taken;
        at += taken;
        if (this.#headerAt < frameHeaderBytes) return;
        header = this.#header;
        headerAt = 0;
      } else {
        at += frameHeaderBytes;
      }
      const size =
        ((header[headerAt] as number) << 16) |
        ((header[headerAt + 1] as number) << 8) |
        (header[headerAt + 2] as number);
      if (size > frameBytesMax)
        throw new ConnectionError(
          ErrorCode.FRAME_SIZE_ERROR,
          `frame of ${size} bytes exceeds the limit of ${frameBytesMax}`,
        );
      if (length - at >= size) {
        this.#headerAt = 0;
        this.#emit(header, headerAt, chunk, at, at + size);
        at += size;
      } else {
        if (header === chunk) {
          this.#header ??= Buffer.allocUnsafeSlow(frameHeaderBytes);
          chunk.copy(this.#header, 0, headerAt, headerAt + frameHeaderBytes);
        }
        this.#headerAt = frameHeaderBytes;
        this.#payload = Buffer.allocUnsafeSlow(size);
        this.#payloadAt = 0;
      }
    }
  }

  #matchPreface(chunk: Buffer): number {
    const taken = Math.min(preface.length - this.#prefaceAt, chunk.length);
    if (preface.compare(chunk, 0, taken, this.#prefaceAt, this.#prefaceAt + taken) !== 0)
      throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, "expected the HTTP/2 preface");
    this.#prefaceAt += taken;
    return taken;
  }

  #fill(chunk: Buffer, at: number): number {
    const payload = this.#payload as Buffer;
    const taken = Math.min(payload.length - this.#payloadAt, chunk.length - at);
    chunk.copy(payload, this.#payloadAt, at, at + taken);
    this.#payloadAt += taken;
    if (this.#payloadAt === payload.length) {
      this.#payload = null;
      this.#headerAt = 0;
      this.#emit(this.#header as Buffer, 0, payload, 0, payload.length);
    }
    return taken;
  }

  #emit(header: Buffer, at: number, bytes: Buffer, from: number, to: number): void {
    const streamId =
      (((header[at + 5] as number) & 0x7f) << 24) |
      ((header[at + 6] as number) << 16) |
      ((header[at + 7] as number) << 8) |
      (header[at + 8] as number);
    this.#sink.onFrame(header[at + 3] as number, header[at + 4] as number, streamId, bytes, from, to);
  }
}
