/**
 * The timers of the actors of one system, in place of XState's, which name each timer by a new text and keep it in two objects under
 * that name.
 *
 * AT1: the cost of arming, cancelling and ending depends on the timers of one actor only. An actor has a few.
 */
import type { AnyActorRef } from "xstate";
import type { Clock, TimerHandle } from "../ports/index.ts";

interface Event {
  readonly type: string;
}

export interface ArmedTimer {
  readonly id: string;
  readonly source: AnyActorRef;
  readonly event: Event;
  readonly delay: number;
  /** Milliseconds since the epoch. */
  readonly armedAtMs: number;
}

interface Armed extends ArmedTimer {
  handle: TimerHandle | null;
  /** Another timer of the same actor. */
  next: Armed | null;
}

/** The parts of XState's systems that deliver delayed events. */
interface TimedSystem {
  readonly scheduler: {
    schedule(source: AnyActorRef, target: AnyActorRef, event: Event, delay: number, id?: string): void;
    cancel(source: AnyActorRef, id: string): void;
    cancelAll(actor: AnyActorRef): void;
  };
  _relay(source: AnyActorRef, target: AnyActorRef, event: Event): void;
}

const timersBySystem = new WeakMap<object, ActorTimers>();

/** Takes over the timers of a system, before an actor arms one. */
export function keepTimers(clock: Clock, system: AnyActorRef["system"]): void {
  timersBySystem.set(system, new ActorTimers(clock, system));
}

/** The armed timers of a system that has been given to `keepTimers`. */
export function armedIn(system: object): Iterable<ArmedTimer> {
  return timersBySystem.get(system)?.all() ?? [];
}

class ActorTimers {
  readonly #clock: Clock;
  readonly #system: TimedSystem;
  /** By actor: the timer armed last. */
  readonly #newest = new Map<AnyActorRef, Armed>();
  #unnamed = 0;

  constructor(clock: Clock, system: AnyActorRef["system"]) {
    this.#clock = clock;
    this.#system = system as unknown as TimedSystem;
    Object.assign(this.#system.scheduler, {
      schedule: this.#arm.bind(this),
      cancel: this.#cancel.bind(this),
      cancelAll: this.#cancelAll.bind(this),
    } satisfies TimedSystem["scheduler"]);
  }

  *all(): Generator<ArmedTimer> {
    for (const newest of this.#newest.values())
      for (let timer: Armed | null = newest; timer !== null; timer = timer.next) yield timer;
  }

  #arm(source: AnyActorRef, target: AnyActorRef, event: Event, delay: number, id?: string): void {
    const timer: Armed = {
      id: id ?? `unnamed.${(this.#unnamed += 1)}`,
      source,
      event,
      delay,
      armedAtMs: this.#clock.now(),
      handle: null,
      next: this.#newest.get(source) ?? null,
    };
    this.#newest.set(source, timer);
    timer.handle = this.#clock.setTimeout(() => {
      this.#forget(timer);
      this.#system._relay(source, target, event);
    }, delay);
  }

  #cancel(source: AnyActorRef, id: string): void {
    for (let timer = this.#newest.get(source) ?? null; timer !== null; timer = timer.next) {
      if (timer.id !== id) continue;
      this.#forget(timer);
      this.#clock.clearTimeout(timer.handle as TimerHandle);
      return;
    }
  }

  #cancelAll(source: AnyActorRef): void {
    let timer = this.#newest.get(source) ?? null;
    this.#newest.delete(source);
    for (; timer !== null; timer = timer.next) this.#clock.clearTimeout(timer.handle as TimerHandle);
  }

  #forget(timer: Armed): void {
    const { source } = timer;
    let before: Armed | null = null;
    for (let each = this.#newest.get(source) ?? null; each !== null; before = each, each = each.next) {
      if (each !== timer) continue;
      if (before !== null) before.next = timer.next;
      else if (timer.next !== null) this.#newest.set(source, timer.next);
      else this.#newest.delete(source);
      return;
    }
  }
}
