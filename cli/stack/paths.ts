/** Paths in a Compose file. */
import { homedir } from "node:os";
import { isAbsolute, join, resolve } from "node:path";

/** Resolves `~/x`, and paths relative to the project's folder. */
export function absolutePath(path: string, folder: string): string {
  if (path === "~" || path.startsWith("~/")) return join(homedir(), path.slice(1));
  // A Windows path belongs to a node.
  return isAbsolute(path) || /^[A-Za-z]:[\\/]/.test(path) || path.startsWith("\\\\") ? path : resolve(folder, path);
}
