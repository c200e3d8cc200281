import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, readdirSync, realpathSync } from "node:fs";
import { join } from "node:path";
import type { ExecutionContext } from "ava";

const folder = "/run/netns";

/**
 * The part of an agent's data dir that the names of its interfaces, tables and namespaces contain (linux/task-network/tools.ts).
 */
export function tagOf(dataDir: string): string {
  return createHash("sha256").update(realpathSync(dataDir)).digest("hex").slice(0, 8);
}

export function taskNamespaces(dataDir: string): readonly string[] {
  return readdirSync(folder).filter((name) => name.startsWith(`mst-${tagOf(dataDir)}-`));
}

/** Removes what a failed test left of its agent. The agent may be removing the same. */
export function removeTaskNamespaces(t: Pick<ExecutionContext, "teardown">, dataDir: string): void {
  t.teardown(() => {
    for (const name of taskNamespaces(dataDir)) {
      try {
        execFileSync("ip", ["netns", "del", name], { stdio: "ignore" });
      } catch (error) {
        if (existsSync(join(folder, name))) throw error;
      }
    }
  });
}
