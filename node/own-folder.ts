/**
 * Folders that only this user may use, in places where others can make folders, too: below a temporary directory anybody may
 * have made one of that name before, to read what is written there or to hand over a record of their own.
 */
import { chmodSync, lstatSync, mkdirSync } from "node:fs";

/**
 * Makes the folder with permissions for its owner alone, or takes the one that is there. Throws Error when it is a link, no
 * folder, or of another user.
 */
export function ownFolder(path: string): string {
  mkdirSync(path, { recursive: true, mode: 0o700 });
  const found = lstatSync(path);
  const uid = process.getuid?.() ?? 0;
  if (!found.isDirectory()) throw new Error(`${path} is not a directory: remove it`);
  if (found.uid !== uid)
    throw new Error(`${path} belongs to user ${found.uid}, not to ${uid}: remove it, or name another`);
  if ((found.mode & 0o777) !== 0o700) chmodSync(path, 0o700);
  return path;
}
