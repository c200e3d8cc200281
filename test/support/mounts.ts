import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";

/** Mounts that a killed engine leaves in its folder (root file systems, namespaces), innermost first. */
export function unmountBelow(dir: string): void {
  const mounts = readFileSync("/proc/self/mounts", "utf8")
    .split("\n")
    .map((line) => line.split(" ")[1] ?? "")
    .filter((path) => path.startsWith(`${dir}/`));
  for (const path of mounts.reverse()) {
    try {
      execFileSync("umount", ["--lazy", path], { stdio: "ignore" });
    } catch {
      // Unmounted with the one below it.
    }
  }
}
