/**
 * Chooses the manager that an agent dials next, from the list that it remembers.
 *
 * G1: the list never becomes empty once it has contained a manager: without one, the node could not reconnect by itself.
 * G2: between two sessions, an unreachable manager is not retried while another one was unreachable less often: with two
 *     of three managers dead, chance alone kept a node away from the third for 24 s (seen in a chaos run), long enough to
 *     be declared DOWN. A manager that was reached and failed, such as an overloaded one, counts only by its weight: if
 *     all its agents moved to the next manager, both would be busy with registrations (S72).
 */

export interface KnownManager {
  readonly nodeId: string;
  /** `host:port`. */
  readonly addr: string;
  /** From -256 to 256; higher is preferred. */
  readonly weight: number;
  /** Failed connection attempts since the last session message. */
  readonly unreached: number;
}

/** SwarmKit's bounds and weights (worker protocol §5.1). */
const weightMax = 256;
export const sessionEndWeight = -10;
export const certificateSuccessWeight = 10;
export const certificateFailureWeight = -10;
/** Keeps a manager with a weight of 0 or less reachable if there is nothing better. */
const weightBias = 0.001;

const isSame = (a: { nodeId: string; addr: string }, b: { nodeId: string; addr: string }): boolean =>
  a.nodeId === b.nodeId && a.addr === b.addr;

/**
 * Weighted choice among the managers that were unreachable least often; `roll` is uniform in [0, 1). Null only for an
 * empty list. G2
 */
export function chooseManager(managers: readonly KnownManager[], roll: number): KnownManager | null {
  const fewest = Math.min(...managers.map(({ unreached }) => unreached));
  const candidates = managers.filter(({ unreached }) => unreached === fewest);
  const share = (manager: KnownManager): number => Math.max(0, manager.weight) + weightBias;
  let left = roll * candidates.reduce((sum, manager) => sum + share(manager), 0);
  for (const manager of candidates) {
    left -= share(manager);
    if (left < 0) return manager;
  }
  return candidates.at(-1) ?? null;
}

/** Moves a manager's weight half way towards `observation`; a manager that is not in the list is not added. */
export function observeManager(
  managers: readonly KnownManager[],
  seen: { nodeId: string; addr: string },
  observation: number,
): readonly KnownManager[] {
  return managers.map((manager) =>
    isSame(manager, seen) ? { ...manager, weight: smoothed(manager.weight, observation) } : manager,
  );
}

/** A manager could not be reached. G2 */
export function noteUnreached(
  managers: readonly KnownManager[],
  seen: { nodeId: string; addr: string },
): readonly KnownManager[] {
  return managers.map((manager) =>
    isSame(manager, seen) ? { ...manager, unreached: manager.unreached + 1 } : manager,
  );
}

/** The list after a session message: its managers with their observed weights; others are dropped. G1, G2 */
export function replaceManagers(
  managers: readonly KnownManager[],
  listed: readonly { readonly nodeId: string; readonly addr: string; readonly weight: number }[],
): readonly KnownManager[] {
  const next: KnownManager[] = [];
  for (const { nodeId, addr, weight } of listed) {
    if (addr === "" || next.some((manager) => isSame(manager, { nodeId, addr }))) continue;
    const known = managers.find((manager) => isSame(manager, { nodeId, addr }));
    const newWeight = known === undefined ? clipped(weight) : smoothed(known.weight, weight);
    next.push({ nodeId, addr, weight: newWeight, unreached: 0 });
  }
  return next.length === 0 ? managers.map((manager) => ({ ...manager, unreached: 0 })) : next;
}

/** Whether both lists contain the same managers, whatever their weights: then no write to disk is needed. */
export function namesSameManagers(a: readonly KnownManager[], b: readonly KnownManager[]): boolean {
  return a.length === b.length && a.every((manager) => b.some((other) => isSame(manager, other)));
}

function smoothed(old: number, observation: number): number {
  return clipped(Math.ceil(0.5 * observation + 0.5 * old));
}

function clipped(weight: number): number {
  return Math.min(weightMax, Math.max(-weightMax, weight));
}
