/** One at a time: reading the log again takes memory and processor time, and a log with many readers answers each of them late. */
import { RpcError, Status, type CallSignal } from "../../runtime/ports/rpc.ts";

/** Maximum waiting callers who rebuild a state. At a second each, the last waits about as long as a command does (25 s). */
export const rebuildsWaitingMax = 16;
/** Maximum waiting callers who search for a time: each reads a few records. More than the clients who may follow events at once. */
export const searchesWaitingMax = 1_024;

export class Turns {
  readonly #waitingMax: number;
  #last: Promise<unknown> = Promise.resolve();
  #waiting = 0;

  constructor(waitingMax: number) {
    this.#waitingMax = waitingMax;
  }

  /** Callers that have their turn or wait for it. */
  get size(): number {
    return this.#waiting;
  }

  /** Rejects as `work` does, and with RESOURCE_EXHAUSTED when too many wait. A caller that cancelled meanwhile gets no turn. */
  async take<Result>(work: () => Promise<Result>, signal?: CallSignal): Promise<Result> {
    if (this.#waiting > this.#waitingMax) {
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
