/**
 * Encodes and decodes a record of the log: the transaction, its checksum and the link to its predecessor.
 *
 * R1: a record is accepted only if its checksum is the SHA-256 of its transaction.
 * R2: a transaction names the checksum of the record before it, so records form a chain in which removals, insertions and swaps
 *     are detected. The first record names none.
 */
// With seal.ts the only import of node: below the edges: hashing is pure, and WebCrypto's is asynchronous, unlike `apply`.
import { createHash, hash } from "node:crypto";
import { LogRecord, Transaction, TransactionLink, type Change } from "../../proto/gen/messages.ts";
import type { ListWriter } from "../../proto/list-writer.ts";

/** Bytes that a record adds to its transaction: two tags, two lengths and the checksum. */
export const recordOverheadBytes = 48;

/** Largest overhead of framing a change in a transaction, in bytes: the tag and a length below 2^28. */
export const changeFramingBytes = 5;

export function sha256(data: Uint8Array): Uint8Array {
  return hash("sha256", data, "buffer");
}

/** Incremental SHA-256. */
export function startSha256(): { add(data: Uint8Array): void; digest(): Uint8Array } {
  const running = createHash("sha256");
  return { add: (data) => void running.update(data), digest: () => new Uint8Array(running.digest()) };
}

export function toHex(data: Uint8Array): string {
  return Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString("hex");
}

export function equalBytes(a: Uint8Array, b: Uint8Array): boolean {
  if (a.length !== b.length) return false;
  for (let at = 0; at < a.length; at += 1) if (a[at] !== b[at]) return false;
  return true;
}

/**
 * Encodes a transaction as a record. `changes`: further changes that the writer has already encoded to know their size.
 * Protobuf messages can be concatenated, so they follow the encoded rest.
 */
export function encodeRecord(header: Transaction, changes: ListWriter<Change> | null = null): Uint8Array<ArrayBuffer> {
  const head = Transaction.encode(header);
  const transaction = changes === null ? head : Buffer.concat([head, changes.encoded()]);
  return LogRecord.encode(LogRecord.create({ transaction, checksum: sha256(transaction) }));
}

interface DecodedRecord {
  readonly transaction: Transaction;
  /** SHA-256 of the transaction's bytes, which the next record must name. */
  readonly checksum: Uint8Array;
}

type Decoded<Record> =
  | { readonly kind: "decoded"; readonly record: Record }
  | { readonly kind: "broken"; readonly check: string };

/** Checks R1; R2 is checked by the caller, who knows the predecessor. */
export function decodeRecord(data: Uint8Array): Decoded<DecodedRecord> {
  return checked(data, (bytes, checksum) => ({ transaction: Transaction.decode(bytes), checksum }));
}

/** As decodeRecord, without the changes: a record may have thousands. */
export function decodeLink(
  data: Uint8Array,
): Decoded<{ readonly previous: Uint8Array; readonly checksum: Uint8Array }> {
  return checked(data, (bytes, checksum) => ({ previous: TransactionLink.decode(bytes).previous, checksum }));
}

/** R1 */
function checked<Record>(
  data: Uint8Array,
  decode: (transaction: Uint8Array, checksum: Uint8Array) => Record,
): Decoded<Record> {
  try {
    const record = LogRecord.decode(data);
    const checksum = sha256(record.transaction);
    if (!equalBytes(checksum, record.checksum)) return { kind: "broken", check: "checksum" };
    return { kind: "decoded", record: decode(record.transaction, checksum) };
  } catch (error) {
    return { kind: "broken", check: `format (${error instanceof Error ? error.message : String(error)})` };
  }
}

/** Concatenates messages, each preceded by its length as a varint. */
export function joinDelimited(messages: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  let size = 0;
  for (const message of messages) size += varintBytes(message.length) + message.length;
  const whole = new Uint8Array(size);
  let at = 0;
  for (const message of messages) {
    at = writeVarint(whole, at, message.length);
    whole.set(message, at);
    at += message.length;
  }
  return whole;
}

/** The inverse of joinDelimited; null if the bytes end inside a message. */
export function splitDelimited(data: Uint8Array): Uint8Array[] | null {
  const messages: Uint8Array[] = [];
  let rest = data;
  while (rest.length > 0) {
    const split = splitFirst(rest);
    if (split === null) return null;
    messages.push(split.first);
    rest = split.rest;
  }
  return messages;
}

/** The first message of joinDelimited's result, and the remaining bytes; null if the bytes end inside it. */
export function splitFirst(data: Uint8Array): { readonly first: Uint8Array; readonly rest: Uint8Array } | null {
  let at = 0;
  let length = 0;
  let factor = 1;
  let byte: number;
  do {
    if (at >= data.length || factor > 2 ** 35) return null;
    byte = data[at] as number;
    at += 1;
    length += (byte & 0x7f) * factor;
    factor *= 128;
  } while (byte >= 0x80);
  if (at + length > data.length) return null;
  return { first: data.subarray(at, at + length), rest: data.subarray(at + length) };
}

function varintBytes(value: number): number {
  let bytes = 1;
  for (let rest = value; rest >= 0x80; rest = Math.floor(rest / 128)) bytes += 1;
  return bytes;
}

function writeVarint(target: Uint8Array, from: number, value: number): number {
  let at = from;
  let rest = value;
  for (; rest >= 0x80; rest = Math.floor(rest / 128)) {
    target[at] = (rest % 128) | 0x80;
    at += 1;
  }
  target[at] = rest;
  return at + 1;
}
