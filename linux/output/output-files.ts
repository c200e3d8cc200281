/** Opens the destinations of a task's output: FIFOs that a host reads, or plain files. */
import { closeSync, constants, lstatSync, openSync } from "node:fs";

const { O_APPEND, O_NOFOLLOW, O_NONBLOCK, O_RDWR, O_WRONLY } = constants;

interface OutputFile {
  /** For the task. */
  readonly write: number;
  /** Read end of a FIFO, so that it always has a reader; null for other files. */
  readonly keep: number | null;
}

/**
 * Throws if the path does not exist. Symbolic links are rejected, because tasks can write to these folders and we may be root.
 * A FIFO is also opened for reading, before it is opened for writing, so that opening does not block without a reader.
 */
export function openOutput(path: string): OutputFile | null {
  if (path === "") return null;
  const keep = lstatSync(path).isFIFO() ? openSync(path, O_RDWR | O_NONBLOCK | O_NOFOLLOW) : null;
  try {
    return { write: openSync(path, O_WRONLY | O_APPEND | O_NONBLOCK | O_NOFOLLOW), keep };
  } catch (error) {
    if (keep !== null) closeSync(keep);
    throw error;
  }
}

export function closeOutput(file: OutputFile | null): void {
  if (file === null) return;
  closeSync(file.write);
  if (file.keep !== null) closeSync(file.keep);
}
