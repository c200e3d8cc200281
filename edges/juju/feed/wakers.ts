/**
 * Wakes waiting watchers by topic. Many wait for the same topics, and each wake-up costs a reply, so they are woken in rounds;
 * the longer a round's replies took, the longer the pause after it, in which changes accumulate: then many watchers are at the
 * same position, and their reply is made once.
 */
import type { Clock, Subscription, TimerHandle } from "../../../runtime/ports/index.ts";

/** Maximum delay of a single watcher's wake-up after the previous change, in milliseconds. */
const pauseMsMin = 5;
/** The pause is half as long as all rounds together, so that waking takes at most two thirds of the process's time. This limits
 *  it, in case the clock was set or the process was suspended. */
const pauseMsMax = 1_000;
/** Pause while nobody waits: changes accumulate longer, and a frequently changing entity is recomputed once. */
const pauseMsIdle = 250;
/** Watchers per round: about ten milliseconds of work. */
const turnMax = 200;

export type Topic = string;

export class Wakers {
  readonly #clock: Clock;
  /** Called before watchers are woken: computes the news and returns its topics. */
  readonly #gather: () => Iterable<Topic>;
  readonly #waiting = new Map<Topic, Set<() => void>>();
  #timer: TimerHandle | null = null;
  #restUntilMs = 0;
  /** Something has changed since the last call of `#gather`. */
  #isStale = false;
  #isTurning = false;
  /** Nobody waited during the current pause. */
  #isIdle = false;
  #queue: (() => void)[] = [];
  /** Start of the first of the current rounds; null between them. */
  #begunMs: number | null = null;

  constructor(clock: Clock, gather: () => Iterable<Topic>) {
    this.#clock = clock;
    this.#gather = gather;
  }

  /** Calls back each time there is news on the topic, until unsubscribed. */
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

  /** Schedules a round for a change; further changes until then share it. */
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

  /** A watcher waits now: ends an idle pause early. */
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
    // Replies are made after a round, so their duration is known one round later.
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
