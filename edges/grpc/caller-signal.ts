/** Notifies a call's handler that its caller has left: a hundred bytes, where Node's AbortController takes five hundred. */
import type { CallSignal } from "../../runtime/ports/rpc.ts";

const none: readonly never[] = [];

export class CallerSignal implements CallSignal {
  #isAborted = false;
  /** Exactly as long as needed: arrays that grow allocate spare capacity. */
  #listeners: readonly (() => void)[] = none;

  get aborted(): boolean {
    return this.#isAborted;
  }

  /** As with an event target, a listener added twice is called once; one added after the abort is never called. */
  addEventListener(_type: "abort", listener: () => void): void {
    if (!this.#isAborted && !this.#listeners.includes(listener)) this.#listeners = [...this.#listeners, listener];
  }

  removeEventListener(_type: "abort", listener: () => void): void {
    this.#listeners = this.#listeners.filter((each) => each !== listener);
  }

  /** Later calls do nothing. */
  abort(): void {
    if (this.#isAborted) return;
    this.#isAborted = true;
    // A listener may remove another.
    for (const listener of this.#listeners) if (this.#listeners.includes(listener)) listener();
    this.#listeners = none;
  }
}
