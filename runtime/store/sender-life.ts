/**
 * A receiver's state of one run of a sender: its last known number, and which of its messages were received. Decides whether a
 * message is fresh without comparing clocks: by answering a question, a sender proves that it is alive and what its number is;
 * everything up to that number is old, except a question that the sender still waits for.
 *
 * SB2: no message is delivered twice.
 * SB3: no message is delivered that was sent more than `provenMs` ago, except a question whose sender still waits for it.
 */

/** Window of numbers below the newest that are tracked; an older message is rejected. A sender sends some thousand a second. */
export const windowNumbers = 4_096;
/** Milliseconds of the receiver's clock for which a proof is valid. Beats arrive every second, so a living sender renews it. */
export const provenMs = 10_000;
/** A proof of this age, in milliseconds, is renewed while it is still valid. */
export const renewMs = 5_000;

/** `doubtful`: only the sender knows whether it still waits for an answer to that question. */
type Freshness = "fresh" | "replayed" | "doubtful";

export class SenderLife {
  #newest = 0;
  /** One bit for each number of the window, at its remainder. */
  readonly #received = new Uint32Array(windowNumbers / 32);
  #open: ReadonlySet<number> = new Set();
  #provenAtMs: number | null = null;

  /** Whether the last proof is still valid. A clock that goes backwards invalidates it. */
  isProven(nowMs: number): boolean {
    return this.#isYounger(nowMs, provenMs);
  }

  /** Whether to request another proof. */
  isAgeing(nowMs: number): boolean {
    return !this.#isYounger(nowMs, renewMs);
  }

  /** The sender reported its current `number` and the questions in `open` that it still waits for; it was asked at `nowMs`. */
  prove(number: number, open: readonly number[], nowMs: number): void {
    this.#advance(number);
    this.#open = new Set(open);
    this.#provenAtMs = nowMs;
  }

  /** `isSettled`: the sender has just been asked, so a question that it does not wait for is old. SB2 */
  take(number: number, asked: boolean, isSettled: boolean): Freshness {
    if (number > this.#newest) {
      this.#advance(number);
      this.#mark(number);
      return "fresh";
    }
    if (number <= this.#newest - windowNumbers || this.#wasReceived(number) || !asked) return "replayed";
    if (!this.#open.has(number)) return isSettled ? "replayed" : "doubtful";
    this.#mark(number);
    return "fresh";
  }

  #isYounger(nowMs: number, ms: number): boolean {
    if (this.#provenAtMs === null) return false;
    const ageMs = nowMs - this.#provenAtMs;
    return ageMs >= 0 && ageMs < ms;
  }

  #advance(number: number): void {
    if (number <= this.#newest) return;
    if (number - this.#newest >= windowNumbers) this.#received.fill(0);
    else for (let at = this.#newest + 1; at <= number; at += 1) this.#set(at, false);
    this.#newest = number;
  }

  #wasReceived(number: number): boolean {
    const at = number % windowNumbers;
    return ((this.#received[at >>> 5] as number) & (1 << (at & 31))) !== 0;
  }

  #mark(number: number): void {
    this.#set(number, true);
  }

  #set(number: number, to: boolean): void {
    const at = number % windowNumbers;
    const word = this.#received[at >>> 5] as number;
    this.#received[at >>> 5] = to ? word | (1 << (at & 31)) : word & ~(1 << (at & 31));
  }
}
