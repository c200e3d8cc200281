/**
 * What a rollout says to whoever tends a service's slots. A slot is named by its number, or for a global service by its
 * node's id.
 */
export interface Turns {
  /** The slot's outdated task may be replaced now. Until then what follows that task has its spec. */
  mayReplace(slot: string): boolean;
  /** The new task runs before the old one is stopped. */
  readonly isStartFirst: boolean;
  /** Paused: a new task that fails beside an old one that runs is given up, not tried again. */
  readonly isHeld: boolean;
}

/** Where no rollout is under way. */
export const noTurns: Turns = { mayReplace: () => false, isStartFirst: false, isHeld: false };
