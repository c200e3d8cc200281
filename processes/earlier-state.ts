/** State of an earlier cluster in a data dir. It is never deleted: `--fresh` renames the folder. */
import { existsSync, readdirSync, renameSync, statSync } from "node:fs";
import { join } from "node:path";
import { UserError } from "../lib/user-error.ts";
import { openDataDir } from "./data-dir.ts";

/** Subfolders that `muster up` and `muster start` create in their data dir. */
const parts: readonly string[] = ["manager", "agent"];

/** Time of the last write to a cluster's files, including its log, in milliseconds since the epoch; null if there are none. */
export function lastWriteMs(dataDir: string): number | null {
  const manager = join(dataDir, "manager");
  if (!existsSync(manager)) return null;
  const files = [dataDir, manager].flatMap((folder) => readdirSync(folder).map((name) => join(folder, name)));
  return Math.max(...files.map((file) => statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0));
}

/**
 * Renames the folder within its parent and returns the new path, or null without an earlier cluster. Throws UserError when a
 * live process owns it, or it cannot be renamed.
 */
export function putAside(dataDir: string, now: number): string | null {
  if (lastWriteMs(dataDir) === null) return null;
  // Fails if a live process owns it.
  for (const part of parts.filter((name) => existsSync(join(dataDir, name))))
    openDataDir(join(dataDir, part)).release();
  const time = new Date(now).toISOString().replaceAll(/[-:]|\.\d+/g, "");
  const aside = `${dataDir.replace(/\/+$/, "")}.before-${time}`;
  try {
    renameSync(dataDir, aside);
  } catch (error) {
    throw new UserError(
      `cannot move the data dir ${dataDir} aside (${(error as Error).message}): choose another with --data-dir`,
      { cause: error },
    );
  }
  return aside;
}
