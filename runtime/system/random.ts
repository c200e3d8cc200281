/** The machine's randomness behind the `Random` port; good enough for keys and tokens. */
import { randomBytes, randomFillSync, randomInt } from "node:crypto";
import type { Random } from "../ports.ts";

/** Bytes drawn in one go for the small requests to come: an id's alone cost more to ask for than to draw. */
const poolBytes = 4_096;
/** The largest request that is served from the pool: an id has 17 bytes, a key 32. */
const pooledMax = 32;

export class SystemRandom implements Random {
  readonly #pool = new Uint8Array(poolBytes);
  #used = poolBytes;

  next(): number {
    // 48 bits: what `randomInt` gives at most, and more than any jitter needs.
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
    // What becomes a key is nowhere but there.
    this.#pool.fill(0, from, this.#used);
    return bytes;
  }

  /** Itself: streams are kept apart only where they must be repeatable. */
  fork(_name: string): Random {
    return this;
  }
}
