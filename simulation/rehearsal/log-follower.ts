/**
 * The commits of a cluster, each once and in order, when the first replica applies it. Those that every
 * manager has learned of from a snapshot are missing.
 */
import type { Replica } from "../../runtime/store/replica.ts";
import type { Commit } from "../../runtime/store/store.ts";

/** `isWhole`: the changes came from a transaction, not from a snapshot. */
type CommitListener = (commit: Commit & { readonly epoch?: number }, replica: Replica, isWhole: boolean) => void;

export class LogFollower {
  readonly #listener: CommitListener;
  #newest = 0;
  #replica: Replica | null = null;

  constructor(listener: CommitListener) {
    this.#listener = listener;
  }

  /** The replica with the newest version; null before there is one. */
  get store(): Replica | null {
    return this.#replica;
  }

  /** Follows one life of a manager. */
  follow(replica: Replica): void {
    replica.watch((commit: Commit & { readonly epoch?: number }) => {
      if (commit.version <= this.#newest) return;
      this.#newest = commit.version;
      this.#replica = replica;
      this.#listener(commit, replica, commit.epoch !== undefined);
    });
  }
}
