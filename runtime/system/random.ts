/** The machine's randomness behind the `Random` port; good enough for keys and tokens. */
import { randomBytes, randomFillSync, randomInt } from "node:crypto";
import type { Random } from "../ports/index.ts";

/** Bytes drawn at once for small requests: a call costs more than drawing the bytes of an id. */
const poolBytes = 4_096;
/** Largest request that is served from the pool: an id has 17 bytes, a key 32. */
const pooledMax = 32;

export class SystemRandom implements Random {
  readonly #pool = new Uint8Array(poolBytes);
  #used = poolBytes;

  next(): number {
    // 48 bits: the maximum of `randomInt`, and more than any jitter needs.
    return randomInt(2 ** 48 - 1) / (2 ** 48 - 1);
  }

  below(bound: number): number {
    return randomInt(bound);
  }

  bytes(count: number): Uint8Array {
    if (count > pooledMax) return randomBytes(count);
    if (this.#used + count > poolBytes) {
      randomFillSync(this.#pool);
      this.#used = 0;
    }
    const from = this.#used;
    this.#used += count;
    const bytes = this.#pool.slice(from, this.#used);
    // Bytes that may become a key must not remain in the pool.
    this.#pool.fill(0, from, this.#used);
    return bytes;
  }

  /** Itself: separate streams are needed only where draws must be repeatable. */
  fork(_name: string): Random {
    return this;
  }
}
