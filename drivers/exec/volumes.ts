/** Where a process finds its volumes: in its directory. */
import { normalize } from "node:path";

/** Null for a target outside the directory. */
export function relativeTarget(target: string): string | null {
  const path = normalize(target.replace(/^\/+/, "")).replace(/\/+$/, "");
  return path === "" || path === "." || path === ".." || path.startsWith("../") ? null : path;
}
