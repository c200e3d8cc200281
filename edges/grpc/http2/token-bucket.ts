/** A token bucket: allows bursts, and a rate in the long run. Reads the clock only when the tokens are used up. */
export class TokenBucket {
  readonly #burst: number;
  readonly #perSecond: number;
  #tokens: number;
  #filledAt: number;

  constructor(rate: { readonly burst: number; readonly perSecond: number }, nowMs: number) {
    this.#burst = rate.burst;
    this.#perSecond = rate.perSecond;
    this.#tokens = rate.burst;
    this.#filledAt = nowMs;
  }

  /** False if fewer than `count` tokens are left. */
  take(count = 1): boolean {
    if (this.#tokens < count) {
      const now = performance.now();
      this.#tokens = Math.min(this.#burst, this.#tokens + ((now - this.#filledAt) * this.#perSecond) / 1_000);
      this.#filledAt = now;
      if (this.#tokens < count) return false;
    }
    this.#tokens -= count;
    return true;
  }
}
