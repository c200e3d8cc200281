/**
 * Builds a list of messages in its encoded form within the parent message: each with tag and length. Avoids a buffer per
 * message, which for a thousand small ones costs more than the encoding.
 */
import protobuf from "protobufjs/minimal.js";
import type { Codec } from "./codec.ts";
import { openWriter } from "./patches.ts";

/** Initial capacity, in bytes: a few dozen small messages. It grows by doubling. */
const bytesMin = 2 * 1024;

/** The tag and length before a field of `bytes` bytes, for any parent message. */
export function lengthDelimited(field: number, bytes: number): Uint8Array {
  return protobuf.Writer.create()
    .uint32((field << 3) | 2)
    .uint32(bytes)
    .finish();
}

/** A position to truncate to. */
interface ListMark {
  /** Number of messages. */
  readonly length: number;
  readonly bytes: number;
}

export class ListWriter<T> {
  readonly #codec: Codec<T>;
  readonly #tag: number;
  /** Null while nothing has been added, as for a batch of proposals that change nothing. */
  #writer: ReturnType<typeof openWriter> | null = null;
  #length = 0;

  /** `field`: the list's field number in the parent message. */
  constructor(codec: Codec<T>, field: number) {
    this.#codec = codec;
    // Length-delimited.
    this.#tag = (field << 3) | 2;
  }

  /** Number of messages so far. */
  get length(): number {
    return this.#length;
  }

  /** Returns the message's size in bytes, without tag and length. */
  add(message: T): number {
    const writer = (this.#writer ??= openWriter(bytesMin));
    writer.uint32(this.#tag).fork();
    const from = writer.pos;
    this.#codec.write(message, writer);
    const bytes = writer.pos - from;
    writer.ldelim();
    this.#length += 1;
    return bytes;
  }

  mark(): ListMark {
    return { length: this.#length, bytes: this.#writer?.pos ?? 0 };
  }

  /** Removes the messages added since the mark. */
  truncate({ length, bytes }: ListMark): void {
    this.#length = length;
    if (this.#writer !== null) this.#writer.pos = bytes;
  }

  /** A copy of the current bytes. */
  encoded(): Uint8Array<ArrayBuffer> {
    return this.#writer === null ? new Uint8Array(0) : (this.#writer.finish() as Uint8Array<ArrayBuffer>);
  }
}
