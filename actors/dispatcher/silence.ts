/**
 * Notices that a node fell silent. A sign of life costs two numbers: the timer is not armed anew for each, but looks, when
 * it ends, how much of the newest grace is left.
 */
import type { Clock, TimerHandle } from "../../runtime/ports.ts";

/** Looks fall on common ticks, in milliseconds, but for the last: one wake-up of a sleeping process serves many nodes. */
const tickMs = 1_000;

export class Silence {
  /** When the last sign of life came. */
  heardAt: number;
  /** How long the node may be silent from then on, in milliseconds. */
  graceMs: number;
  readonly #clock: Clock;
  readonly #onSilent: () => void;
  #timer: TimerHandle | null = null;
  /** When the timer ends. */
  #looksAt = 0;

  constructor(clock: Clock, life: { readonly at: number; readonly graceMs: number }, onSilent: () => void) {
    this.#clock = clock;
    this.#onSilent = onSilent;
    this.heardAt = life.at;
    this.graceMs = life.graceMs;
  }

  /** When the grace is over, unless the node is heard before. */
  get dueAt(): number {
    return this.heardAt + this.graceMs;
  }

  note(at: number, graceMs: number): void {
    this.heardAt = at;
    this.graceMs = graceMs;
    // The cluster's period became much shorter.
    if (this.#timer !== null && this.dueAt < this.#looksAt) this.await();
  }

  /** Calls back once, at the end of the grace. */
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
