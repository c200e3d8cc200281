/**
 * A small record that is overwritten repeatedly, and whose newest value survives a power failure at any moment: two slots in
 * one file, written in turns, each with a number and a hash. Overwriting needs no space, so it works on a full disk, and one
 * `fdatasync` makes it durable, where replacing a file takes two and a rename.
 *
 * M1: an interrupted write damages only its own slot; the other has the previous value.
 */
import { hash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { open, type FileHandle } from "node:fs/promises";
import { replaceFileSync } from "./whole-file.ts";

/** In a manager's data dir: its mark of the log. */
export const markFileName = "log-mark";
/** A disk block: writing one slot does not touch the other. */
const placeBytes = 4_096;
/** Number (8 bytes), length (4), SHA-256 of both and the value (32). */
const headBytes = 44;
const valueBytesMax = placeBytes - headBytes;

export class MarkFile {
  readonly #path: string;
  #file: FileHandle | null = null;
  #number: number;
  #value: Uint8Array | null;

  /** Creates the file if it is absent. Throws the file system's errors. */
  constructor(path: string) {
    this.#path = path;
    if (!existsSync(path)) replaceFileSync(path, new Uint8Array(2 * placeBytes));
    const bytes = readFileSync(path);
    const places = [0, 1].map((at) => decodePlace(bytes.subarray(at * placeBytes, (at + 1) * placeBytes)));
    const newest = places.reduce((a, b) => (b !== null && (a === null || b.number > a.number) ? b : a));
    this.#number = newest?.number ?? 0;
    this.#value = newest?.value ?? null;
  }

  /** The last written value; null if there is none, or if both slots are damaged. */
  read(): Uint8Array | null {
    return this.#value;
  }

  /** Resolves when the value survives a power failure. One call at a time; at most `valueBytesMax` bytes. */
  async write(value: Uint8Array): Promise<void> {
    if (value.length > valueBytesMax) throw new RangeError(`a mark must not exceed ${valueBytesMax} bytes`);
    this.#file ??= await open(this.#path, "r+");
    const number = this.#number + 1;
    const place = encodePlace(number, value);
    const { bytesWritten } = await this.#file.write(place, 0, place.length, (number % 2) * placeBytes);
    if (bytesWritten !== place.length)
      throw new Error(`wrote only ${bytesWritten} of ${place.length} bytes to ${this.#path}`);
    await this.#file.datasync();
    this.#number = number;
    this.#value = value;
  }

  async close(): Promise<void> {
    await this.#file?.close();
    this.#file = null;
  }
}

function encodePlace(number: number, value: Uint8Array): Buffer {
  const place = Buffer.alloc(headBytes + value.length);
  place.writeBigUInt64LE(BigInt(number), 0);
  place.writeUInt32LE(value.length, 8);
  place.set(value, headBytes);
  place.set(hashOf(place), 12);
  return place;
}

function decodePlace(bytes: Buffer): { readonly number: number; readonly value: Uint8Array } | null {
  if (bytes.length < headBytes) return null;
  const length = bytes.readUInt32LE(8);
  if (length > bytes.length - headBytes) return null;
  const place = bytes.subarray(0, headBytes + length);
  if (!hashOf(place).equals(place.subarray(12, headBytes))) return null;
  return { number: Number(place.readBigUInt64LE(0)), value: Uint8Array.from(place.subarray(headBytes)) };
}

function hashOf(place: Buffer): Buffer {
  return hash("sha256", Buffer.concat([place.subarray(0, 12), place.subarray(headBytes)]), "buffer");
}
