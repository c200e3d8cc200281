/**
 * A recording as a file:
 *
 *   "MUSTREC\n"  version (4 bytes)  zstd( length (4 bytes)  RecordingPart  …  length  RecordingPart with `end` )
 *
 * Numbers have their big end first. The version is outside of the compressed part, so that a later one may compress differently.
 */
import { constants, createZstdCompress, createZstdDecompress } from "node:zlib";
import { Readable } from "node:stream";
import { framed } from "./seal.ts";

const magic = Buffer.from("MUSTREC\n");
/** A change that older readers cannot understand increases it. */
export const formatVersion = 1;
const headBytes = magic.length + 4;

/** Bytes of a part: the largest is a piece of the cluster's objects, of which the writer makes pieces of 1 MiB. */
export const partBytesMax = 16 * 1024 * 1024;
/**
 * Bytes of all parts together, with `partOverheadBytes` for each: an hour with 1,000,000 steps has a third of it. The reader keeps all of them in memory while it
 * opens a recording.
 */
export const recordingBytesMax = 1024 * 1024 * 1024;

/** Memory that the reader needs for a part besides its bytes, which count towards `recordingBytesMax`: its objects and table entries. */
export const partOverheadBytes = 256;

/**
 * Bytes of the range of the log: the state that it begins with and the records after it, with `objectOverheadBytes` for each object,
 * record and change. 100,000 records with three changes each have a fourth of it. The range ends there.
 */
export const rangeBytesMax = 512 * 1024 * 1024;
/** Memory that the reader needs for an object or a change besides its bytes. */
export const objectOverheadBytes = 256;
/** Bytes of a piece of the state that the range begins with. */
export const basePieceBytes = 1024 * 1024;

/** Decompressed at once: each piece is a turn of the event loop, of which the default of 16 KiB would need many. */
const pieceBytes = 1024 * 1024;

export interface ReadLimits {
  readonly partBytesMax: number;
  readonly recordingBytesMax: number;
}

type RecordingFault = "foreign" | "future" | "truncated" | "damaged" | "too-large";

/** Its message follows the file's name. */
export class RecordingError extends Error {
  override readonly name = "RecordingError";
  readonly fault: RecordingFault;
  constructor(fault: RecordingFault, message: string, options?: ErrorOptions) {
    super(message, options);
    this.fault = fault;
  }
}

export const mebibytes = (bytes: number): string => `${Math.round(bytes / 2 ** 20)} MiB`;

/** The bytes of a recording with these encoded parts, which must be in order and end with `end`. */
export async function* recordingFile(parts: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const head = Buffer.alloc(headBytes);
  magic.copy(head);
  head.writeUInt32BE(formatVersion, magic.length);
  yield head;
  async function* frames(): AsyncGenerator<Buffer> {
    for await (const part of parts) yield framed(part);
  }
  // With the checksum, damage is found before the digest of the whole is.
  const compress = createZstdCompress({ params: { [constants.ZSTD_c_checksumFlag]: 1 } });
  const source = Readable.from(frames(), { objectMode: false });
  source.on("error", (error) => compress.destroy(error));
  yield* source.pipe(compress) as AsyncIterable<Buffer>;
}

/** Encoded parts of a file, in order. Rejects with RecordingError, after the parts that can be read. */
export async function* partsOfFile(
  chunks: AsyncIterable<Uint8Array>,
  limits: ReadLimits = { partBytesMax, recordingBytesMax },
): AsyncGenerator<Uint8Array> {
  const pieces = decompressed(chunks);
  let waiting: Buffer = Buffer.alloc(0);
  let total = 0;
  const count = (bytes: number): void => {
    total += bytes;
    if (total <= limits.recordingBytesMax) return;
    throw new RecordingError(
      "too-large",
      `its contents exceed the limit of ${mebibytes(limits.recordingBytesMax)}: record a shorter time, or fewer processes`,
    );
  };
  for await (const piece of pieces) {
    count(piece.length);
    waiting = waiting.length === 0 ? piece : Buffer.concat([waiting, piece]);
    let at = 0;
    while (waiting.length - at >= 4) {
      const length = waiting.readUInt32BE(at);
      if (length > limits.partBytesMax)
        throw new RecordingError(
          "damaged",
          `a part of ${length} bytes exceeds the limit of ${mebibytes(limits.partBytesMax)}`,
        );
      if (waiting.length - at - 4 < length) break;
      count(partOverheadBytes);
      yield waiting.subarray(at + 4, at + 4 + length);
      at += 4 + length;
    }
    waiting = waiting.subarray(at);
  }
  if (waiting.length > 0) throw new RecordingError("truncated", "it is truncated: it ends within a part");
}

async function* decompressed(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Buffer> {
  const iterator = chunks[Symbol.asyncIterator]();
  let head: Buffer = Buffer.alloc(0);
  while (head.length < headBytes) {
    const next = await iterator.next();
    if (next.done === true) break;
    head = Buffer.concat([head, next.value]);
  }
  if (!head.subarray(0, magic.length).equals(magic.subarray(0, head.length)) || head.length === 0)
    throw new RecordingError("foreign", "it is not a recording of Muster ('muster record' makes one)");
  if (head.length < headBytes) throw new RecordingError("truncated", "it is truncated: it ends within its first bytes");
  const version = head.readUInt32BE(magic.length);
  if (version !== formatVersion)
    throw new RecordingError(
      "future",
      `its format has version ${version}, but this Muster reads version ${formatVersion}: use a newer Muster`,
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
      ? new RecordingError("truncated", "it is truncated: its end is missing", { cause: error })
      : new RecordingError("damaged", `it is damaged: ${(error as Error).message}`, { cause: error });
  } finally {
    source.destroy();
    decompress.destroy();
  }
}
