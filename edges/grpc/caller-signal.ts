/** Tells a call's handler that its caller is gone: a hundred bytes where Node's AbortController takes five hundred. */
import type { CallSignal } from "../../runtime/rpc.ts";

const none: readonly never[] = [];

export class CallerSignal implements CallSignal {
  #isAborted = false;
  /** As long as it has to be: arrays that grow have room for more. */
  #listeners: readonly (() => void)[] = none;

  get aborted(): boolean {
    return this.#isAborted;
  }

  /** As an event target's, it is called once, however often it is added, and never when that has happened already. */
  addEventListener(_type: "abort", listener: () => void): void {
    if (!this.#isAborted && !this.#listeners.includes(listener)) this.#listeners = [...this.#listeners, listener];
  }

  removeEventListener(_type: "abort", listener: () => void): void {
    this.#listeners = this.#listeners.filter((each) => each !== listener);
  }

  /** A second time does nothing. */
  abort(): void {
    if (this.#isAborted) return;
    this.#isAborted = true;
    // One may remove another.
    for (const listener of this.#listeners) if (this.#listeners.includes(listener)) listener();
    this.#listeners = none;
  }
}
