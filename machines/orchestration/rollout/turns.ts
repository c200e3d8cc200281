/**
 * A rollout's decisions for the orchestrator of a service's slots. A slot's name is its number, or for a global service its
 * node's id.
 */
export interface Turns {
  /** Whether the slot's outdated task may be replaced now. Until then its successors keep its spec. */
  mayReplace(slot: string): boolean;
  /** The new task starts before the old one is stopped. */
  readonly isStartFirst: boolean;
  /** Paused: a new task that fails while the old one runs is given up, not retried. */
  readonly isHeld: boolean;
}

/** For services without a rollout in progress. */
export const noTurns: Turns = { mayReplace: () => false, isStartFirst: false, isHeld: false };
