/**
 * The subset of DER (ITU-T X.690) that certificates and certificate requests need: a writer of nested byte strings, and a
 * reader of one element at a time.
 *
 * D1: the reader stays within its bytes, and accepts only definite lengths in their shortest form.
 */

/** Tag bytes used here. */
export const Tag = {
  boolean: 0x01,
  integer: 0x02,
  bitString: 0x03,
  octetString: 0x04,
  oid: 0x06,
  utf8String: 0x0c,
  numericString: 0x12,
  printableString: 0x13,
  teletexString: 0x14,
  ia5String: 0x16,
  utcTime: 0x17,
  generalizedTime: 0x18,
  universalString: 0x1c,
  bmpString: 0x1e,
  sequence: 0x30,
  set: 0x31,
} as const;

/** Constructed context-specific tag, `[n]` in ASN.1. */
export function contextTag(number: number): number {
  return 0xa0 | number;
}

/** Thrown by the reader on bytes that are not DER, or not the expected element. */
export class DerError extends Error {
  override readonly name = "DerError";
}

type Bytes = Uint8Array<ArrayBuffer>;

function lengthBytes(length: number): number[] {
  if (length < 0x80) return [length];
  const digits: number[] = [];
  for (let rest = length; rest > 0; rest = Math.floor(rest / 256)) digits.unshift(rest & 0xff);
  return [0x80 | digits.length, ...digits];
}

/** One element: tag, length and the concatenated contents. */
export function element(tag: number, ...contents: readonly Uint8Array[]): Bytes {
  let length = 0;
  for (const part of contents) length += part.length;
  const header = lengthBytes(length);
  const bytes = new Uint8Array(1 + header.length + length);
  bytes[0] = tag;
  bytes.set(header, 1);
  let at = 1 + header.length;
  for (const part of contents) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}

export function sequence(...contents: readonly Uint8Array[]): Bytes {
  return element(Tag.sequence, ...contents);
}

/** A non-negative INTEGER from its big-endian magnitude. */
export function unsignedInteger(magnitude: Uint8Array): Bytes {
  let start = 0;
  while (start < magnitude.length - 1 && magnitude[start] === 0) start += 1;
  const trimmed = magnitude.subarray(start);
  const isNegativeLooking = trimmed.length === 0 || (trimmed[0] as number) >= 0x80;
  return isNegativeLooking ? element(Tag.integer, Uint8Array.of(0), trimmed) : element(Tag.integer, trimmed);
}

export function bitString(bytes: Uint8Array, unusedBits = 0): Bytes {
  return element(Tag.bitString, Uint8Array.of(unusedBits), bytes);
}

/** An OBJECT IDENTIFIER from its dotted text. */
export function oid(dotted: string): Bytes {
  const [first = 0, second = 0, ...rest] = dotted.split(".").map(Number);
  const bytes: number[] = [];
  for (const arc of [first * 40 + second, ...rest]) {
    const groups = [arc & 0x7f];
    for (let left = Math.floor(arc / 128); left > 0; left = Math.floor(left / 128))
      groups.unshift(0x80 | (left & 0x7f));
    bytes.push(...groups);
  }
  return element(Tag.oid, Uint8Array.from(bytes));
}

const encoder = new TextEncoder();

/** Text as PrintableString if its characters allow it, as in Go's encoder, otherwise as UTF8String. */
export function directoryString(text: string): Bytes {
  const tag = /^[A-Za-z0-9 '()+,\-./:=?]*$/.test(text) ? Tag.printableString : Tag.utf8String;
  return element(tag, encoder.encode(text));
}

/** A Time: UTCTime in the years 1950 to 2049, otherwise GeneralizedTime (RFC 5280 §4.1.2.5); whole seconds. */
export function time(atMs: number): Bytes {
  const digits = new Date(atMs)
    .toISOString()
    .replace(/\.\d+Z$/, "Z")
    .replaceAll(/[-:T]/g, "");
  const year = Number(digits.slice(0, 4));
  const isShort = year >= 1950 && year < 2050;
  return element(isShort ? Tag.utcTime : Tag.generalizedTime, encoder.encode(isShort ? digits.slice(2) : digits));
}

/** An element in the bytes: `raw` with its header, `contents` without. */
export interface Element {
  readonly tag: number;
  readonly raw: Uint8Array;
  readonly contents: Uint8Array;
}

/** Reads consecutive elements of `bytes`. */
export class DerReader {
  readonly #bytes: Uint8Array;
  #at = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  get isAtEnd(): boolean {
    return this.#at === this.#bytes.length;
  }

  /** Tag of the next element; null at the end. */
  peekTag(): number | null {
    return this.#bytes[this.#at] ?? null;
  }

  /** The next element, optionally with the expected tag. Throws DerError. */
  read(expectedTag?: number): Element {
    const bytes = this.#bytes;
    const start = this.#at;
    const tag = bytes[start];
    const first = bytes[start + 1];
    if (tag === undefined || first === undefined) throw new DerError("truncated element");
    if ((tag & 0x1f) === 0x1f) throw new DerError("tag number too large");
    if (expectedTag !== undefined && tag !== expectedTag)
      throw new DerError(`expected tag ${expectedTag}, found ${tag}`);
    let length = first;
    let contentsAt = start + 2;
    if (first >= 0x80) {
      const digits = first & 0x7f;
      // Four digits allow 4 GiB, far more than any input; zero digits would be BER's indefinite form (D1).
      if (digits === 0 || digits > 4) throw new DerError("unsupported length form");
      length = 0;
      for (let digit = 0; digit < digits; digit += 1) {
        const value = bytes[contentsAt + digit];
        if (value === undefined) throw new DerError("truncated element");
        length = length * 256 + value;
      }
      if (length < 0x80 || (digits > 1 && bytes[contentsAt] === 0))
        throw new DerError("length is not in its shortest form");
      contentsAt += digits;
    }
    const end = contentsAt + length;
    if (end > bytes.length) throw new DerError("truncated element");
    this.#at = end;
    return { tag, raw: bytes.subarray(start, end), contents: bytes.subarray(contentsAt, end) };
  }

  /** A reader of the next element's contents; the element must have the given tag. */
  enter(expectedTag: number = Tag.sequence): DerReader {
    return new DerReader(this.read(expectedTag).contents);
  }

  /** Throws unless everything was read: trailing bytes are never ignored. */
  finish(): void {
    if (!this.isAtEnd) throw new DerError("unexpected trailing bytes");
  }
}
