/**
 * MessagePack as Nomad writes a driver's configuration (docs/reference/nomad-driver-protocol.md §3.5), and a reader for what
 * Nomad and Go's drivers write. Compared with a library in docs/adr/0046-own-msgpack.md.
 */

/** Values from the reader: integers beyond 2^53 as bigint, bytes that are not valid text as Uint8Array. */
export type Unpacked =
  | null
  | boolean
  | number
  | bigint
  | string
  | Uint8Array
  | readonly Unpacked[]
  | { readonly [key: string]: Unpacked };

export class MsgpackError extends Error {
  override readonly name = "MsgpackError";
}

/** Deeper nesting is rejected, to avoid a stack overflow. */
const depthMax = 100;
const utf8 = new TextEncoder();

/** Writes values one after another; the elements of a map or list follow its header. */
export class MsgpackWriter {
  #bytes = new Uint8Array(256);
  #view = new DataView(this.#bytes.buffer);
  #at = 0;

  null(): void {
    this.#byte(0xc0);
  }

  bool(is: boolean): void {
    this.#byte(is ? 0xc3 : 0xc2);
  }

  /** From -2^63 to 2^64-1, in the shortest form; unsigned from 0 on. */
  integer(value: bigint): void {
    if (value >= 0n) {
      if (value < 0x80n) this.#byte(Number(value));
      else if (value < 0x100n) this.#sized(0xcc, 1, (at) => this.#view.setUint8(at, Number(value)));
      else if (value < 0x10000n) this.#sized(0xcd, 2, (at) => this.#view.setUint16(at, Number(value)));
      else if (value < 0x100000000n) this.#sized(0xce, 4, (at) => this.#view.setUint32(at, Number(value)));
      else this.#sized(0xcf, 8, (at) => this.#view.setBigUint64(at, value));
    } else if (value >= -32n) this.#byte(Number(value) & 0xff);
    else if (value >= -0x80n) this.#sized(0xd0, 1, (at) => this.#view.setInt8(at, Number(value)));
    else if (value >= -0x8000n) this.#sized(0xd1, 2, (at) => this.#view.setInt16(at, Number(value)));
    else if (value >= -0x80000000n) this.#sized(0xd2, 4, (at) => this.#view.setInt32(at, Number(value)));
    else this.#sized(0xd3, 8, (at) => this.#view.setBigInt64(at, value));
  }

  float64(value: number): void {
    this.#sized(0xcb, 8, (at) => this.#view.setFloat64(at, value));
  }

  string(text: string): void {
    const bytes = utf8.encode(text);
    const { length } = bytes;
    if (length < 32) this.#byte(0xa0 | length);
    else if (length < 0x100) this.#sized(0xd9, 1, (at) => this.#view.setUint8(at, length));
    else if (length < 0x10000) this.#sized(0xda, 2, (at) => this.#view.setUint16(at, length));
    else this.#sized(0xdb, 4, (at) => this.#view.setUint32(at, length));
    this.#room(length);
    this.#bytes.set(bytes, this.#at);
    this.#at += length;
  }

  list(length: number): void {
    this.#header(0x90, 0xdc, length);
  }

  map(length: number): void {
    this.#header(0x80, 0xde, length);
  }

  finish(): Uint8Array {
    return this.#bytes.slice(0, this.#at);
  }

