/**
 * Files that are written whole or not at all. Everything that replaces a file of its own does so here.
 *
 *   write beside it ─▶ check the size ─▶ sync ─▶ rename ─▶ sync the folder
 *
 * W1: at every moment, whatever crashes, the file has its old content or its new one.
 * W2: an error before the rename leaves the old content in place, and no unfinished copy: a full disk needs the space.
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

/** Readable by its owner only: what processes keep holds keys and tokens. */
const privateMode = 0o600;
const newFile = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;

export interface ReplaceOptions {
  /** Permissions of the new file, whatever the umask; 0600 when absent. */
  readonly mode?: number;
  /** Where the new content is written first, in the same folder; `<path>.next` when absent. */
  readonly beside?: string;
}

export type WriteCall = (file: number, data: Uint8Array, offset: number, length: number) => number;

/**
 * Writes all of `data` to the open file. One call may take less than it is given: a nearly full disk takes what fits and
 * fails at the next call. Throws what the call throws, and an Error when it takes nothing.
 */
export function writeAllSync(file: number, data: Uint8Array, write: WriteCall = writeSync): void {
  for (let at = 0; at < data.length;) {
    const taken = write(file, data, at, data.length - at);
    if (taken === 0) throw new Error(`the file took ${at} of ${data.length} bytes`);
    at += taken;
  }
}

/** Appends all of `data` to a file that nobody else writes to, or nothing: what fitted is cut off again. Throws as `writeAllSync`. */
export function appendAllSync(file: number, data: Uint8Array): void {
  let taken = 0;
  try {
    writeAllSync(file, data, (to, from, offset, length) => {
      const some = writeSync(to, from, offset, length);
      taken += some;
      return some;
    });
  } catch (error) {
    if (taken > 0) ftruncateSync(file, fstatSync(file).size - taken);
    throw error;
  }
}

/** W1 to W3. Throws the error of the file system, whose `code` names it. */
export function replaceFileSync(path: string, content: string | Uint8Array, options: ReplaceOptions = {}): void {
  const { beside = `${path}.next`, mode = privateMode } = options;
  const data = bytesOf(content);
  // What an earlier life left unfinished, with whatever mode and owner.
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

/** As `replaceFileSync`, off the event loop. */
export async function replaceFile(
  path: string,
  content: string | Uint8Array,
  options: ReplaceOptions = {},
): Promise<void> {
  await putInPlace(path, content, options);
  await syncFolder(dirname(path));
}

/** `replaceFile` without W3, for one who syncs the folder once for many files. */
export async function putInPlace(
  path: string,
  content: string | Uint8Array,
  options: ReplaceOptions = {},
): Promise<void> {
  const { beside = `${path}.next`, mode = privateMode } = options;
  const data = bytesOf(content);
  await rm(beside, { force: true });
  try {
    const file = await open(beside, newFile, mode);
    try {
      // Of a FileHandle this writes on until all is written.
      await file.writeFile(data);
      await file.chmod(mode);
      await file.sync();
      checkSize(beside, (await file.stat()).size, data.length);
    } finally {
      await file.close();
    }
    await rename(beside, path);
  } catch (error) {
    await rm(beside, { force: true });
    throw error;
  }
}

/** Makes names in the folder survive a power failure. */
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
