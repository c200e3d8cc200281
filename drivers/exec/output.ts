/**
 * The files that a task's output goes to. The kernel writes them directly; this process only looks at their sizes now
 * and then, and at their ends when a task has failed.
 *
 * O1: a file that has grown beyond the limit is copied to `<name>.1` and emptied. Every writer appends, so it goes on at
 *     the new beginning. What is written between the copy and the emptying is lost; between two looks a file may grow
 *     beyond the limit.
 * O2: beside each file, `<name>.marks` says how large it was when: a line `<ms since the epoch> <bytes>` at the beginning
 *     and for each look that found it grown, with when it last had. Rotation keeps the marks with what they are of, so the file that they stand
 *     in also tells one rotation from the next.
 */
import { appendFile, constants, copyFile, open, rename, stat, truncate } from "node:fs/promises";
import { join } from "node:path";

export const outputNames = ["stdout", "stderr"] as const;

/** Docker's json-file driver has no limit by default; a node that fills its disk is worse than a log that is cut. */
export const outputBytesMax = 10 * 1024 * 1024;
/** Between two looks at the sizes. */
export const outputLookMs = 5_000;
/** What a failed task's status carries. */
const lastOutputBytes = 512;
const lastOutputLines = 5;

/** Sizes as of the last mark, by name. */
export type Marked = Record<(typeof outputNames)[number], number>;

/** The first marks of a task that starts now. O2 */
export async function beginMarks(directory: string, nowMs: number): Promise<void> {
  for (const name of outputNames) await appendFile(join(directory, `${name}.marks`), `${nowMs} 0\n`, { mode: 0o600 });
}

/** O1, O2 */
export async function rotate(
  directory: string,
  { bytesMax, marked, nowMs }: { readonly bytesMax: number; readonly marked: Marked; readonly nowMs: number },
): Promise<void> {
  for (const name of outputNames) {
    const path = join(directory, name);
    const { mtimeMs, size } = await stat(path);
    if (size !== marked[name])
      await appendFile(`${path}.marks`, `${Math.min(mtimeMs, nowMs)} ${size}\n`, { mode: 0o600 });
    marked[name] = size;
    if (size <= bytesMax) continue;
    await copyFile(path, `${path}.1`, constants.COPYFILE_FICLONE);
    await truncate(path);
    // Last: a reader that finds new marks finds the rest of what it was reading behind the old ones.
    await rename(`${path}.marks`, `${path}.1.marks`);
    await appendFile(`${path}.marks`, `${nowMs} 0\n`, { mode: 0o600 });
    marked[name] = 0;
  }
}

/** The last lines on standard error, or else on standard output; empty when there are none. */
export async function lastOutput(directory: string): Promise<string> {
  for (const name of ["stderr", "stdout"]) {
    const lines = (await tail(join(directory, name))).split("\n").filter((line) => line.trim() !== "");
    if (lines.length > 0) return lines.slice(-lastOutputLines).join("\n");
  }
  return "";
}

async function tail(path: string): Promise<string> {
  try {
    const file = await open(path, "r");
    try {
      const { size } = await file.stat();
      const start = Math.max(0, size - lastOutputBytes);
      const { buffer, bytesRead } = await file.read(Buffer.alloc(lastOutputBytes), 0, lastOutputBytes, start);
      // Control characters would reach somebody's terminal.
      // oxlint-disable-next-line no-control-regex
      return buffer.toString("utf8", 0, bytesRead).replaceAll(/[\u0000-\u0009\u000b-\u001f\u007f]/g, " ");
    } finally {
      await file.close();
    }
  } catch {
    return ""; // the files are gone, or were never made
  }
}
