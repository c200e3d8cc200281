/**
 * Splits an engine's stream of interleaved standard output and error: each piece has one byte for the stream (1 output,
 * 2 error), three unused, four for the length, then the data.
 */
const headerBytes = 8;
/** The engine splits lines at 16 KiB, and adds a timestamp. */
const lineBytesMax = 17 * 1024;

export type OutputName = "stdout" | "stderr";

/** Splits a terminal's output, which has no frames, into lines, including their line ends. */
export class Lines {
  readonly #take: (stream: OutputName, bytes: Buffer) => void;
  #rest: Buffer = Buffer.alloc(0);

  constructor(take: (stream: OutputName, bytes: Buffer) => void) {
    this.#take = take;
  }

  push(chunk: Buffer): void {
    let bytes = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
    for (;;) {
      const end = bytes.indexOf(10) + 1;
      if (end === 0 && bytes.length < lineBytesMax) break;
      const part = bytes.subarray(0, end === 0 ? bytes.length : end);
      bytes = bytes.subarray(part.length);
      this.#take("stdout", part);
    }
    this.#rest = bytes;
  }
}

export class Frames {
  readonly #take: (stream: OutputName, bytes: Buffer) => void;
  readonly #wantsWhole: boolean;
  #rest: Buffer = Buffer.alloc(0);
  /** Bytes that are left of a piece passed on in parts. */
  #open = 0;
  #stream: OutputName = "stdout";

  /** `wantsWhole`: pieces are passed on whole; in a log the engine limits them to a little over 16 KiB. */
  constructor(wantsWhole: boolean, take: (stream: OutputName, bytes: Buffer) => void) {
    this.#wantsWhole = wantsWhole;
    this.#take = take;
  }

  push(chunk: Buffer): void {
    let bytes = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
    for (;;) {
      if (this.#open === 0) {
        if (bytes.length < headerBytes) break;
        this.#stream = bytes[0] === 2 ? "stderr" : "stdout";
        this.#open = bytes.readUInt32BE(4);
        bytes = bytes.subarray(headerBytes);
        continue;
      }
      if (bytes.length === 0 || (this.#wantsWhole && bytes.length < this.#open)) break;
      const part = bytes.subarray(0, this.#open);
      bytes = bytes.subarray(part.length);
      this.#open -= part.length;
      this.#take(this.#stream, part);
    }
    this.#rest = bytes;
  }
}
