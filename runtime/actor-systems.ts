/**
 * The systems that XState's actors belong to. An actor without a parent creates its own, with maps and functions that nobody
 * uses: half of its memory (1.9 of 3.8 kB). So actors share systems: each is the child of a root, which only stops its
 * children.
 *
 * Y1: the cost of ending an actor does not depend on the number of actors: timers are kept by actor (steps/actor-timers.ts).
 * Y2: a system is dropped with the last of its actors, and has at most `actorsMax`, so that few live actors keep few systems.
 */
import { createActor, setup, stopChild, type Actor, type AnyActorRef, type InspectionEvent } from "xstate";
import { keepTimers } from "./steps/actor-timers.ts";
import { noteInspectors } from "./steps/inspectors.ts";
import type { Clock, Subscription } from "./ports/index.ts";

/** A system for this many actors adds 2 % to the memory of each. */
const actorsMax = 64;

type RootEvent =
  | { readonly type: "actor.stop"; readonly actor: AnyActorRef }
  | { readonly type: `xstate.error.actor.${string}`; readonly actorId: string; readonly error: unknown };

const rootMachine = setup({
  types: { events: {} as RootEvent },
  actions: { reportError: (_args, _params: { readonly actorId: string; readonly error: unknown }) => {} },
}).createMachine({
  id: "root",
  on: {
    "actor.stop": { actions: stopChild(({ event }) => event.actor) },
    "xstate.error.actor.*": { actions: { type: "reportError", params: ({ event }) => event } },
    // Notifications that its actors have ended.
    "*": {},
  },
});

export interface ActorSystem {
  readonly root: Actor<typeof rootMachine>;
  actors: number;
  watch: Subscription | null;
}

export class ActorSystems {
  readonly #clock: Clock;
  readonly #systems = new Set<ActorSystem>();
  readonly #machine: typeof rootMachine;
  #newest: ActorSystem | null = null;
  #inspector: ((event: InspectionEvent) => void) | null = null;

  /** `onError`: an actor has thrown and stopped; it still has to `leave`. */
  constructor(clock: Clock, onError: (actorId: string, error: unknown) => void) {
    this.#machine = rootMachine.provide({
      actions: { reportError: (_, { actorId, error }) => onError(actorId, error) },
    });
    this.#clock = clock;
  }

  /** The system for the next actor, whose parent must be its `root`. */
  enter(): ActorSystem {
    if (this.#newest === null || this.#newest.actors === actorsMax) {
      const root = createActor(this.#machine, { id: "root" });
      keepTimers(this.#clock, root.system);
      noteInspectors(root.system);
      root.start();
      this.#newest = { root, actors: 0, watch: null };
      this.#systems.add(this.#newest);
      this.#watch(this.#newest);
    }
    this.#newest.actors += 1;
    return this.#newest;
  }

  /** The actor has stopped. */
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

  /** Shows every event of every actor; null turns inspection off. */
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
