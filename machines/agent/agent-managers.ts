/**
 * Which manager an agent turns to next: pure decisions over the list of managers that it remembers.
 *
 * G1: the list never becomes empty once it has held a manager: without one the node could not come back by itself.
 * G2: between two sessions no manager that could not be reached is tried again while another was unreachable less often: with two
 *     of three managers dead, chance alone kept a node away from the third for 24 s (seen under chaos), long enough to be
 *     declared DOWN. One that was reached and failed, as an overloaded one does, counts by its weight alone: if all agents left
 *     it for the next one, both would be busy with registrations (S72).
 */

export interface KnownManager {
  readonly nodeId: string;
  /** `host:port`. */
  readonly addr: string;
  /** Between -256 and 256; how much it is preferred. */
  readonly weight: number;
  /** How often it could not be reached since the last session message. */
  readonly unreached: number;
}

/** SwarmKit's bounds and weights (worker protocol §5.1). */
const weightMax = 256;
export const sessionEndWeight = -10;
export const certificateSuccessWeight = 10;
export const certificateFailureWeight = -10;
/** Keeps a manager of weight 0 or less reachable when there is nothing better. */
const weightBias = 0.001;

const isSame = (a: { nodeId: string; addr: string }, b: { nodeId: string; addr: string }): boolean =>
  a.nodeId === b.nodeId && a.addr === b.addr;

/** Weighted choice among those that were unreachable least often; `roll` is uniform in [0, 1). Null only for an empty list. G2 */
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

/** One experience with a manager moves its weight half way towards `observation`; a manager not in the list stays out. */
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

/** The list after a session message: its managers with their weights observed, the others forgotten. G1, G2 */
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

/** True when both lists name the same managers, whatever their weights: then the disk need not be written. */
export function namesSameManagers(a: readonly KnownManager[], b: readonly KnownManager[]): boolean {
  return a.length === b.length && a.every((manager) => b.some((other) => isSame(manager, other)));
}

function smoothed(old: number, observation: number): number {
  return clipped(Math.ceil(0.5 * observation + 0.5 * old));
}

function clipped(weight: number): number {
  return Math.min(weightMax, Math.max(-weightMax, weight));
}
