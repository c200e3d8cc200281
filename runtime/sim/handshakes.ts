/**
 * Connections to a process that wait for its handshake, while it takes long for each: as on a starved machine, whose peers all return at
 * once. The newest is next, since those that have waited give up first.
 *
 * HS1: the handshakes take their time one after the other, and nothing of a connection is handled before its own.
 */
import type { ProcessClock } from "./clock.ts";

interface Waiting {
  readonly since: number;
  readonly isWanted: () => boolean;
  readonly start: () => void;
}

export class SimHandshakes {
  readonly #clock: ProcessClock;
  /** Duration of a handshake, in milliseconds. */
  #costMs = 0;
  #isBusy = false;
  #waiting: Waiting[] = [];

  constructor(clock: ProcessClock) {
    this.#clock = clock;
  }

  /** From now on each takes `costMs`; 0 turns this off. */
  slow(costMs: number): void {
    this.#costMs = costMs;
    if (costMs > 0) return;
    for (const { isWanted, start } of this.#waiting.splice(0)) if (isWanted()) start();
  }

  /** Calls `start` once the connection's handshake is over, unless its peer has left by then. */
  offer(isWanted: () => boolean, start: () => void): void {
    if (this.#costMs === 0) return start();
    this.#waiting.push({ since: this.#clock.monotonic(), isWanted, start });
    this.#next();
  }

  /** For how long the oldest has waited whose peer has not left, in milliseconds; 0: none waits. */
  oldestMs(): number {
    this.#waiting = this.#waiting.filter(({ isWanted }) => isWanted());
    const [oldest] = this.#waiting;
    return oldest === undefined ? 0 : this.#clock.monotonic() - oldest.since;
  }

  #next(): void {
    if (this.#isBusy) return;
    this.#waiting = this.#waiting.filter(({ isWanted }) => isWanted());
    const next = this.#waiting.pop();
    if (next === undefined) return;
    this.#isBusy = true;
    this.#clock.after(this.#costMs, () => {
      this.#isBusy = false;
      if (next.isWanted()) next.start();
      this.#next();
    });
  }
}
