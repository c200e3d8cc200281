/** One at a time: rebuilding an earlier state may need as much memory as the current state, and its share of the processor. */
import { RpcError, Status, type CallSignal } from "../../runtime/ports/rpc.ts";

/** Maximum waiting callers. At a second each, the last waits about as long as a command does (25 s). */
export const waitingMax = 16;

export class Turns {
  #last: Promise<unknown> = Promise.resolve();
  #waiting = 0;

  /** Callers that have their turn or wait for it. */
  get size(): number {
    return this.#waiting;
  }

  /** Rejects as `work` does, and with RESOURCE_EXHAUSTED when too many wait. A caller that cancelled meanwhile gets no turn. */
  async take<Result>(work: () => Promise<Result>, signal?: CallSignal): Promise<Result> {
    if (this.#waiting > waitingMax) {
      throw new RpcError(Status.RESOURCE_EXHAUSTED, "too many concurrent reads of the history: try again in a moment");
    }
    this.#waiting += 1;
    const before = this.#last;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#last = promise;
    try {
      await before;
      if (signal?.aborted === true) throw new RpcError(Status.CANCELLED, "cancelled");
      return await work();
    } finally {
      this.#waiting -= 1;
      resolve();
    }
  }
}
