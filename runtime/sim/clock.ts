/**
 * Virtual time. Nothing waits: the clock jumps from one deadline to the next, and what has one deadline runs in the
 * order in which it was asked for. Each simulated process sees it through a view of its own (`ProcessClock`), which may
 * be skewed, drift, stop (a paused process) or die with its timers (a crashed one).
 *
 * T1: time never goes back, and no callback runs before its deadline.
 * T2: what was asked for with `soon` runs before any later timer, and after what was running when it was asked for.
 * T3: no callback of a dead process runs.
 * T5: a jump of a process's wall clock moves none of its timers, and `monotonic` not at all.
 * T4: a paused process runs nothing; what came due meanwhile runs in its order when the process goes on.
 * T6: a slow process runs one callback at a time, and each takes it as long as it was told; what comes due meanwhile waits
 *     for its turn, in the order in which it came due. What a callback asks for with `soon` is part of it.
 */
import { assert } from "../assert.ts";
import type { Clock, TimerHandle } from "../ports.ts";

/** 1 January 2026: where virtual time begins, so that times look like times. */
const simEpochMs = Date.UTC(2026, 0, 1);

/** Added to each timer, in milliseconds, so that rounding never shows a timer a clock that is short of its deadline (T1). */
const roundingMs = 1e-6;

interface Entry extends TimerHandle {
  /** True time since the simulation began. */
  deadline: number;
  order: number;
  callback: (() => void) | null;
  owner: ProcessClock | null;
}

export interface RunOptions {
  /** Stops before the first timer later than this virtual time (by `SimClock.now`), and sets the clock to it. */
  readonly untilMs?: number;
  /** Looked at after each step: stops when true. */
  readonly until?: () => boolean;
  readonly maxSteps?: number;
}

export type RunEnd = "until" | "time" | "steps" | "idle" | "stopped";

export class SimClock implements Clock {
  #elapsed = 0;
  #order = 0;
  #steps = 0;
  #stopped = false;
  readonly #heap: Entry[] = [];
  #soon: Entry[] = [];
  #soonAt = 0;

