/**
 * Starts TLS handshakes at a pace that leaves time for everything else, alternating between sources: a source that opens
 * thousands of connections delays only itself.
 *
 * H1: the handshakes started within one turn of the event loop take `turnMs` in total, plus at most one handshake.
 * H2: while the oldest of a source has waited for `staleMs` or longer, the newest is next. A peer that has waited long gives up soon, or
 *     has too little time left for its request: in the order of arrival, all handshakes of an overloaded server would be for nothing.
 * H3: while connections arrive in each turn, none starts, for `arrivalsMs` at most. Node accepts one connection in each turn: if
 *     each also cost a handshake, the connections that the kernel holds would wait longer than their peers do.
 * H4: at most twice as many connections of a source are kept as wait, or `uncheckedMax`: with H2, many may leave while the oldest waits.
 */

/** Milliseconds. A node gives up after 5 s, in which it needs its answer as well (SwarmKit's `ca` package, `GetRemoteCA`). */
const staleMs = 2_000;
/** Milliseconds: twice the time for handshakes, since an arrival takes a fraction of a handshake's time. */
const arrivalsMs = 20;
/** Delay before `mayStart` is called again, in milliseconds. */
const retryMs = 100;
/** Number of a source's connections that are kept without checking whether they still wait. */
const uncheckedMax = 64;

interface Waiting {
  readonly since: number;
  readonly start: () => void;
  readonly isWanted: () => boolean;
}

/** Those of one source, in the order of their arrival. */
interface Queue {
  waiting: Waiting[];
  /** At this length, those that have left are forgotten. H4 */
  checkAt: number;
}

export class Handshakes {
  readonly #turnMs: number;
  readonly #mayStart: () => boolean;
  readonly #now: () => number;
  /** By source, in the order in which they get their turn. */
  readonly #waiting = new Map<string, Queue>();
  #hasArrival = false;
  /** Since when connections have arrived in each turn; null: there was a turn without one. */
  #arrivingSince: number | null = null;
  /** In this turn. */
  #arrivedNow = false;
  /** When the last turn with handshakes ended. */
  #lastAt = -Infinity;
  #isRunning = false;
  #turn: NodeJS.Immediate | null = null;
  #retry: NodeJS.Timeout | null = null;

  /** `mayStart` is called before each handshake; if false, all wait for `retryMs`, or until `ended` is called. */
  constructor(turnMs: number, mayStart: () => boolean, now: () => number = () => performance.now()) {
    this.#turnMs = turnMs;
    this.#mayStart = mayStart;
    this.#now = now;
  }

  /** Call when a connection has been accepted. */
  arrived(): void {
    this.#hasArrival = true;
    this.#arrivedNow = true;
    if (this.#arrivingSince !== null) return;
    this.#arrivingSince = this.#now();
    setImmediate(() => this.#lookForArrival());
  }

  #lookForArrival(): void {
    if (!this.#arrivedNow) return void (this.#arrivingSince = null);
    this.#arrivedNow = false;
    setImmediate(() => this.#lookForArrival());
  }

  /** Calls `start` when it is the source's turn, unless `isWanted` is false by then. */
  offer(source: string, start: () => void, isWanted: () => boolean): void {
    let queue = this.#waiting.get(source);
    if (queue === undefined) this.#waiting.set(source, (queue = { waiting: [], checkAt: uncheckedMax }));
    if (queue.waiting.length >= queue.checkAt) {
      queue.waiting = queue.waiting.filter((each) => each.isWanted());
      queue.checkAt = Math.max(uncheckedMax, 2 * queue.waiting.length);
    }
    queue.waiting.push({ since: this.#now(), start, isWanted });
    this.#next();
  }

  /** Call when a handshake has ended. */
  ended(): void {
    if (this.#retry !== null) clearTimeout(this.#retry);
    this.#retry = null;
    this.#next();
  }

  /**
   * For how long the oldest has waited whose peer has not left, or connections have arrived in each turn, in milliseconds: then the kernel
   * holds more of them. 0: none waits.
   */
  waitMs(): number {
    const now = this.#now();
    let oldest = this.#arrivingSince ?? now;
    for (const { waiting } of this.#waiting.values()) {
      while (waiting[0]?.isWanted() === false) waiting.shift();
      oldest = Math.min(oldest, waiting[0]?.since ?? now);
    }
    return now - oldest;
  }

  #next(): void {
    if (this.#waiting.size === 0 || this.#isRunning || this.#retry !== null || this.#turn !== null) return;
    this.#turn = setImmediate(() => {
      this.#turn = null;
      this.#takeTurn();
    });
  }

  #takeTurn(): void {
    const mayBeMore = this.#hasArrival;
    this.#hasArrival = false;
    const now = this.#now();
    if (mayBeMore && now - this.#lastAt < arrivalsMs) return this.#next();
    this.#isRunning = true;
    this.#run(now);
  }

  #run(since: number): void {
    const waiting = this.#now() - since < this.#turnMs ? this.#take() : null;
    if (waiting !== null) {
      waiting.start();
      // Node reads the first bytes, and signs, in a tick of its own, which is before this one.
      return process.nextTick(() => this.#run(since));
    }
    this.#isRunning = false;
    this.#lastAt = this.#now();
    this.#next();
  }

  #take(): Waiting | null {
    for (const [source, queue] of this.#waiting) {
      const { waiting } = queue;
      while (waiting[0]?.isWanted() === false) waiting.shift();
      while (waiting.at(-1)?.isWanted() === false) waiting.pop();
      const [oldest] = waiting;
      if (oldest === undefined) {
        this.#waiting.delete(source);
        continue;
      }
      if (!this.#mayStart()) {
        this.#retry ??= setTimeout(() => this.#again(), retryMs).unref();
        return null;
      }
      const isStale = this.#now() - oldest.since >= staleMs;
      const next = (isStale ? waiting.pop() : waiting.shift()) as Waiting;
      this.#waiting.delete(source);
      if (waiting.length > 0) this.#waiting.set(source, queue);
      return next;
    }
    return null;
  }

  #again(): void {
    this.#retry = null;
    this.#next();
  }
}
