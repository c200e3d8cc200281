/**
 * Fires when a node has sent no sign of life for its whole grace period. A sign of life only updates two numbers: the timer
 * is not re-armed each time, but checks on expiry how much of the newest grace period is left.
 */
import type { Clock, TimerHandle } from "../../runtime/ports/index.ts";

/** Timers expire on common ticks, in milliseconds, except the last one: one wake-up of the process serves many nodes. */
const tickMs = 1_000;

export class HeartbeatTimer {
  /** Monotonic time of the last sign of life, in milliseconds. */
  heardAt: number;
  /** How long the node may be silent after that, in milliseconds. */
  graceMs: number;
  readonly #clock: Clock;
  readonly #onMissed: () => void;
  #timer: TimerHandle | null = null;
  #expiresAt = 0;

  constructor(clock: Clock, life: { readonly at: number; readonly graceMs: number }, onMissed: () => void) {
    this.#clock = clock;
    this.#onMissed = onMissed;
    this.heardAt = life.at;
    this.graceMs = life.graceMs;
  }

  /** When the grace period ends unless there is another sign of life. */
  get dueAt(): number {
    return this.heardAt + this.graceMs;
  }

  heard(at: number, graceMs: number): void {
    this.heardAt = at;
    this.graceMs = graceMs;
    // The cluster's heartbeat period has become much shorter.
    if (this.#timer !== null && this.dueAt < this.#expiresAt) this.start();
  }

  /** Calls back once, at the end of the grace period. */
  start(): void {
    this.stop();
    const now = this.#clock.monotonic();
    const tick = Math.floor(this.dueAt / tickMs) * tickMs;
    this.#expiresAt = tick > now ? tick : this.dueAt;
    this.#timer = this.#clock.setTimeout(() => {
      this.#timer = null;
      if (this.#clock.monotonic() < this.dueAt) this.start();
      else this.#onMissed();
    }, this.#expiresAt - now);
  }

  stop(): void {
    if (this.#timer !== null) this.#clock.clearTimeout(this.#timer);
    this.#timer = null;
  }
}
