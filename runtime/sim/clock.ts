/**
 * Virtual time. Nothing waits: the clock jumps from one deadline to the next, and callbacks with the same deadline run in the
 * order in which they were scheduled. Each simulated process has its own view (`ProcessClock`), which may be skewed, drift,
 * stop (a paused process) or die with its timers (a crashed one).
 *
 * T1: time never goes back, and no callback runs before its deadline.
 * T2: a callback scheduled with `soon` runs after the current one and before any later timer.
 * T3: no callback of a dead process runs.
 * T5: a jump of a process's wall clock affects neither its timers nor `monotonic`.
 * T4: a paused process runs nothing; overdue callbacks run in order when it resumes.
 * T6: a slow process runs one callback at a time, each for the configured duration; callbacks that fall due meanwhile wait in
 *     due order. Callbacks that it schedules with `soon` count as part of it.
 */
import { assert } from "../../lib/assert.ts";
import type { Clock, TimerHandle } from "../ports/index.ts";
import { DeadlineHeap } from "./deadline-heap.ts";

/** 1 January 2026: the start of virtual time, so that times look realistic. */
const simEpochMs = Date.UTC(2026, 0, 1);

/** Milliseconds added to each timer, so that rounding never shows a timer a clock that is short of its deadline (T1). */
const roundingMs = 1e-6;

/**
 * Steps of a run in one turn of the event loop: a turn costs 1.5 µs more, and without any, the process would not see signals, nor report
 * promises that were rejected and not handled.
 */
const stepsOfTurn = 64;

const settled = Promise.resolve();

/** With fewer cancelled timers than this, or fewer than half of all, the heap keeps them until they are due. */
const cancelledMin = 256;

interface Entry extends TimerHandle {
  /** True time since the start of the simulation. */
  deadline: number;
  order: number;
  callback: (() => void) | null;
  owner: ProcessClock | null;
}

interface RunOptions {
  /** Stops before the first timer later than this virtual time (as in `SimClock.now`), and sets the clock to it. */
  readonly untilMs?: number;
  /** Evaluated after each step: stops when true. */
  readonly until?: () => boolean;
  readonly maxSteps?: number;
}

type RunEnd = "until" | "time" | "steps" | "idle" | "stopped";

export class SimClock implements Clock {
  #elapsed = 0;
  #order = 0;
  #steps = 0;
  #stopped = false;
  readonly #heap = new DeadlineHeap<Entry>();
  /** Timers cancelled since the heap was last cleared of them. */
  #cancelled = 0;
  #soon: Entry[] = [];
  #soonAt = 0;

