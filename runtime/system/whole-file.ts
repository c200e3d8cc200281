/**
 * Files that are written whole or not at all. All of Muster's file replacements go through here.
 *
 *   write to a temporary file ─▶ check the size ─▶ sync ─▶ rename ─▶ sync the folder
 *
 * W1: after any crash, the file has its old or its new content.
 * W2: an error before the rename leaves the old content in place, and no temporary file: a full disk needs the space.
 * W3: when the call returns, the new content survives a power failure.
 */
import {
  closeSync,
  constants,
  fchmodSync,
  fstatSync,
  fsyncSync,
  ftruncateSync,
  openSync,
  renameSync,
  rmSync,
  writeSync,
} from "node:fs";
import { open, rename, rm } from "node:fs/promises";
import { dirname } from "node:path";

/** Readable by its owner only, since files of processes contain keys and tokens. */
const privateMode = 0o600;
const newFile = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;

interface ReplaceOptions {
  /** Permissions of the new file, regardless of the umask; default 0600. */
  readonly mode?: number;
  /** Path of the temporary file, in the same folder; default `<path>.next`. */
  readonly beside?: string;
}

type WriteCall = (file: number, data: Uint8Array, offset: number, length: number) => number;

/**
 * Writes all of `data` to the open file. A single call may write less than requested: a nearly full disk accepts what fits and
 * fails at the next call. Throws the call's errors, and an Error if it writes nothing.
 */
export function writeAllSync(file: number, data: Uint8Array, write: WriteCall = writeSync): void {
  for (let at = 0; at < data.length;) {
    const written = write(file, data, at, data.length - at);
    if (written === 0) throw new Error(`wrote only ${at} of ${data.length} bytes`);
    at += written;
  }
}

/**
 * Appends all of `data`, or nothing, to a file without other writers: a partial write is truncated. Throws as `writeAllSync`.
 */
export function appendAllSync(file: number, data: Uint8Array): void {
  let written = 0;
  try {
    writeAllSync(file, data, (to, from, offset, length) => {
      const some = writeSync(to, from, offset, length);
      written += some;
      return some;
    });
  } catch (error) {
    if (written > 0) ftruncateSync(file, fstatSync(file).size - written);
    throw error;
  }
}

/** W1 to W3. Throws the file system's error, with its `code`. */
export function replaceFileSync(path: string, content: string | Uint8Array, options: ReplaceOptions = {}): void {
  const { beside = `${path}.next`, mode = privateMode } = options;
  const data = bytesOf(content);
  // Left by an earlier run, with any mode and owner.
  rmSync(beside, { force: true });
  try {
    const file = openSync(beside, newFile, mode);
    try {
      writeAllSync(file, data);
      fchmodSync(file, mode);
      fsyncSync(file);
      checkSize(beside, fstatSync(file).size, data.length);
    } finally {
      closeSync(file);
    }
    renameSync(beside, path);
  } catch (error) {
    rmSync(beside, { force: true });
    throw error;
  }
  const folder = openSync(dirname(path), "r");
  try {
    fsyncSync(folder);
  } finally {
    closeSync(folder);
  }
}

/** Content that arrives piece by piece; when it rejects, the file keeps its old content, and the error is passed on. */
type StreamedContent = AsyncIterable<Uint8Array>;

/** Like `replaceFileSync`, without blocking the event loop. Returns the size of the file in bytes. */
export async function replaceFile(
  path: string,
  content: string | Uint8Array | StreamedContent,
  options: ReplaceOptions = {},
): Promise<number> {
  const size = await putInPlace(path, content, options);
  await syncFolder(dirname(path));
  return size;
}

/** `replaceFile` without W3, for callers that sync the folder once for many files. */
export async function putInPlace(
  path: string,
  content: string | Uint8Array | StreamedContent,
  options: ReplaceOptions = {},
): Promise<number> {
  const { beside = `${path}.next`, mode = privateMode } = options;
  await rm(beside, { force: true });
  try {
    let size = 0;
    const file = await open(beside, newFile, mode);
    try {
      const pieces = typeof content === "string" || content instanceof Uint8Array ? [bytesOf(content)] : content;
      for await (const piece of pieces) {
        // On a FileHandle, this continues until all is written.
        await file.writeFile(piece);
        size += piece.length;
      }
      await file.chmod(mode);
      await file.sync();
      checkSize(beside, (await file.stat()).size, size);
    } finally {
      await file.close();
    }
    await rename(beside, path);
    return size;
  } catch (error) {
    await rm(beside, { force: true });
    throw error;
  }
}

/** Makes changes of names in the folder durable. */
export async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, "r");
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

function bytesOf(content: string | Uint8Array): Uint8Array {
  return typeof content === "string" ? new TextEncoder().encode(content) : content;
}

function checkSize(path: string, found: number, wanted: number): void {
  if (found !== wanted) throw new Error(`${path} has ${found} bytes after ${wanted} were written`);
}
