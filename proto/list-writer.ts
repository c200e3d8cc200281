/**
 * A list of messages in the making, as it stands in the message that has it: one behind the other, each with tag and length.
 * Nothing is made for a single message: bytes of its own for each of a thousand small ones cost more than encoding them.
 */
import protobuf from "protobufjs/minimal.js";
import type { Codec } from "./codec.ts";

/** Bytes that a list begins with: some tens of small messages. It grows by doubling. */
const bytesMin = 2 * 1024;

/** What stands before `bytes` bytes of a field, in whatever message has it. */
export function lengthDelimited(field: number, bytes: number): Uint8Array {
  return protobuf.Writer.create()
    .uint32((field << 3) | 2)
    .uint32(bytes)
    .finish();
}

/** Where a list ended once. */
export interface ListMark {
  /** Messages. */
  readonly length: number;
  readonly bytes: number;
}

export class ListWriter<T> {
  readonly #codec: Codec<T>;
  readonly #tag: number;
  readonly #writer = protobuf.Writer.create() as protobuf.Writer & { pos: number; buf: Uint8Array };
  #length = 0;

  /** `field`: the list's number in the message that has it. */
  constructor(codec: Codec<T>, field: number) {
    this.#codec = codec;
    // Length-delimited.
    this.#tag = (field << 3) | 2;
    this.#writer.buf = Buffer.allocUnsafe(bytesMin);
  }

  /** Messages so far. */
  get length(): number {
    return this.#length;
  }

  /** Returns the bytes that the message takes, tag and length apart. */
  add(message: T): number {
    const writer = this.#writer;
    writer.uint32(this.#tag).fork();
    const from = writer.pos;
    this.#codec.write(message, writer);
    const bytes = writer.pos - from;
    writer.ldelim();
    this.#length += 1;
    return bytes;
  }

  mark(): ListMark {
    return { length: this.#length, bytes: this.#writer.pos };
  }

  /** Forgets what was added since the mark was made. */
  truncate({ length, bytes }: ListMark): void {
    this.#length = length;
    this.#writer.pos = bytes;
  }

  /** A copy of what there is now. */
  encoded(): Uint8Array<ArrayBuffer> {
    return this.#writer.finish() as Uint8Array<ArrayBuffer>;
  }
}
