/** Files that a command writes for an operator: all or nothing, with one sentence when it is nothing. */
import { statfsSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { UserError } from "../lib/user-error.ts";
import { replaceFile } from "../runtime/system/whole-file.ts";

/** Returns the size in bytes. Rejects with UserError for errors of the file system, and as the content does. */
export async function writeWhole(
  path: string,
  content: Uint8Array | AsyncIterable<Uint8Array>,
  noun: string,
): Promise<number> {
  try {
    return await replaceFile(path, content);
  } catch (error) {
    const { code = "", message, syscall } = error as NodeJS.ErrnoException;
    if (syscall === undefined) throw error;
    throw new UserError(`cannot write ${path}: ${code === "ENOSPC" ? fullDisk(path, noun, content) : message}`, {
      cause: error,
    });
  }
}

function fullDisk(path: string, noun: string, content: Uint8Array | AsyncIterable<Uint8Array>): string {
  const { bavail, bsize } = statfsSync(dirname(resolve(path)));
  const mib = (bytes: number): string => (bytes / 2 ** 20).toFixed(1);
  const needed = content instanceof Uint8Array ? `the ${noun} has ${mib(content.length)} MiB, ` : "";
  return `the disk is full: ${needed}${mib(bavail * bsize)} MiB are free; choose another file with -o`;
}
