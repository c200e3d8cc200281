/**
 * Invariants of the level of the log's format.
 *
 * S140: at every version, each manager in the state knows the level of the log's format, and the level never decreases.
 * S141: at rest the level is the highest that this version knows, since every manager was upgraded.
 */
import { formatId, knownLevel, levelOf, managersBelow } from "../../proto/format-level.ts";
import type { Commit, Store } from "../../runtime/store/store.ts";

/** S140. `mark`: counts a raised level. */
export function checkFormat(commit: Commit, store: Store, mark: (name: string) => void): string | null {
  for (const change of commit.changes) {
    if (change.table !== "format") continue;
    const [level, before] = [levelOf(change.object), levelOf(change.old ?? undefined)];
    if (change.action === "remove" || level <= before)
      return `S140: version ${commit.version} changes the format's level from ${before} to ${level}`;
    // A new cluster begins with the highest level.
    if (commit.changes.every(({ table }) => table !== "cluster")) mark("format.raised");
  }
  if (!commit.changes.some(({ table }) => table === "format" || table === "manager")) return null;
  const level = levelOf(store.get("format", formatId));
  const [first] = managersBelow(store.all("manager"), level);
  return first === undefined
    ? null
    : `S140: the format has level ${level} at version ${commit.version}, which manager ${first.id} does not know`;
}

/** S141 */
export function findLowLevel(store: Store): string | null {
  const level = levelOf(store.get("format", formatId));
  return level === knownLevel ? null : `S141: the format has level ${level} of ${knownLevel}`;
}
