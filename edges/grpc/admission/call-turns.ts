/**
 * The order in which calls are handled when they come faster than this process handles them. Heartbeats and reports of nodes, and
 * calls between managers, are not among them: they are handled as they arrive, before anything that waits here.
 *
 * CT1: the handlers started within one turn of the event loop take `callTurnMs` in total, plus at most one handler.
 * CT2: while a call of one class waits, none of a later class starts.
 * CT3: at most `waitingCallsMax` calls of a class wait; a further one is refused.
 */
import { outsideCalls } from "../../../runtime/observation/cause.ts";

/** In the order in which they are handled. */
const callClasses = ["assignments", "registrations", "reads"] as const;

/** `assignments`: streams of nodes that have a session; `registrations`: nodes without one; `reads`: questions of users. */
export type CallClass = (typeof callClasses)[number];

interface Turns {
  readonly callTurnMs: number;
  readonly waitingCallsMax: number;
}

interface Waiting {
  readonly since: number;
  readonly start: () => void;
}

export class CallTurns {
  readonly #limits: Turns;
  readonly #onWaiting: (of: CallClass, waiting: number) => void;
  readonly #now: () => number;
  readonly #waiting: Readonly<Record<CallClass, Waiting[]>> = { assignments: [], registrations: [], reads: [] };
  #spentMs = 0;
  #isDue = false;

  /** `onWaiting` is called with the number of waiting calls of a class when it has changed. */
  constructor(
    limits: Turns,
    onWaiting: (of: CallClass, waiting: number) => void = () => undefined,
    now: () => number = () => performance.now(),
  ) {
    this.#limits = limits;
    this.#onWaiting = onWaiting;
    this.#now = now;
  }

  /** Calls `start` now or in a later turn. False if too many of its class wait: it is never called. */
  offer(of: CallClass, start: () => void): boolean {
    if (this.#spentMs < this.#limits.callTurnMs && this.#next() === null) {
      this.#start(start);
      return true;
    }
    const queue = this.#waiting[of];
    if (queue.length >= this.#limits.waitingCallsMax) return false;
    queue.push({ since: this.#now(), start });
    this.#onWaiting(of, queue.length);
    return true;
  }

  /** For how long the oldest call of a node has waited, in milliseconds; 0: none waits. */
  nodesWaitMs(): number {
    const now = this.#now();
    const { assignments, registrations } = this.#waiting;
    return now - Math.min(assignments[0]?.since ?? now, registrations[0]?.since ?? now);
  }

  /** The first class of which a call waits. */
  #next(): CallClass | null {
    return callClasses.find((each) => this.#waiting[each].length > 0) ?? null;
  }

  #start(start: () => void): void {
    if (!this.#isDue) {
      this.#isDue = true;
      outsideCalls(() => setImmediate(() => this.#turn()));
    }
    const begun = this.#now();
    try {
      start();
    } finally {
      this.#spentMs += this.#now() - begun;
    }
  }

  #turn(): void {
    this.#isDue = false;
    this.#spentMs = 0;
    for (let of = this.#next(); of !== null && this.#spentMs < this.#limits.callTurnMs; of = this.#next()) {
      const queue = this.#waiting[of];
      const { start } = queue.shift() as Waiting;
      this.#onWaiting(of, queue.length);
      this.#start(start);
    }
  }
}