  #header(short: number, long: number, length: number): void {
    if (length < 16) this.#byte(short | length);
    else if (length < 0x10000) this.#sized(long, 2, (at) => this.#view.setUint16(at, length));
    else this.#sized(long + 1, 4, (at) => this.#view.setUint32(at, length));
  }

  #byte(value: number): void {
    this.#room(1);
    this.#bytes[this.#at++] = value;
  }

  #sized(tag: number, length: number, write: (at: number) => void): void {
    this.#byte(tag);
    this.#room(length);
    write(this.#at);
    this.#at += length;
  }

  #room(length: number): void {
    if (this.#at + length <= this.#bytes.length) return;
    const grown = new Uint8Array(Math.max(this.#bytes.length * 2, this.#at + length));
    grown.set(this.#bytes);
    this.#bytes = grown;
    this.#view = new DataView(grown.buffer);
  }
}

/** Reads one value. Throws MsgpackError for bytes that are not exactly one value. */
export function unpack(bytes: Uint8Array): Unpacked {
  const reader = new Reader(bytes);
  const value = reader.value(0);
  if (!reader.isAtEnd) throw new MsgpackError("unexpected bytes after the value");
  return value;
}

class Reader {
  readonly #bytes: Uint8Array;
  readonly #view: DataView;
  #at = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  get isAtEnd(): boolean {
    return this.#at === this.#bytes.length;
  }

  value(depth: number): Unpacked {
    if (depth > depthMax) throw new MsgpackError("nested too deeply");
    const tag = this.#uint(1);
    if (tag < 0x80) return tag;
    if (tag < 0x90) return this.#map(tag & 0x0f, depth);
    if (tag < 0xa0) return this.#list(tag & 0x0f, depth);
    if (tag < 0xc0) return this.#text(tag & 0x1f);
    if (tag >= 0xe0) return tag - 0x100;
    switch (tag) {
      case 0xc0:
        return null;
      case 0xc2:
        return false;
      case 0xc3:
        return true;
      case 0xc4:
      case 0xc5:
      case 0xc6:
        return Uint8Array.from(this.#take(this.#uint(1 << (tag - 0xc4))));
      case 0xca:
        return this.#view.getFloat32(this.#step(4));
      case 0xcb:
        return this.#view.getFloat64(this.#step(8));
      case 0xcc:
      case 0xcd:
      case 0xce:
        return this.#uint(1 << (tag - 0xcc));
      case 0xcf:
        return narrow(this.#view.getBigUint64(this.#step(8)));
      case 0xd0:
        return this.#view.getInt8(this.#step(1));
      case 0xd1:
        return this.#view.getInt16(this.#step(2));
      case 0xd2:
        return this.#view.getInt32(this.#step(4));
      case 0xd3:
        return narrow(this.#view.getBigInt64(this.#step(8)));
      case 0xd9:
      case 0xda:
      case 0xdb:
        return this.#text(this.#uint(1 << (tag - 0xd9)));
      case 0xdc:
      case 0xdd:
        return this.#list(this.#uint(2 << (tag - 0xdc)), depth);
      case 0xde:
      case 0xdf:
        return this.#map(this.#uint(2 << (tag - 0xde)), depth);
      default:
        throw new MsgpackError(`unsupported value type 0x${tag.toString(16)}`);
    }
  }

  #list(length: number, depth: number): Unpacked[] {
    const items: Unpacked[] = [];
    for (let count = 0; count < length; count += 1) items.push(this.value(depth + 1));
    return items;
  }

  #map(length: number, depth: number): { [key: string]: Unpacked } {
    const entries: [string, Unpacked][] = [];
    for (let count = 0; count < length; count += 1) {
      const key = this.value(depth + 1);
      if (typeof key !== "string" && typeof key !== "number")
        throw new MsgpackError("a map key must be a string or a number");
      entries.push([String(key), this.value(depth + 1)]);
    }
    return Object.fromEntries(entries);
  }

  #text(length: number): string | Uint8Array {
    const bytes = this.#take(length);
    try {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    } catch {
      return Uint8Array.from(bytes); // Go writes the old format, which has no separate type for bytes
    }
  }

  #take(length: number): Uint8Array {
    const at = this.#step(length);
    return this.#bytes.subarray(at, at + length);
  }

  #uint(length: number): number {
    const at = this.#step(length);
    return length === 1 ? this.#view.getUint8(at) : length === 2 ? this.#view.getUint16(at) : this.#view.getUint32(at);
  }

  #step(length: number): number {
    const at = this.#at;
    if (at + length > this.#bytes.length) throw new MsgpackError("unexpected end of input");
    this.#at = at + length;
    return at;
  }
}

function narrow(value: bigint): number | bigint {
  return value >= BigInt(Number.MIN_SAFE_INTEGER) && value <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(value) : value;
}
