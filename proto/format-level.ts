/**
 * Levels of the log's format: what records and snapshots may contain (docs/adr/0058-versions-of-formats.md). Each manager reports
 * in its record the highest level that it knows; the leader raises the log's level once every manager knows a higher one.
 *
 * 1: everything up to 0.1.0, which has no levels.
 * 2: the level itself, as an object; versions without levels stop there.
 */
import type { Format, Manager } from "./gen/messages.ts";

/** The highest level that this version knows. Raise it by one with a kind of record or a field that must not be lost. */
export const knownLevel = 2;

/** Id of the only object in the `format` table. */
export const formatId = "log";

export function levelOf(format: Pick<Format, "level"> | undefined): number {
  return Math.max(1, format?.level ?? 1);
}

/** The managers that do not know the level: dead ones too, since they may be started again. */
export function managersBelow(managers: Iterable<Manager>, level: number): readonly Manager[] {
  return [...managers].filter((manager) => Math.max(1, manager.level) < level);
}
