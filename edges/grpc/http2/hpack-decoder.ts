/**
 * Decodes header blocks (RFC 7541). Fields in a table are passed on as the same objects, so that a request equal to an
 * earlier one (only indices) costs no allocation.
 *
 * H1: a block is decoded to its end, even if its receiver rejects it, so that the table stays in step with the peer's.
 */
import { DynamicTable, staticTable, type HeaderField } from "./hpack-table.ts";
import { decodeHuffman } from "./huffman.ts";
import { ConnectionError, ErrorCode } from "./protocol.ts";

export interface FieldReceiver {
  onField(field: HeaderField): void;
}

function broken(text: string): ConnectionError {
  return new ConnectionError(ErrorCode.COMPRESSION_ERROR, text);
}

export class HpackDecoder {
  readonly table: DynamicTable;
  readonly #tableBytesMax: number;
  #bytes: Uint8Array = Buffer.alloc(0);
  #at = 0;
  #end = 0;

  constructor(tableBytesMax: number) {
    this.#tableBytesMax = tableBytesMax;
    this.table = new DynamicTable(tableBytesMax);
  }

  /** Decodes bytes[at..end), one complete block. Throws ConnectionError. */
  decode(bytes: Buffer, at: number, end: number, receiver: FieldReceiver): void {
    this.#bytes = bytes;
    this.#at = at;
    this.#end = end;
    let canResize = true;
    while (this.#at < end) {
      const byte = bytes[this.#at] as number;
      if (byte >= 0x80) {
        receiver.onField(this.#field(this.#integer(7)));
      } else if (byte >= 0x40) {
        const field = this.#literal(bytes, 6);
        this.table.add(field);
        receiver.onField(field);
      } else if (byte >= 0x20) {
        if (!canResize) throw broken("table size update within a block");
        const size = this.#integer(5);
        if (size > this.#tableBytesMax) throw broken("table size exceeds the limit");
        this.table.resize(size);
        continue;
      } else {
        receiver.onField(this.#literal(bytes, 4));
      }
      canResize = false;
    }
    // An idle connection must not keep its receive buffer alive.
    this.#bytes = nothing;
  }

  #field(index: number): HeaderField {
    if (index === 0) throw broken("invalid index 0");
    const field = index <= staticTable.length ? staticTable[index - 1] : this.table.at(index - staticTable.length - 1);
    if (field === undefined) throw broken(`invalid index ${index}`);
    return field;
  }

  #literal(bytes: Buffer, prefixBits: number): HeaderField {
    const index = this.#integer(prefixBits);
    const name = index === 0 ? this.#string(bytes) : this.#field(index).name;
    return { name, value: this.#string(bytes) };
  }

  #integer(prefixBits: number): number {
    const mask = (1 << prefixBits) - 1;
    let value = (this.#bytes[this.#at++] as number) & mask;
    if (value < mask) return value;
    // No valid length or index reaches 2²⁸.
    for (let shift = 0; shift < 28; shift += 7) {
      if (this.#at >= this.#end) throw broken("truncated block");
      const byte = this.#bytes[this.#at++] as number;
      value += (byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    throw broken("integer too long");
  }

  #string(bytes: Buffer): string {
    if (this.#at >= this.#end) throw broken("truncated block");
    const isHuffman = (bytes[this.#at] as number) >= 0x80;
    const length = this.#integer(7);
    const from = this.#at;
    if (length > this.#end - from) throw broken("truncated block");
    this.#at = from + length;
    return isHuffman ? decodeHuffman(bytes, from, this.#at) : bytes.toString("latin1", from, this.#at);
  }
}

const nothing = new Uint8Array(0);
