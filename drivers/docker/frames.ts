/**
 * Takes a stream of an engine apart in which standard output and error are interleaved: of each piece a byte of the stream
 * (1 output, 2 error), three of nothing, four of the length, then the bytes.
 */
const headerBytes = 8;
/** The engine cuts lines at 16 KiB, to which a time is added. */
const lineBytesMax = 17 * 1024;

export type OutputName = "stdout" | "stderr";

/** The output of a terminal, which has no frames: handed on by lines, each with its end. */
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
  /** What is still to come of a piece that is handed on in parts. */
  #open = 0;
  #stream: OutputName = "stdout";

  /** `wantsWhole`: pieces are handed over whole, which the engine keeps under 16 KiB and a little where they are of a log. */
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
