/**
 * The files that keep a task's output (written by the collector's process), and their last lines, which a failed task's status
 * contains.
 *
 * O1: a file that has grown beyond the limit is copied to `<name>.1` and emptied.
 * O2: beside each file, `<name>.marks` records its size over time: a line `<ms since the epoch> <bytes>` at the start and at
 *     intervals. Rotation keeps marks with their file, so the inode of the marks also distinguishes one rotation from the next.
 */
import { open } from "node:fs/promises";
import { join } from "node:path";

/** Docker's json-file driver has no limit by default; a full disk on a node is worse than a truncated log. */
export const outputBytesMax = 10 * 1024 * 1024;
/** Maximum size in a failed task's status. */
const lastOutputBytes = 512;
const lastOutputLines = 5;

/** The last lines of standard error, or else of standard output; empty if there are none. */
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
    return ""; // the files were removed, or never created
  }
}
