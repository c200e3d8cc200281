/** Which actors are in a state for longer than its own delay allows. */
import type { Actor, Actors } from "./actors.ts";

/**
 * Milliseconds that a timer may be late: the feed comes in batches, and a busy process runs its timers late. Above both by
 * far, and short for a reader.
 */
export const overdueGraceMs = 2_000;

/** Milliseconds by which the actor's latest timer is overdue; 0: none is. `nowMs`: the clock of its process. */
export function overdueMs(actor: Pick<Actor, "timers">, nowMs: number): number {
  let overdue = 0;
  for (const { dueAtMs } of actor.timers) overdue = Math.max(overdue, nowMs - dueAtMs);
  return overdue > overdueGraceMs ? overdue : 0;
}

/** The longest overdue first. `nowMs`: the listener's clock. */
export function stuckActors(actors: Actors, nowMs: number): readonly Actor[] {
  const found: { readonly actor: Actor; readonly overdue: number }[] = [];
  for (const process of actors.processes.values()) {
    // Only the past of such a process is known.
    if (process.stale) continue;
    for (const actor of process.actors.values()) {
      const overdue = overdueMs(actor, nowMs + process.skewMs);
      if (overdue > 0) found.push({ actor, overdue });
    }
  }
  return found.toSorted((a, b) => b.overdue - a.overdue).map(({ actor }) => actor);
}
