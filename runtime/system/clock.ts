/** The machine's clock behind the `Clock` port. */
import type { Clock, TimerHandle } from "../ports/index.ts";
import { outsideCalls } from "../observation/cause.ts";
import { soon } from "./turns.ts";

/** Longest wait of a Node timer, in milliseconds (24.8 days); a longer one would fire after 1 ms. */
const timerMsMax = 2 ** 31 - 1;

export class SystemClock implements Clock {
  readonly #timerMsMax: number;

  /** `longestMs`: for tests of longer waits. */
  constructor(longestMs = timerMsMax) {
    this.#timerMsMax = longestMs;
  }

  now(): number {
    return Date.now();
  }

  monotonic(): number {
    return performance.now();
  }

  setTimeout(callback: () => void, ms: number): TimerHandle {
    return outsideCalls(() =>
      ms <= this.#timerMsMax ? setTimeout(callback, ms) : new LongTimer(callback, ms, this.#timerMsMax),
    ) as unknown as TimerHandle;
  }

  clearTimeout(timer: TimerHandle): void {
    const either = timer as unknown as NodeJS.Timeout | LongTimer;
    if (either instanceof LongTimer) either.clear();
    else clearTimeout(either);
  }

  soon(callback: () => void): void {
    soon(callback);
  }
}

/** A wait in several parts. */
class LongTimer {
  readonly #callback: () => void;
  readonly #partMs: number;
  #leftMs: number;
  #part: NodeJS.Timeout;

  constructor(callback: () => void, ms: number, partMs: number) {
    this.#callback = callback;
    this.#partMs = partMs;
    this.#leftMs = ms;
    this.#part = this.#wait();
  }

  clear(): void {
    clearTimeout(this.#part);
  }

  #wait(): NodeJS.Timeout {
    const ms = Math.min(this.#leftMs, this.#partMs);
    this.#leftMs -= ms;
    return setTimeout(() => {
      if (this.#leftMs > 0) this.#part = this.#wait();
      else this.#callback();
    }, ms);
  }
}
