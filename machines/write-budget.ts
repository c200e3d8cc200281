/**
 * How much each node may write to the log on its own initiative: a burst of bytes, then a rate. Reports on the life cycle
 * of its tasks do not count: they are finite.
 *
 * B1: in `ms` milliseconds, one node is granted at most `bytesMax + bytesPerS * ms / 1,000` bytes. Each manager counts
 *     for itself, so a node that moves from one to the next has one budget per manager.
 */

interface BudgetLimits {
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

  /** Takes `bytes` (at most `bytesMax`) from the node's budget; false if less is left. `nowMs` is of a monotonic clock. */
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

  /** Called when a node is removed. */
  forget(nodeId: string): void {
    this.#accounts.delete(nodeId);
  }
}
