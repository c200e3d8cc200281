/** The part of the live feed that comes while the past is read. */
import { scanFeed } from "../../proto/feed-scan.ts";

/** As in `timelineLimits` (`limits.ts`). */
interface WaitingLimits {
  readonly beginMsMax: number;
  readonly beginQuietMs: number;
  readonly recentBytesMax: number;
}

/** Messages of the live feed that wait until what is kept was read. */
export class WaitingFeed {
  readonly messages: Uint8Array[] = [];
  /** Resolves when no process has shown its actors for some time: all that can be reached have begun. */
  readonly hasBegun: Promise<void>;
  readonly #begin: () => void;
  readonly #limits: WaitingLimits;
  readonly #full = new AbortController();
  readonly #last: NodeJS.Timeout;
  #quiet: NodeJS.Timeout | null = null;
  #bytes = 0;

  constructor(limits: WaitingLimits) {
    this.#limits = limits;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.hasBegun = promise;
    this.#last = setTimeout(resolve, limits.beginMsMax).unref();
    this.#begin = () => {
      clearTimeout(this.#last);
      resolve();
    };
  }

  /** Aborted when too much waits: the rest of what is kept is not read. */
  get isFull(): AbortSignal {
    return this.#full.signal;
  }

  add(bytes: Uint8Array): void {
    this.messages.push(bytes);
    this.#bytes += bytes.length;
    if (this.#bytes > this.#limits.recentBytesMax) this.#full.abort();
    if (scanFeed(bytes).snapshot === null) return;
    if (this.#quiet !== null) clearTimeout(this.#quiet);
    this.#quiet = setTimeout(this.#begin, this.#limits.beginQuietMs).unref();
  }
}
