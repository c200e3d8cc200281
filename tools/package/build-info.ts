/** The commit that a package is built from, for `muster version`. */
import { execFileSync } from "node:child_process";
import type { BuildInfo } from "../../lib/version.ts";
import { top } from "./bundle.ts";

function git(...args: readonly string[]): string {
  return execFileSync("git", ["-C", top, ...args], { encoding: "utf8" }).trim();
}

export function buildInfo(): BuildInfo {
  const changes = git("status", "--porcelain", "--untracked-files=no") === "" ? "" : " with changes";
  return { commit: git("rev-parse", "HEAD") + changes, date: git("show", "--no-patch", "--format=%cI", "HEAD") };
}
