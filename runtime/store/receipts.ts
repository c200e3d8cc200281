/** The last completed proposals according to the log, by id: they make proposing twice the same as proposing once. */
import { Receipt } from "../../proto/gen/messages.ts";

/**
 * Number of receipts kept. A proposal is repeated only while its proposer waits, for some seconds; at the 1,000 proposals a
 * second of a busy cluster, this covers ten seconds and takes about 2 MB.
 */
const receiptsMax = 10_000;

export interface Completed {
  readonly version: number;
  readonly skipped: number;
}

export class Receipts {
  /** Oldest first: a Map keeps insertion order. */
  readonly #completed = new Map<string, Completed>();
  readonly #max: number;

  constructor(max: number = receiptsMax) {
    this.#max = max;
  }

  find(proposalId: string): Completed | undefined {
    return this.#completed.get(proposalId);
  }

  add(proposalId: string, completed: Completed): void {
    this.#completed.set(proposalId, completed);
    if (this.#completed.size <= this.#max) return;
    for (const oldest of this.#completed.keys()) {
      this.#completed.delete(oldest);
      break;
    }
  }

  clear(): void {
    this.#completed.clear();
  }

  toMessages(): Receipt[] {
    return Array.from(this.#completed, ([proposalId, { version, skipped }]) =>
      Receipt.create({ proposalId, version, skipped }),
    );
  }
}
