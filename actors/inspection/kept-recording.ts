/**
 * Reads what a process keeps of its last minutes, in batches that whoever reads asks for.
 *
 * KR1: the same question again has the same answer: one may be lost on its way.
 * KR2: a recording that cannot be read harms nothing else in its process.
 */
import { RecentReply, RecordingPart } from "../../proto/gen/messages.ts";
import { sentence } from "../sentence.ts";

export interface KeptRecording {
  /** The parts that are kept at this moment, oldest first. `sinceMs`: nothing older than this many milliseconds; 0: everything. */
  parts(sinceMs: number): Iterable<RecordingPart>;
}

/** Bytes after which a batch ends. A message on the bus has space for one more part of `partBytesMax`. */
const batchBytes = 256 * 1024;
/** Largest part that fits a message on the bus, in bytes. A larger one ends the reading, with the reason. */
const partBytesMax = 700_000;

export class RecordingReader {
  readonly #parts: Iterator<RecordingPart>;
  #number = 0;
  #reply = RecentReply.create();

  constructor(kept: KeptRecording, sinceMs: number) {
    this.#parts = kept.parts(sinceMs)[Symbol.iterator]();
  }

  /** KR1 */
  next(number: number): RecentReply {
    if (number === this.#number) return this.#reply;
    if (number !== this.#number + 1) return RecentReply.create({ failed: "batches were asked for out of their order" });
    this.#number = number;
    try {
      this.#reply = this.#batch();
    } catch (error) {
      this.#reply = RecentReply.create({ failed: `its recording cannot be read: ${sentence(error)}` });
    }
    return this.#reply;
  }

  #batch(): RecentReply {
    const parts: RecordingPart[] = [];
    for (let bytes = 0; bytes < batchBytes;) {
      const { done = false, value } = this.#parts.next();
      if (done) return RecentReply.create({ parts, ended: true });
      const { length } = RecordingPart.encode(value as RecordingPart);
      if (length > partBytesMax) return RecentReply.create({ parts, failed: `a part is too large: ${length} bytes` });
      bytes += length;
      parts.push(value as RecordingPart);
    }
    return RecentReply.create({ parts });
  }
}
