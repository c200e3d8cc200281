/**
 * Starts TLS handshakes at a pace at which everything else goes on, in turns between those who ask: a source that opens
 * thousands of connections waits behind itself.
 *
 * H1: the handshakes that begin within one turn of the event loop take `turnMs` together, and one more at most.
 */

interface Waiting {
  readonly start: () => void;
  readonly isWanted: () => boolean;
}

export class Handshakes {
  readonly #turnMs: number;
  readonly #mayStart: () => boolean;
  /** By source, in the order of their turns. */
  readonly #waiting = new Map<string, Waiting[]>();
  #spentMs = 0;
  #isRunning = false;
  #turn: NodeJS.Immediate | null = null;
  #retry: NodeJS.Timeout | null = null;

  /** `mayStart`: asked before each; false leaves all waiting for `retryMs`, or until `next` is called. */
  constructor(turnMs: number, mayStart: () => boolean) {
    this.#turnMs = turnMs;
    this.#mayStart = mayStart;
  }

  /** Calls `start` now or later, in the source's turn, unless it is not wanted any more by then. */
  offer(source: string, start: () => void, isWanted: () => boolean): void {
    const queue = this.#waiting.get(source);
    if (queue === undefined) this.#waiting.set(source, [{ start, isWanted }]);
    else queue.push({ start, isWanted });
    this.next();
  }

  /** Goes on, after one has ended. */
  next(): void {
    // Making room for one ends another, which comes back here.
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

/** Milliseconds until those that could not start ask again. */
const retryMs = 100;
