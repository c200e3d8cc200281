/** The mark of a manager, in memory: as that of one whose replica was this one, or of one that has seen nothing. */
import { LogMark } from "../../proto/gen/messages.ts";
import type { LogMarkDisk } from "../../runtime/store/log-mark.ts";
import type { Replica } from "../../runtime/store/replica.ts";

export interface MemoryMark extends LogMarkDisk {
  /** What is on the disk; null for nothing. */
  stored(): LogMark | null;
  /** How often it was written. */
  writes(): number;
}

/** `write`: what a write waits for, or fails with. */
export function memoryMark(replica: Replica | null, write: () => Promise<void> = () => Promise.resolve()): MemoryMark {
  let bytes: Uint8Array | null = null;
  let writes = 0;
  if (replica !== null) {
    const { checksum, recordSequence: sequence, time, writer } = replica;
    bytes = LogMark.encode(LogMark.create({ sequence, checksum, time, writer }));
  }
  return {
    read: () => bytes,
    write: async (data) => {
      writes += 1;
      await write();
      bytes = data;
    },
    stored: () => (bytes === null ? null : LogMark.decode(bytes)),
    writes: () => writes,
  };
}