  now(): number {
    return simEpochMs + Math.floor(this.#elapsed);
  }

  monotonic(): number {
    return Math.floor(this.#elapsed);
  }

  /** True milliseconds since the start of the simulation, not rounded. */
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
    const entry = timer as Entry;
    if (entry.callback === null) return;
    entry.callback = null;
    this.#cancelled += 1;
    if (this.#cancelled < cancelledMin || 2 * this.#cancelled < this.#heap.size) return;
    this.#cancelled = 0;
    this.#heap.keep((each) => each.callback !== null || each.owner?.awaits(each) === true);
  }

  soon(callback: () => void): void {
    this.scheduleSoon(callback, null);
  }

  /** A view for one process. `skewMs` is added to its time; it runs faster by `driftPpm` millionths (slower if negative). */
  forProcess(skewMs = 0, driftPpm = 0): ProcessClock {
    return new ProcessClock(this, skewMs, driftPpm);
  }

  /** `ms` is true time, at least 0. */
  schedule(callback: () => void, ms: number, owner: ProcessClock | null): TimerHandle {
    const wait = Number.isFinite(ms) && ms > 0 ? ms : 0;
    const entry = { deadline: this.#elapsed + wait + roundingMs, order: this.#order++, callback, owner } as Entry;
    this.#heap.push(entry);
    return entry;
  }

  scheduleSoon(callback: () => void, owner: ProcessClock | null): void {
    this.#soon.push({ deadline: this.#elapsed, order: this.#order++, callback, owner } as Entry);
  }

  /** Runs the next callback, even if its deadline is in the future; false if there is none. Does not wait for promises. */
  step(): boolean {
    return this.#step(Number.POSITIVE_INFINITY);
  }

  /** Runs the callbacks due within `ms`, without waiting for promises in between, and advances the clock by `ms`. */
  advance(ms: number): void {
    const end = this.#elapsed + ms + 2 * roundingMs;
    while (this.#step(end));
    this.#elapsed = Math.max(this.#elapsed, end);
  }

  /** Ends the current `run` after its current step. */
  stop(): void {
    this.#stopped = true;
  }

  /**
   * Runs callbacks one by one and settles promises between them, until an option stops it or nothing is left (`idle`). Real
   * time passes only to let promises settle.
   */
  run(options: RunOptions = {}): Promise<RunEnd> {
    const { maxSteps = Number.POSITIVE_INFINITY, until, untilMs } = options;
    const end = untilMs === undefined ? Number.POSITIVE_INFINITY : untilMs - simEpochMs;
    const lastStep = this.#steps + maxSteps;
    this.#stopped = false;
    const next = (): RunEnd | null => {
      if (this.#stopped) return "stopped";
      if (until?.() === true) return "until";
      if (this.#steps >= lastStep) return "steps";
      if (this.#step(end)) return null;
      if (end === Number.POSITIVE_INFINITY) return "idle";
      this.#elapsed = Math.max(this.#elapsed, end);
      return "time";
    };
    return new Promise((resolve, reject) => {
      let turns = 1;
      // Without a promise and an asynchronous function for each step: they would take longer than the rest of the clock.
      const go = (): void => {
        try {
          const ended = next();
          if (ended !== null) return resolve(ended);
        } catch (error) {
          return reject(error as Error);
        }
        if (turns++ % stepsOfTurn === 0) setImmediate(go);
        else void settled.then(tick);
      };
      // Node empties the queue of promises completely before its own queue of ticks.
      const tick = (): void => process.nextTick(go);
      setImmediate(go);
    });
  }

  #step(end: number): boolean {
    for (;;) {
      const soon = this.#nextSoon();
      const entry = soon ?? this.#heap.pop(end);
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

  /** Reschedules what a paused process held back: due now, in the original order. */
  release(entries: readonly TimerHandle[]): void {
    for (const entry of entries as readonly Entry[]) {
      entry.deadline = Math.max(entry.deadline, this.#elapsed);
      entry.order = this.#order++;
      this.#heap.push(entry);
    }
  }

  /** Reschedules a callback that a slow process could not run yet, at this true time. */
  delay(entry: TimerHandle, until: number): void {
    const delayed = entry as Entry;
    delayed.deadline = Math.max(until, this.#elapsed);
    delayed.order = this.#order++;
    this.#heap.push(delayed);
  }
}

/** One process's clock. Timers run by its own, possibly drifting, time; `after` waits in true time, as the network does. */
export class ProcessClock implements Clock {
  readonly #clock: SimClock;
  /** Affects the wall clock only. */
  #skewMs: number;
  readonly #rate: number;
  /** Receives what a callback of this process throws, which would end a real process. Without it, the step throws. */
  onThrow: ((error: unknown) => void) | null = null;
  #alive = true;
  #paused = false;
  #held: TimerHandle[] = [];
  /** Duration of a callback, in milliseconds. */
  #costMs = 0;
  /** True time. */
  #busyUntil = 0;
  /** Callbacks that fell due while it was busy, and how many of them have had their turn. */
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

  /** Sets the wall clock of this process's machine forward by `ms` (back if negative). Timers are not affected (T5). */
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

  /** Discards everything that this process waits for (T3). */
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

  /** From now on each callback takes `costMs`, as on a starved machine; 0 turns this off. T6 */
  slow(costMs: number): void {
    this.#costMs = costMs;
  }

  /** Whether the callback, which is due, runs now. While the process is busy, it gets its turn later. */
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

  /** Whether the callback is the next of those that wait while the process is busy. */
  awaits(entry: TimerHandle): boolean {
    return this.#waiting[this.#turn] === entry;
  }

  /** The callback was cancelled while it waited. */
  givesUpTurn(entry: TimerHandle): void {
    if (!this.awaits(entry)) return;
    this.#turn += 1;
    this.#callNext();
  }

  #callNext(): void {
    const next = this.#waiting[this.#turn];
    if (next !== undefined) this.#clock.delay(next, this.#busyUntil);
    else if (this.#turn > 0) [this.#waiting, this.#turn] = [[], 0];
  }
}

/** Resolves when every promise that can settle without time passing has settled: a turn of the event loop comes after all. */
export function settle(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
