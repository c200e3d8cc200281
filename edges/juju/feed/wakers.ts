/**
 * Wakes those that wait, by what they wait for. Many wait for the same, and each that is woken costs an answer: so they are
 * woken in turns, and the longer it took until all had their answers, the longer the pause that follows, in which changes
 * gather: then many stand at the same place, and what is told them is made once.
 */
import type { Clock, Subscription, TimerHandle } from "../../../runtime/ports.ts";

/** A single watcher hears of a change within so many milliseconds of the one before. */
const pauseMsMin = 5;
/** Half as long as all turns took together, so that waking never takes more than two thirds of the process. No longer than
 *  this, whatever the clock says: it may have been set, or the process have stood still. */
const pauseMsMax = 1_000;
/** While nobody waits: then changes gather longer, and an entity that changes often is looked at once. */
const pauseMsIdle = 250;
/** Of one turn: some ten milliseconds. */
const turnMax = 200;

export type Topic = string;

export class Wakers {
  readonly #clock: Clock;
  /** Called before anybody is woken: makes the news, and names what they are about. */
  readonly #gather: () => Iterable<Topic>;
  readonly #waiting = new Map<Topic, Set<() => void>>();
  #timer: TimerHandle | null = null;
  #restUntilMs = 0;
  /** Something has changed since the last gathering. */
  #isStale = false;
  #isTurning = false;
  /** The pause is one in which nobody waited. */
  #isIdle = false;
  #queue: (() => void)[] = [];
  /** When the first of these turns began; null between them. */
  #begunMs: number | null = null;

  constructor(clock: Clock, gather: () => Iterable<Topic>) {
    this.#clock = clock;
    this.#gather = gather;
  }

  /** Calls back each time there are news of the topic, until unsubscribed. */
  wait(topic: Topic, wake: () => void): Subscription {
    const waiting = this.#waiting.get(topic) ?? new Set();
    this.#waiting.set(topic, waiting);
    const own = (): void => wake();
    waiting.add(own);
    this.#hurry();
    return {
      unsubscribe: () => {
        waiting.delete(own);
        if (waiting.size === 0 && this.#waiting.get(topic) === waiting) this.#waiting.delete(topic);
      },
    };
  }

  /** Something has changed: gathers it soon, once for all that changes until then. */
  schedule(): void {
    this.#isStale = true;
    if (this.#timer !== null || this.#isTurning) return;
    const restMs = Math.max(0, Math.min(pauseMsMax, this.#restUntilMs - this.#clock.monotonic()));
    this.#timer = this.#clock.setTimeout(() => this.#turn(), restMs);
  }

  stop(): void {
    if (this.#timer !== null) this.#clock.clearTimeout(this.#timer);
    this.#timer = null;
    this.#queue = [];
    this.#waiting.clear();
  }

  /** Somebody waits now: what was left to gather is not left any longer. */
  #hurry(): void {
    const restUntilMs = this.#clock.monotonic() + pauseMsMin;
    if (this.#restUntilMs <= restUntilMs || !this.#isIdle) return;
    this.#restUntilMs = restUntilMs;
    if (this.#timer === null) return;
    this.#clock.clearTimeout(this.#timer);
    this.#timer = null;
    this.schedule();
  }

  #turn(): void {
    this.#timer = null;
    this.#isTurning = true;
    if (this.#begunMs === null) {
      this.#begunMs = this.#clock.monotonic();
      this.#isStale = false;
      for (const topic of this.#gather()) for (const wake of this.#waiting.get(topic) ?? []) this.#queue.push(wake);
      this.#isIdle = this.#waiting.size === 0;
    }
    const isOver = this.#queue.length === 0;
    for (const wake of this.#queue.splice(0, turnMax)) wake();
    this.#isTurning = false;
    // Answers are made after a turn: how long they all took is known in one more.
    if (isOver) this.#rest(this.#clock.monotonic() - this.#begunMs);
    else this.#timer = this.#clock.setTimeout(() => this.#turn(), 0);
  }

  #rest(tookMs: number): void {
    const pauseMs = this.#isIdle ? pauseMsIdle : Math.min(pauseMsMax, Math.max(pauseMsMin, tookMs / 2));
    this.#begunMs = null;
    this.#restUntilMs = this.#clock.monotonic() + pauseMs;
    if (this.#isStale) this.schedule();
  }
}
