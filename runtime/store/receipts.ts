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
  /**
   * Their ids, and the place of the next one: once full, that of the oldest. A search for the Map's first key passes every key that was
   * deleted before it, which took tens of microseconds for each receipt.
   */
  readonly #ids: string[] = [];
  #next = 0;
  readonly #max: number;

  constructor(max: number = receiptsMax) {
    this.#max = max;
  }

  find(proposalId: string): Completed | undefined {
    return this.#completed.get(proposalId);
  }

  add(proposalId: string, completed: Completed): void {
    const isKnown = this.#completed.has(proposalId);
    this.#completed.set(proposalId, completed);
    if (isKnown) return;
    const oldest = this.#ids[this.#next];
    if (oldest !== undefined) this.#completed.delete(oldest);
    this.#ids[this.#next] = proposalId;
    this.#next = (this.#next + 1) % this.#max;
  }

  clear(): void {
    this.#completed.clear();
    this.#ids.length = 0;
    this.#next = 0;
  }

  toMessages(): Receipt[] {
    return Array.from(this.#completed, ([proposalId, { version, skipped }]) =>
      Receipt.create({ proposalId, version, skipped }),
    );
  }
}
