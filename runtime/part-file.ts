/**
 * A sequence of messages as a compressed stream of bytes, as recordings and backups use it:
 *
 *   magic  version (4 bytes)  zstd( length (4 bytes)  part  …  length  part )
 *
 * Numbers have their big end first. The version is outside of the compressed part, so that a later one may compress differently.
 */
import { constants, createZstdCompress, createZstdDecompress } from "node:zlib";
import { Readable } from "node:stream";

/** Decompressed at once: each piece is a turn of the event loop, of which the default of 16 KiB would need many. */
const pieceBytes = 1024 * 1024;

/** A kind of file. */
export interface PartFileKind {
  /** The first bytes: ASCII, with a line feed at the end. */
  readonly magic: string;
  /** A change that older readers cannot understand increases it. */
  readonly version: number;
  /** With its article, such as `a recording of Muster`. */
  readonly noun: string;
  /** The command that makes one. */
  readonly maker: string;
}

export interface ReadLimits {
  readonly partBytesMax: number;
  /** Bytes of all parts together, as `count` counts them, and the remedy. */
  readonly bytesMax: number;
  /** Memory that the reader needs for a part besides its bytes. */
  readonly overheadBytes: number;
  /** What to do when it is too large. */
  readonly remedy: string;
}

/** `locked`: not readable with the given keys. */
type PartFileFault = "foreign" | "future" | "truncated" | "damaged" | "too-large" | "locked";

/** Its message follows the file's name. */
export class PartFileError extends Error {
  override readonly name = "PartFileError";
  readonly fault: PartFileFault;
  constructor(fault: PartFileFault, message: string, options?: ErrorOptions) {
    super(message, options);
    this.fault = fault;
  }
}

export const mebibytes = (bytes: number): string => `${Math.round(bytes / 2 ** 20)} MiB`;

/** A part as it is in a file and in its digest: its length in four bytes, big end first, and its bytes. */
export function framed(part: Uint8Array): Buffer {
  return Buffer.concat([lengthOf(part), part]);
}

export function lengthOf(part: Uint8Array): Buffer {
  const length = Buffer.allocUnsafe(4);
  length.writeUInt32BE(part.length);
  return length;
}

/** The bytes of a file with these encoded parts. */
export async function* partFile(kind: PartFileKind, parts: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const magic = Buffer.from(kind.magic);
  const head = Buffer.alloc(magic.length + 4);
  magic.copy(head);
  head.writeUInt32BE(kind.version, magic.length);
  yield head;
  async function* frames(): AsyncGenerator<Buffer> {
    for await (const part of parts) yield framed(part);
  }
  // With the checksum, damage is found before the digest of the whole is.
  const compress = createZstdCompress({ params: { [constants.ZSTD_c_checksumFlag]: 1 } });
  const source = Readable.from(frames(), { objectMode: false });
  source.on("error", (error) => compress.destroy(error));
  try {
    yield* source.pipe(compress) as AsyncIterable<Buffer>;
  } finally {
    // A consumer that gives up ends the source as well.
    source.destroy();
  }
}

/** Encoded parts of a file, in order. Rejects with PartFileError, after the parts that can be read. */
export async function* partsOf(
  kind: PartFileKind,
  chunks: AsyncIterable<Uint8Array>,
  limits: ReadLimits,
): AsyncGenerator<Uint8Array> {
  const pieces = decompressed(kind, chunks);
  let waiting: Buffer = Buffer.alloc(0);
  let total = 0;
  const count = (bytes: number): void => {
    total += bytes;
    if (total <= limits.bytesMax) return;
    throw new PartFileError(
      "too-large",
      `its contents exceed the limit of ${mebibytes(limits.bytesMax)}: ${limits.remedy}`,
    );
  };
  for await (const piece of pieces) {
    count(piece.length);
    waiting = waiting.length === 0 ? piece : Buffer.concat([waiting, piece]);
    let at = 0;
    while (waiting.length - at >= 4) {
      const length = waiting.readUInt32BE(at);
      if (length > limits.partBytesMax)
        throw new PartFileError(
          "damaged",
          `a part of ${length} bytes exceeds the limit of ${mebibytes(limits.partBytesMax)}`,
        );
      if (waiting.length - at - 4 < length) break;
      count(limits.overheadBytes);
      yield waiting.subarray(at + 4, at + 4 + length);
      at += 4 + length;
    }
    waiting = waiting.subarray(at);
  }
  if (waiting.length > 0) throw new PartFileError("truncated", "it is truncated: it ends within a part");
}

async function* decompressed(kind: PartFileKind, chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Buffer> {
  const magic = Buffer.from(kind.magic);
  const headBytes = magic.length + 4;
  const iterator = chunks[Symbol.asyncIterator]();
  let head: Buffer = Buffer.alloc(0);
  while (head.length < headBytes) {
    const next = await iterator.next();
    if (next.done === true) break;
    head = Buffer.concat([head, next.value]);
  }
  if (!head.subarray(0, magic.length).equals(magic.subarray(0, head.length)) || head.length === 0)
    throw new PartFileError("foreign", `it is not ${kind.noun} ('${kind.maker}' makes one)`);
  if (head.length < headBytes) throw new PartFileError("truncated", "it is truncated: it ends within its first bytes");
  const version = head.readUInt32BE(magic.length);
  if (version !== kind.version)
    throw new PartFileError(
      "future",
      `its format has version ${version}, but this Muster reads version ${kind.version}: use a newer Muster`,
    );
  async function* rest(): AsyncGenerator<Uint8Array> {
    yield head.subarray(headBytes);
    for (let next = await iterator.next(); next.done !== true; next = await iterator.next()) yield next.value;
  }
  const source = Readable.from(rest(), { objectMode: false });
  const decompress = createZstdDecompress({ chunkSize: pieceBytes });
  // Errors of reading the file are not damage.
  let reading: unknown = null;
  source.on("error", (error) => {
    reading = error;
    decompress.destroy(error);
  });
  try {
    yield* source.pipe(decompress) as AsyncIterable<Buffer>;
  } catch (error) {
    if (reading !== null) throw error;
    const { code = "" } = error as NodeJS.ErrnoException;
    const isShort = code === "Z_BUF_ERROR" || /unexpected end/i.test(String(error));
    throw isShort
      ? new PartFileError("truncated", "it is truncated: its end is missing", { cause: error })
      : new PartFileError("damaged", `it is damaged: ${(error as Error).message}`, { cause: error });
  } finally {
    source.destroy();
    decompress.destroy();
  }
}
