/**
 * What each node may have written that only says again what state its tasks are in, in other words: so many bytes at once,
 * and then so many a second. A node that says more is heard, and what it says waits.
 *
 * B1: what is granted to one node in `ms` milliseconds is at most `repeatBytesMax + repeatBytesPerS * ms / 1,000`.
 */

/** Health checks that change their words on a thousand tasks at once fit in, at some 200 bytes each. */
export const repeatBytesMax = 256 * 1_024;
/** A hundredth of what a log on one small disk takes; a node's whole burst is back after 16 s. */
export const repeatBytesPerS = 16 * 1_024;

interface Account {
  bytes: number;
  atMs: number;
}

export class RepeatBudget {
  readonly #accounts = new Map<string, Account>();

  /** Takes them from what the node may still use; false when there is less. `bytes`: at most `repeatBytesMax`. */
  take(nodeId: string, bytes: number, nowMs: number): boolean {
    const account = this.#accounts.get(nodeId) ?? { bytes: repeatBytesMax, atMs: nowMs };
    // A clock that was set back gives nothing, and goes on from there.
    const passedMs = Math.max(0, nowMs - account.atMs);
    account.bytes = Math.min(repeatBytesMax, account.bytes + (passedMs * repeatBytesPerS) / 1_000);
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
