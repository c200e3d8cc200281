/** The state of a cluster that ran in a data dir before. It is never deleted: `--fresh` renames the folder. */
import { existsSync, readdirSync, renameSync, statSync } from "node:fs";
import { join } from "node:path";
import { UserError } from "../user-error.ts";
import { openDataDir } from "./data-dir.ts";

/** What `muster up` and `muster start` keep in their data dir. */
const parts: readonly string[] = ["manager", "agent"];

/** When a cluster last wrote to its files, its log among them, in milliseconds since the epoch; null where none ever did. */
export function lastWriteMs(dataDir: string): number | null {
  const manager = join(dataDir, "manager");
  if (!existsSync(manager)) return null;
  const files = [dataDir, manager].flatMap((folder) => readdirSync(folder).map((name) => join(folder, name)));
  return Math.max(...files.map((file) => statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0));
}

/**
 * Renames the folder, beside where it was; returns its new path, or null where there was no earlier cluster. Throws UserError
 * where a live process owns it, or it cannot be renamed.
 */
export function putAside(dataDir: string, now: number): string | null {
  if (lastWriteMs(dataDir) === null) return null;
  // Refuses what a live process owns.
  for (const part of parts.filter((name) => existsSync(join(dataDir, name))))
    openDataDir(join(dataDir, part)).release();
  const time = new Date(now).toISOString().replaceAll(/[-:]|\.\d+/g, "");
  const aside = `${dataDir.replace(/\/+$/, "")}.before-${time}`;
  try {
    renameSync(dataDir, aside);
  } catch (error) {
    throw new UserError(
      `cannot put aside the data dir ${dataDir} (${(error as Error).message}): choose another with --data-dir`,
      { cause: error },
    );
  }
  return aside;
}
