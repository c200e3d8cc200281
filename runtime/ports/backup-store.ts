/** Where a manager keeps the backups that it takes by itself. */
import type { BackupPart } from "../../proto/gen/messages.ts";

export interface KeptBackup {
  readonly name: string;
  /** When it was taken, in milliseconds since the epoch. */
  readonly atMs: number;
}

export interface BackupStore {
  /** Backups of that cluster, newest first. Rejects with the disk's errors. */
  list(clusterId: string): Promise<readonly KeptBackup[]>;
  /**
   * Encrypts and writes the parts; complete and on disk, or not there at all. Returns the size in bytes. Rejects with the disk's
   * errors, and as `parts` does.
   */
  write(clusterId: string, atMs: number, parts: AsyncIterable<BackupPart>): Promise<number>;
  remove(name: string): Promise<void>;
}
