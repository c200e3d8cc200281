/** Where a task's output goes: FIFOs that a host reads, or plain files. */
import { closeSync, constants, lstatSync, openSync } from "node:fs";

const { O_APPEND, O_NOFOLLOW, O_NONBLOCK, O_RDWR, O_WRONLY } = constants;

export interface OutputFile {
  /** For the task. */
  readonly write: number;
  /** Keeps a FIFO from ever being without a reader; null for what is none. */
  readonly keep: number | null;
}

/**
 * Throws where there is nothing. Symbolic links are refused, since tasks can write where these lie and we may be root. A FIFO
 * is opened for reading as well before it is for writing, so that nobody waits for its reader.
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
