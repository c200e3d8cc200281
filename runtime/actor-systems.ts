/**
 * The systems that XState's actors stand in. An actor without a parent makes one of its own, with maps and functions that
 * nobody uses: half of what it takes (1.9 of 3.8 kB). So they share: each is the child of a root, which does nothing but
 * stop them.
 *
 * Y1: the end of an actor costs the same however many there are. XState looks through the timers of the whole system then,
 *     so no system has more than `actorsMax`.
 * Y2: a system is forgotten with the last of its actors.
 */
import { createActor, setup, stopChild, type Actor, type AnyActorRef, type InspectionEvent } from "xstate";
import type { Clock, Subscription, TimerHandle } from "./ports.ts";

/** A system for so many adds 2 % to what an actor takes. */
const actorsMax = 64;

type RootEvent =
  | { readonly type: "actor.stop"; readonly actor: AnyActorRef }
  /** XState's, when an actor of the system throws. */
  | { readonly type: `xstate.error.actor.${string}`; readonly actorId: string; readonly error: unknown };

const rootMachine = setup({
  types: { events: {} as RootEvent },
  actions: { reportError: (_args, _params: { readonly actorId: string; readonly error: unknown }) => {} },
}).createMachine({
  id: "root",
  on: {
    "actor.stop": { actions: stopChild(({ event }) => event.actor) },
    "xstate.error.actor.*": { actions: { type: "reportError", params: ({ event }) => event } },
    // What it is told of the ends of its actors.
    "*": {},
  },
});

export interface ActorSystem {
  readonly root: Actor<typeof rootMachine>;
  actors: number;
  watch: Subscription | null;
}

export class ActorSystems {
  readonly #clock: {
    setTimeout(fn: () => void, ms: number): TimerHandle;
    clearTimeout(timer: TimerHandle): void;
  };
  readonly #systems = new Set<ActorSystem>();
  readonly #machine: typeof rootMachine;
  #newest: ActorSystem | null = null;
  #inspector: ((event: InspectionEvent) => void) | null = null;

  /** `onError`: an actor has thrown, and is no more; it still has to `leave`. */
  constructor(clock: Clock, onError: (actorId: string, error: unknown) => void) {
    this.#machine = rootMachine.provide({
      actions: { reportError: (_, { actorId, error }) => onError(actorId, error) },
    });
    this.#clock = {
      setTimeout: (callback, ms) => clock.setTimeout(callback, ms),
      clearTimeout: (timer) => clock.clearTimeout(timer),
    };
  }

  /** The one for the next actor: its `root` is to be the actor's parent. */
  enter(): ActorSystem {
    if (this.#newest === null || this.#newest.actors === actorsMax) {
      const root = createActor(this.#machine, { id: "root", clock: this.#clock as never }).start();
      this.#newest = { root, actors: 0, watch: null };
      this.#systems.add(this.#newest);
      this.#watch(this.#newest);
    }
    this.#newest.actors += 1;
    return this.#newest;
  }

  /** The actor has ended. */
  leave(system: ActorSystem): void {
    system.actors -= 1;
    if (system.actors > 0) return;
    this.#systems.delete(system);
    if (this.#newest === system) this.#newest = null;
  }

  stop(system: ActorSystem, actor: AnyActorRef): void {
    system.root.send({ type: "actor.stop", actor });
    this.leave(system);
  }

  /** Shows everything that happens to actors; null shows nothing any more. */
  inspect(inspector: ((event: InspectionEvent) => void) | null): void {
    this.#inspector = inspector;
    for (const system of this.#systems) this.#watch(system);
  }

  #watch(system: ActorSystem): void {
    system.watch?.unsubscribe();
    const inspector = this.#inspector;
    system.watch =
      inspector === null
        ? null
        : system.root.system.inspect((event: InspectionEvent) => {
            if (event.actorRef !== system.root) inspector(event);
          });
  }
}
