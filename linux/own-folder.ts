/**
 * Folders that only this user may use, in places where others can create folders, too: in a temporary directory, anyone may
 * have created one of the same name, to read what is written there or to plant their own records.
 */
import { chmodSync, lstatSync, mkdirSync } from "node:fs";

/**
 * Creates the folder with permissions for its owner only, or uses the existing one. Throws Error if it is a link, not a
 * directory, or owned by another user.
 */
export function ownFolder(path: string): string {
  mkdirSync(path, { recursive: true, mode: 0o700 });
  const found = lstatSync(path);
  const uid = process.getuid?.() ?? 0;
  if (!found.isDirectory()) throw new Error(`${path} is not a directory: remove it`);
  if (found.uid !== uid)
    throw new Error(`${path} belongs to user ${found.uid}, not to ${uid}: remove it, or choose another`);
  if ((found.mode & 0o777) !== 0o700) chmodSync(path, 0o700);
  return path;
}
