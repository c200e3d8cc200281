/** The machine's randomness behind the `Random` port; good enough for keys and tokens. */
import { randomBytes, randomInt } from "node:crypto";
import type { Random } from "../ports.ts";

export class SystemRandom implements Random {
  next(): number {
    // 48 bits: what `randomInt` gives at most, and more than any jitter needs.
    return randomInt(2 ** 48 - 1) / (2 ** 48 - 1);
  }

  below(bound: number): number {
    return randomInt(bound);
  }

  bytes(count: number): Uint8Array {
    return randomBytes(count);
  }

  /** Itself: streams are kept apart only where they must be repeatable. */
  fork(_name: string): Random {
    return this;
  }
}
