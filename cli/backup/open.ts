/** Opens the file of a backup for a command, and describes it. */
import { createReadStream, statSync } from "node:fs";
import { UserError } from "../../lib/user-error.ts";
import { timeMs } from "../../proto/time.ts";
import type { OpenedBackup } from "../../runtime/backup/format.ts";
import { isoTime } from "../../runtime/recording/iso-time.ts";
import { PartFileError } from "../../runtime/part-file.ts";
import { printable } from "../text-width.ts";

/** Reads the file from its beginning at each call. Throws UserError. */
export function fileReader(path: string): () => AsyncIterable<Uint8Array> {
  try {
    if (!statSync(path).isFile()) throw new UserError(`cannot open ${path}: it is not a file`);
  } catch (error) {
    if (error instanceof UserError) throw error;
    throw cannotOpen(path, error);
  }
  return () => createReadStream(path, { highWaterMark: 1024 * 1024 });
}

/** The error with a sentence for the operator, if it is one of the file; else the error itself. */
export function cannotOpen(path: string, error: unknown): unknown {
  const { code, message, syscall } = error as NodeJS.ErrnoException;
  if (!(error instanceof PartFileError) && syscall === undefined) return error;
  return new UserError(`cannot open ${path}: ${code === "ENOENT" ? "no such file" : message}`, { cause: error });
}

const counted = (count: number, noun: string): string =>
  `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

export function describeBackup({ head, missing, records, replica, seal }: OpenedBackup): readonly string[] {
  const { clusterId, first, last, managerId, version } = head;
  return [
    `cluster ${clusterId} at version ${last}, ${isoTime(timeMs(head.madeAt))}`,
    seal.kind === "signed"
      ? `signed by manager ${seal.managerId} (root sha256:${seal.rootDigest})`
      : `not signed: manager ${managerId} had no certificate`,
    (["service", "task", "node", "network", "secret", "config", "volume"] as const)
      .map((table) => counted(replica.count(table), table))
      .join(", "),
    records === 0 ? "without history" : `with history since version ${first}: ${counted(records, "record")}`,
    ...missing.map((each) => `missing: ${each}`),
    `made by Muster ${version}`,
  ].map(printable);
}
