/**
 * The files that a task's output is kept in (the collector's process writes them), and their ends, which a failed task
 * tells.
 *
 * O1: a file that has grown beyond the limit is copied to `<name>.1` and emptied.
 * O2: beside each file, `<name>.marks` says how large it was when: a line `<ms since the epoch> <bytes>` at the beginning and
 *     now and then. Rotation keeps the marks with what they are of, so the file that they stand in also tells one rotation
 *     from the next.
 */
import { open } from "node:fs/promises";
import { join } from "node:path";

/** Docker's json-file driver has no limit by default; a node that fills its disk is worse than a log that is cut. */
export const outputBytesMax = 10 * 1024 * 1024;
/** What a failed task's status carries. */
const lastOutputBytes = 512;
const lastOutputLines = 5;

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
