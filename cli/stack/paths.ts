/** Paths as a Compose file names them. */
import { homedir } from "node:os";
import { isAbsolute, join, resolve } from "node:path";

/** `~/x` and what is relative to the project's folder. */
export function absolutePath(path: string, folder: string): string {
  if (path === "~" || path.startsWith("~/")) return join(homedir(), path.slice(1));
  // A Windows path is a node's, not ours.
  return isAbsolute(path) || /^[A-Za-z]:[\\/]/.test(path) || path.startsWith("\\\\") ? path : resolve(folder, path);
}
