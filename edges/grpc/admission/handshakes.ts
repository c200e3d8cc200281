/**
 * Starts TLS handshakes at a pace that leaves time for everything else, alternating between sources: a source that opens
 * thousands of connections delays only itself.
 *
 * H1: the handshakes started within one turn of the event loop take `turnMs` in total, plus at most one handshake.
 */

interface Waiting {
  readonly start: () => void;
  readonly isWanted: () => boolean;
}

export class Handshakes {
  readonly #turnMs: number;
  readonly #mayStart: () => boolean;
  /** By source, in the order in which they get their turn. */
  readonly #waiting = new Map<string, Waiting[]>();
  #spentMs = 0;
  #isRunning = false;
  #turn: NodeJS.Immediate | null = null;
  #retry: NodeJS.Timeout | null = null;

  /** `mayStart` is called before each handshake; if false, all wait for `retryMs`, or until `next` is called. */
  constructor(turnMs: number, mayStart: () => boolean) {
    this.#turnMs = turnMs;
    this.#mayStart = mayStart;
  }

  /** Calls `start` now or later, when it is the source's turn, unless `isWanted` is false by then. */
  offer(source: string, start: () => void, isWanted: () => boolean): void {
    const queue = this.#waiting.get(source);
    if (queue === undefined) this.#waiting.set(source, [{ start, isWanted }]);
    else queue.push({ start, isWanted });
    this.next();
  }

  /** Call when a handshake has ended. */
  next(): void {
    // Starting a handshake may close another, which calls this method again.
    if (this.#waiting.size === 0 || this.#isRunning) return;
    if (this.#spentMs < this.#turnMs) this.#run();
    if (this.#waiting.size > 0 && this.#retry === null) this.#retry = setTimeout(() => this.#again(), retryMs).unref();
  }

  #again(): void {
    this.#retry = null;
    this.next();
  }

  #run(): void {
    if (this.#turn === null)
      this.#turn = setImmediate(() => {
        this.#turn = null;
        this.#spentMs = 0;
        this.next();
      });
    this.#isRunning = true;
    while (this.#spentMs < this.#turnMs) {
      const waiting = this.#take();
      if (waiting === null) break;
      const begun = performance.now();
      waiting.start();
      this.#spentMs += performance.now() - begun;
    }
    this.#isRunning = false;
  }

  #take(): Waiting | null {
    for (const [source, queue] of this.#waiting) {
      while (queue[0]?.isWanted() === false) queue.shift();
      if (queue.length === 0) {
        this.#waiting.delete(source);
        continue;
      }
      if (!this.#mayStart()) return null;
      const first = queue.shift() as Waiting;
      this.#waiting.delete(source);
      if (queue.length > 0) this.#waiting.set(source, queue);
      return first;
    }
    return null;
  }
}

/** Delay before `mayStart` is called again, in milliseconds. */
const retryMs = 100;
