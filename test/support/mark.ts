/** A manager's mark, in memory: of one whose replica was this one, or of one that has seen nothing. */
import { LogMark } from "../../proto/gen/messages.ts";
import type { LogMarkDisk } from "../../runtime/store/log-mark.ts";
import type { Replica } from "../../runtime/store/replica.ts";

export interface MemoryMark extends LogMarkDisk {
  /** The content on disk; null for none. */
  stored(): LogMark | null;
  /** How often it was written. */
  writes(): number;
}

/** `write`: awaited by each write, which fails if it rejects. */
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
