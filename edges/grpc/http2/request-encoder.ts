/**
 * Encodes the headers of requests (RFC 7541). Fields that every request of a connection repeats are added to the peer's table
 * once and sent as an index afterwards: a repeated request takes a few bytes.
 *
 * E1: the table is never filled beyond its size, so nothing is ever evicted and every index stays valid.
 */
import { callerHeader } from "../calling-process.ts";
import { fieldBytes, staticTable } from "./hpack-table.ts";
import { headerTableBytesMax } from "./protocol.ts";

export interface RequestHead {
  readonly path: string;
  /** `grpc-timeout`, or empty. */
  readonly timeout: string;
  readonly traceparent: string;
  /** How we identify ourselves to a local manager, or empty. */
  readonly caller: string;
}

function staticIndex(name: string, value: string): number {
  return staticTable.findIndex((field) => field.name === name && field.value === value) + 1;
}

/** The static table's index of a field's name; 0 if it has none. */
function nameIndex(name: string): number {
  return staticTable.findIndex((field) => field.name === name) + 1;
}

const scratchBytes = 32 * 1024;
/** Shared by all connections, since it is filled and copied within one call. */
const scratch = Buffer.allocUnsafeSlow(scratchBytes);

export class RequestEncoder {
  readonly #scheme: number;
  readonly #authority: string;
  /** By name and value: the field's number, in the order of addition. */
  readonly #added = new Map<string, number>();
  #bytes = 0;
  #bytesMax = headerTableBytesMax;
  /** The peer has reduced its table and expects a size update. */
  #mustResize = false;
  #at = 0;

  constructor(scheme: string, authority: string) {
    this.#scheme = staticIndex(":scheme", scheme);
    this.#authority = authority;
  }

  /** The peer's SETTINGS_HEADER_TABLE_SIZE. A table smaller than the default is not used at all. */
  limitTable(bytes: number): void {
    if (bytes >= headerTableBytesMax || this.#bytesMax === 0) return;
    this.#bytesMax = 0;
    this.#added.clear();
    this.#mustResize = true;
  }

  encode(head: RequestHead): Buffer {
    this.#at = 0;
    if (this.#mustResize) {
      this.#mustResize = false;
      this.#integer(0x20, 5, 0);
    }
    this.#integer(0x80, 7, postIndex);
    this.#integer(0x80, 7, this.#scheme);
    this.#repeated(":path", pathNameIndex, head.path);
    this.#repeated(":authority", authorityNameIndex, this.#authority);
    this.#repeated("content-type", contentTypeNameIndex, "application/grpc");
    this.#repeated("te", 0, "trailers");
    if (head.caller !== "") this.#repeated(callerHeader, 0, head.caller);
    if (head.timeout !== "") this.#literal(0, 4, "grpc-timeout", 0, head.timeout);
    if (head.traceparent !== "") this.#literal(0, 4, "traceparent", 0, head.traceparent);
    return Buffer.from(scratch.subarray(0, this.#at));
  }

  #repeated(name: string, nameAt: number, value: string): void {
    const key = `${name} ${value}`;
    const number = this.#added.get(key);
    if (number !== undefined) {
      // The newest entry has the lowest index.
      this.#integer(0x80, 7, staticTable.length + this.#added.size - number);
      return;
    }
    const bytes = fieldBytes({ name, value });
    const fits = this.#bytes + bytes <= this.#bytesMax;
    this.#literal(fits ? 0x40 : 0, fits ? 6 : 4, name, nameAt, value);
    if (!fits) return;
    this.#added.set(key, this.#added.size);
    this.#bytes += bytes;
  }

  #literal(pattern: number, prefixBits: number, name: string, nameAt: number, value: string): void {
    this.#integer(pattern, prefixBits, nameAt);
    if (nameAt === 0) this.#string(name);
    this.#string(value);
  }

  #integer(pattern: number, prefixBits: number, value: number): void {
    const mask = (1 << prefixBits) - 1;
    if (value < mask) {
      scratch[this.#at++] = pattern | value;
      return;
    }
    scratch[this.#at++] = pattern | mask;
    let rest = value - mask;
    for (; rest >= 0x80; rest >>= 7) scratch[this.#at++] = (rest & 0x7f) | 0x80;
    scratch[this.#at++] = rest;
  }

  #string(text: string): void {
    this.#integer(0, 7, text.length);
    this.#at += scratch.write(text, this.#at, "latin1");
  }
}

const postIndex = staticIndex(":method", "POST");
const pathNameIndex = nameIndex(":path");
const authorityNameIndex = nameIndex(":authority");
const contentTypeNameIndex = nameIndex("content-type");
