/** Where a process finds its volumes: a place in a directory of its own. */
import { normalize } from "node:path";

/** Null for a target that leads out of the directory. */
export function relativeTarget(target: string): string | null {
  const path = normalize(target.replace(/^\/+/, "")).replace(/\/+$/, "");
  return path === "" || path === "." || path === ".." || path.startsWith("../") ? null : path;
}
