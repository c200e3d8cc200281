/** The commit that a package is built from, for `muster version`. */
import { spawnSync } from "node:child_process";
import type { BuildInfo } from "../../lib/version.ts";
import { top } from "./bundle.ts";

/** Null without git, or outside of a repository: a checkout may have come as an archive. */
function git(...args: readonly string[]): string | null {
  const { status, stdout } = spawnSync("git", ["-C", top, ...args], {
    encoding: "utf8",
    stdio: ["ignore", "pipe", "ignore"],
  });
  return status === 0 ? stdout.trim() : null;
}

/** Null if it is not known. */
export function buildInfo(): BuildInfo | null {
  const [commit, date] = [git("rev-parse", "HEAD"), git("show", "--no-patch", "--format=%cI", "HEAD")];
  if (commit === null || date === null) return null;
  return { commit, date, changes: git("status", "--porcelain", "--untracked-files=no") !== "" };
}
