/** Warnings about the lease's requirements: a fast enough link, and stable leadership. */
import { roundTripShareMax, roundTripShareWarned } from "../ledger/lease.machine.ts";

/** The minimum lease for a link with that round trip, in whole seconds: four round trips, with a third to spare. */
function secondsFor(roundTripMs: number): number {
  return Math.ceil((roundTripMs * 4) / 1_000);
}

/** `roundTripMs`: how long a write of the lease took. Null if the link is fast enough. */
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

/** Another manager's lease, as read. */
export interface LeaseSight {
  /** The run of the manager that holds it. */
  readonly instance: string;
  readonly revision: number;
}

/**
 * Whether the same run of another manager has renewed its lease between two reads. Then a problem that this manager measured
 * when it last wrote a lease does not affect the cluster: changes are written. A following manager writes no lease, and would
 * report the problem forever.
 */
export function isKept(before: LeaseSight | null, now: LeaseSight | null): boolean {
  return before !== null && now !== null && before.instance === now.instance && before.revision < now.revision;
}

/** Window, in milliseconds, in which repeated changes of leadership cause a warning. */
const flapWindowMs = 120_000;
const changesMax = 4;

/** Observed changes of leader, oldest first; returns those that still count. */
export function recentChanges(changes: readonly number[], at: number): readonly number[] {
  return changes.filter((time) => at - time < flapWindowMs);
}

/** Null while leadership is stable. */
export function flapping(changes: readonly number[]): string | null {
  if (changes.length < changesMax) return null;
  return `leadership changed hands ${changes.length} times within ${flapWindowMs / 1_000} s: a lease that is too short for the link to NATS, an overloaded machine, or a NATS whose servers do not reach each other`;
}