  now(): number {
    return simEpochMs + Math.floor(this.#elapsed);
  }

  monotonic(): number {
    return Math.floor(this.#elapsed);
  }

  /** True milliseconds since the simulation began, not rounded. */
  get elapsed(): number {
    return this.#elapsed;
  }

  /** Callbacks run so far. */
  get steps(): number {
    return this.#steps;
  }

  setTimeout(callback: () => void, ms: number): TimerHandle {
    return this.schedule(callback, ms, null);
  }

  clearTimeout(timer: TimerHandle): void {
    (timer as Entry).callback = null;
  }

  soon(callback: () => void): void {
    this.scheduleSoon(callback, null);
  }

  /** A view for one process. `skewMs` is added to its time; it runs `driftPpm` millionths faster (or, negative, slower). */
  forProcess(skewMs = 0, driftPpm = 0): ProcessClock {
    return new ProcessClock(this, skewMs, driftPpm);
  }

  /** `ms` is true time, at least 0. */
  schedule(callback: () => void, ms: number, owner: ProcessClock | null): TimerHandle {
    const wait = Number.isFinite(ms) && ms > 0 ? ms : 0;
    const entry = { deadline: this.#elapsed + wait + roundingMs, order: this.#order++, callback, owner } as Entry;
    this.#push(entry);
    return entry;
  }

  scheduleSoon(callback: () => void, owner: ProcessClock | null): void {
    this.#soon.push({ deadline: this.#elapsed, order: this.#order++, callback, owner } as Entry);
  }

  /** Runs the next callback, whose deadline may lie ahead; false when there is none. Does not wait for promises. */
  step(): boolean {
    return this.#step(Number.POSITIVE_INFINITY);
  }

  /** Runs what comes due within `ms`, without waiting for promises between, and sets the clock that much on. */
  advance(ms: number): void {
    const end = this.#elapsed + ms + 2 * roundingMs;
    while (this.#step(end));
    this.#elapsed = Math.max(this.#elapsed, end);
  }

  /** Ends the `run` under way after its present step. */
  stop(): void {
    this.#stopped = true;
  }

  /**
   * Runs callbacks one by one and settles promises between them, until one of the options says to stop or nothing is
   * left (`idle`). Real time passes only to let promises settle: a turn of the event loop comes after all of them.
   */
  async run(options: RunOptions = {}): Promise<RunEnd> {
    const end = options.untilMs === undefined ? Number.POSITIVE_INFINITY : options.untilMs - simEpochMs;
    const lastStep = this.#steps + (options.maxSteps ?? Number.POSITIVE_INFINITY);
    this.#stopped = false;
    for (;;) {
      await settle();
      if (this.#stopped) return "stopped";
      if (options.until?.() === true) return "until";
      if (this.#steps >= lastStep) return "steps";
      if (!this.#step(end)) {
        if (end === Number.POSITIVE_INFINITY) return "idle";
        this.#elapsed = Math.max(this.#elapsed, end);
        return "time";
      }
    }
  }

  #step(end: number): boolean {
    for (;;) {
      const soon = this.#nextSoon();
      const entry = soon ?? this.#pop(end);
      if (entry === null) return false;
      const { callback, owner } = entry;
      if (owner?.alive === false) continue;
      if (callback === null) {
        owner?.givesUpTurn(entry);
        continue;
      }
      if (owner?.isPaused === true) {
        owner.hold(entry);
        continue;
      }
      assert(
        entry.deadline >= this.#elapsed || entry.deadline <= this.#elapsed + roundingMs,
        "T1: time does not go back",
      );
      this.#elapsed = Math.max(this.#elapsed, entry.deadline);
      if (soon === null && owner?.takesTurn(entry) === false) continue;
      this.#steps += 1;
      entry.callback = null;
      try {
        callback();
      } catch (error) {
        if (owner === null || owner.onThrow === null) throw error;
        owner.onThrow(error);
      }
      return true;
    }
  }

  #nextSoon(): Entry | null {
    const entry = this.#soon[this.#soonAt];
    if (entry === undefined) return null;
    this.#soonAt += 1;
    if (this.#soonAt === this.#soon.length) {
      this.#soon = [];
      this.#soonAt = 0;
    }
    return entry;
  }

  /** Puts back what a paused process held, due now, in its old order. */
  release(entries: readonly TimerHandle[]): void {
    for (const entry of entries as readonly Entry[]) {
      entry.deadline = Math.max(entry.deadline, this.#elapsed);
      entry.order = this.#order++;
      this.#push(entry);
    }
  }

  /** Puts back what a slow process could not run yet: it is due again then, true time. */
  delay(entry: TimerHandle, until: number): void {
    const delayed = entry as Entry;
    delayed.deadline = Math.max(until, this.#elapsed);
    delayed.order = this.#order++;
    this.#push(delayed);
  }

  #push(entry: Entry): void {
    const heap = this.#heap;
    let at = heap.length;
    heap.push(entry);
    while (at > 0) {
      const parent = (at - 1) >> 1;
      const above = heap[parent] as Entry;
      if (before(above, entry)) break;
      heap[at] = above;
      at = parent;
    }
    heap[at] = entry;
  }

  #pop(end: number): Entry | null {
    const heap = this.#heap;
    const top = heap[0];
    if (top === undefined || top.deadline > end) return null;
    const last = heap.pop() as Entry;
    if (heap.length === 0) return top;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && before(heap[child + 1] as Entry, heap[child] as Entry)) child += 1;
      if (before(last, heap[child] as Entry)) break;
      heap[at] = heap[child] as Entry;
      at = child;
    }
    heap[at] = last;
    return top;
  }
}

/** One process's clock. Timers run by its own, possibly drifting, time; `after` waits in true time, as the network does. */
export class ProcessClock implements Clock {
  readonly #clock: SimClock;
  /** Of the wall clock alone. */
  #skewMs: number;
  readonly #rate: number;
  /** Gets what a callback of this process throws, which in the real world would end it. Without one, the step throws. */
  onThrow: ((error: unknown) => void) | null = null;
  #alive = true;
  #paused = false;
  #held: TimerHandle[] = [];
  /** What a callback takes, in milliseconds. */
  #costMs = 0;
  /** True time. */
  #busyUntil = 0;
  /** What came due while it was busy, and how many of these have had their turn. */
  #waiting: TimerHandle[] = [];
  #turn = 0;

  constructor(clock: SimClock, skewMs: number, driftPpm: number) {
    this.#clock = clock;
    this.#skewMs = skewMs;
    this.#rate = 1 + driftPpm / 1e6;
  }

  get alive(): boolean {
    return this.#alive;
  }

  get isPaused(): boolean {
    return this.#paused;
  }

  now(): number {
    return simEpochMs + Math.floor(this.#clock.elapsed * this.#rate + this.#skewMs);
  }

  monotonic(): number {
    return Math.floor(this.#clock.elapsed * this.#rate);
  }

  /** Somebody sets the wall clock of this process's machine: by `ms` forward, or back when negative. Timers do not notice (T5). */
  jump(ms: number): void {
    this.#skewMs += ms;
  }

  setTimeout(callback: () => void, ms: number): TimerHandle {
    return this.#clock.schedule(callback, ms / this.#rate, this);
  }

  clearTimeout(timer: TimerHandle): void {
    this.#clock.clearTimeout(timer);
  }

  soon(callback: () => void): void {
    this.#clock.scheduleSoon(callback, this);
  }

  /** Runs in this process after `ms` of true time. */
  after(ms: number, callback: () => void): TimerHandle {
    return this.#clock.schedule(callback, ms, this);
  }

  /** Everything that this process waits for is forgotten (T3). */
  kill(): void {
    this.#alive = false;
    this.#held = [];
    this.#waiting = [];
    this.#turn = 0;
  }

  pause(): void {
    this.#paused = true;
  }

  resume(): void {
    this.#paused = false;
    this.#clock.release(this.#held);
    this.#held = [];
  }

  hold(entry: TimerHandle): void {
    this.#held.push(entry);
  }

  /** From now on each callback takes so many milliseconds, as on a machine that is starved; 0: no time at all. T6 */
  slow(costMs: number): void {
    this.#costMs = costMs;
  }

  /** Whether the callback, which is due now, runs now. It does not while the process is busy: it has its turn later. */
  takesTurn(entry: TimerHandle): boolean {
    const { elapsed } = this.#clock;
    if (this.#waiting[this.#turn] === entry) this.#turn += 1;
    else if (this.#turn < this.#waiting.length || elapsed < this.#busyUntil) {
      this.#waiting.push(entry);
      if (this.#turn === this.#waiting.length - 1) this.#clock.delay(entry, this.#busyUntil);
      return false;
    }
    this.#busyUntil = elapsed + this.#costMs;
    this.#callNext();
    return true;
  }

  /** It was cancelled while it waited. */
  givesUpTurn(entry: TimerHandle): void {
    if (this.#waiting[this.#turn] !== entry) return;
    this.#turn += 1;
    this.#callNext();
  }

  #callNext(): void {
    const next = this.#waiting[this.#turn];
    if (next !== undefined) this.#clock.delay(next, this.#busyUntil);
    else if (this.#turn > 0) [this.#waiting, this.#turn] = [[], 0];
  }
}

function before(a: Entry, b: Entry): boolean {
  return a.deadline < b.deadline || (a.deadline === b.deadline && a.order < b.order);
}

/** Resolves when every promise that can settle without time passing has. */
export function settle(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
