/** The proposals that the log says were completed last, by id: what makes proposing twice the same as proposing once. */
import { Receipt } from "../../proto/gen/messages.ts";

/**
 * How many are remembered. A proposal comes again only while its proposer still waits, some seconds; at the 1,000
 * proposals a second that a busy cluster makes this is ten of them, for about 2 MB.
 */
export const receiptsMax = 10_000;

export interface Completed {
  readonly version: number;
  readonly skipped: number;
}

export class Receipts {
  /** Oldest first: a Map keeps the order of insertion. */
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
