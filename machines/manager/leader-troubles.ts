/** Warnings of what a lease needs: a link that is quick enough for it, and a leader that stays. */
import { roundTripShareMax, roundTripShareWarned } from "../ledger/lease.ts";

/** What a lease should last at least on a link with that round trip, in whole seconds: four of them, a third to spare. */
function secondsFor(roundTripMs: number): number {
  return Math.ceil((roundTripMs * 4) / 1_000);
}

/** `roundTripMs`: how long a write of the lease took. Null where the link is quick enough. */
export function slowLink(
  roundTripMs: number,
  ttlMs: number,
): { readonly sentence: string; readonly blocking: boolean } | null {
  if (roundTripMs <= ttlMs * roundTripShareWarned) return null;
  const blocking = roundTripMs > ttlMs * roundTripShareMax;
  const consequence = blocking ? "so that no leader can keep it" : "which is close to its limit of a third";
  return {
    sentence:
      `NATS takes ${Math.round(roundTripMs)} ms for a write of the lease, which lasts ${ttlMs} ms, ${consequence}: ` +
      `start the managers with --lease-ttl ${Math.max(4, secondsFor(roundTripMs))}s or more`,
    blocking,
  };
}

/** Somebody else's lease as it was read. */
export interface LeaseSight {
  /** The life of the manager that holds it. */
  readonly instance: string;
  readonly revision: number;
}

/**
 * Whether one life of another manager has renewed its lease between two looks. Then what this manager measured while it last
 * wrote one is no trouble of the cluster's: changes are written. A manager that only follows writes none, and would keep that
 * trouble for ever.
 */
export function isKept(before: LeaseSight | null, now: LeaseSight | null): boolean {
  return before !== null && now !== null && before.instance === now.instance && before.revision < now.revision;
}

/** Within this time, in milliseconds, leadership changes hands so often at most without a warning. */
const flapWindowMs = 120_000;
const changesMax = 4;

/** Changes of leader as they are seen, oldest first; returns those that still count. */
export function recentChanges(changes: readonly number[], at: number): readonly number[] {
  return changes.filter((time) => at - time < flapWindowMs);
}

/** Null while leadership is steady. */
export function flapping(changes: readonly number[]): string | null {
  if (changes.length < changesMax) return null;
  return `leadership changed hands ${changes.length} times within ${flapWindowMs / 1_000} s: a lease that is too short for the link to NATS, an overloaded machine, or a NATS whose servers do not reach each other`;
}
