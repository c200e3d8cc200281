/**
 * What each node may have written into the log by its own will: so many bytes at once, and then so many a second. What a node
 * says in the course of its tasks' lives is not counted: that has an end.
 *
 * B1: what is granted to one node in `ms` milliseconds is at most `bytesMax + bytesPerS * ms / 1,000`. Each manager counts for
 *     itself, so a node that goes from one to the next has as many budgets as there are managers.
 */

export interface BudgetLimits {
  readonly bytesMax: number;
  readonly bytesPerS: number;
}

interface Account {
  bytes: number;
  atMs: number;
}

export class WriteBudget {
  readonly #limits: BudgetLimits;
  readonly #accounts = new Map<string, Account>();

  constructor(limits: BudgetLimits) {
    this.#limits = limits;
  }

  /** Takes them from what the node may still use; false when there is less. `bytes`: at most `bytesMax`; `nowMs`: of a clock that only goes on. */
  take(nodeId: string, bytes: number, nowMs: number): boolean {
    const { bytesMax, bytesPerS } = this.#limits;
    const account = this.#accounts.get(nodeId) ?? { bytes: bytesMax, atMs: nowMs };
    const passedMs = Math.max(0, nowMs - account.atMs);
    account.bytes = Math.min(bytesMax, account.bytes + (passedMs * bytesPerS) / 1_000);
    account.atMs = nowMs;
    this.#accounts.set(nodeId, account);
    if (account.bytes < bytes) return false;
    account.bytes -= bytes;
    return true;
  }

  /** For a node that is removed. */
  forget(nodeId: string): void {
    this.#accounts.delete(nodeId);
  }
}
