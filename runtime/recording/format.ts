/** A recording as a file: a part file (`runtime/part-file.ts`) of RecordingPart messages, of which the last has `end`. */
import { partFile, partsOf, type PartFileKind } from "../part-file.ts";

/** A change that older readers cannot understand increases it. */
export const formatVersion = 1;
const kind: PartFileKind = {
  magic: "MUSTREC\n",
  version: formatVersion,
  noun: "a recording of Muster",
  maker: "muster record",
};

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

export interface RecordingLimits {
  readonly partBytesMax: number;
  readonly recordingBytesMax: number;
}

/** The bytes of a recording with these encoded parts, which must be in order and end with `end`. */
export function recordingFile(parts: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  return partFile(kind, parts);
}

/** Encoded parts of a file, in order. Rejects with PartFileError, after the parts that can be read. */
export function partsOfFile(
  chunks: AsyncIterable<Uint8Array>,
  limits: RecordingLimits = { partBytesMax, recordingBytesMax },
): AsyncGenerator<Uint8Array> {
  return partsOf(kind, chunks, {
    partBytesMax: limits.partBytesMax,
    bytesMax: limits.recordingBytesMax,
    overheadBytes: partOverheadBytes,
    remedy: "record a shorter time, or fewer processes",
  });
}
