/**
 * Detects that a node has fallen silent. A sign of life costs two numbers: the timer is not restarted for each, but checks,
 * when it fires, how much of the newest grace period is left.
 */
import type { Clock, TimerHandle } from "../../runtime/ports.ts";

/** Timers fire on common ticks (in milliseconds), except the last: one wake-up of a sleeping process serves many nodes. */
const tickMs = 1_000;

export class Silence {
  /** When the last sign of life came. */
  heardAt: number;
  /** Grace period from then on, in milliseconds. */
  graceMs: number;
  readonly #clock: Clock;
  readonly #onSilent: () => void;
  #timer: TimerHandle | null = null;
  /** When the timer fires. */
  #looksAt = 0;

  constructor(clock: Clock, life: { readonly at: number; readonly graceMs: number }, onSilent: () => void) {
    this.#clock = clock;
    this.#onSilent = onSilent;
    this.heardAt = life.at;
    this.graceMs = life.graceMs;
  }

  /** When the grace period ends, unless the node is heard before. */
  get dueAt(): number {
    return this.heardAt + this.graceMs;
  }

  note(at: number, graceMs: number): void {
    this.heardAt = at;
    this.graceMs = graceMs;
    // The cluster's heartbeat period became much shorter.
    if (this.#timer !== null && this.dueAt < this.#looksAt) this.await();
  }

  /** Calls back once, at the end of the grace period. */
  await(): void {
    this.stop();
    const now = this.#clock.monotonic();
    const tick = Math.floor(this.dueAt / tickMs) * tickMs;
    this.#looksAt = tick > now ? tick : this.dueAt;
    this.#timer = this.#clock.setTimeout(() => {
      this.#timer = null;
      if (this.#clock.monotonic() < this.dueAt) this.await();
      else this.#onSilent();
    }, this.#looksAt - now);
  }

  stop(): void {
    if (this.#timer !== null) this.#clock.clearTimeout(this.#timer);
    this.#timer = null;
  }
}
