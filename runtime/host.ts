/**
 * Runs machines as actors: gives each its address (its id), the process's clock and an error observer, and reports every
 * transition to inspectors. It is independent of any domain.
 *
 * H1: if an actor's machine throws, `onCrash` ends the process; nothing runs beside a broken actor.
 * H2: no two live actors of a host have the same id.
 * H3: without an inspector, no actor has an observer, and inspection costs nothing.
 */
import { createActor, type Actor, type AnyStateMachine, type InputFrom, type InspectionEvent } from "xstate";
import { ActorSystems, type ActorSystem } from "./actor-systems.ts";
import { assert } from "../lib/assert.ts";
import type { Clock, Subscription, Telemetry } from "./ports/index.ts";

/** One transition of one actor, in the form that leaves the process. */
export interface Inspection {
  readonly at: number;
  readonly actorId: string;
  readonly machine: string;
  /** The event's type. */
  readonly event: string;
  /** XState's state value, such as `"serving"` or `{ "link": "up" }`. */
  readonly state: unknown;
}

export interface HostOptions {
  readonly clock: Clock;
  readonly telemetry: Telemetry;
  /** Called with the error that an actor threw; the process must then exit. */
  readonly onCrash: (actorId: string, error: unknown) => void;
}

export interface HostedActor<Machine extends AnyStateMachine> {
  readonly id: string;
  readonly actor: Actor<Machine>;
  /** Stops the actor and forgets it; a second call does nothing. */
  stop(): void;
}

interface Live {
  readonly actor: Actor<AnyStateMachine>;
  readonly system: ActorSystem;
}

export class Host {
  readonly #options: HostOptions;
  readonly #live = new Map<string, Live>();
  readonly #provided = new WeakMap<AnyStateMachine, AnyStateMachine>();
  readonly #inspectors = new Set<(inspection: Inspection) => void>();
  readonly #systems: ActorSystems;

  constructor(options: HostOptions) {
    this.#options = options;
    this.#systems = new ActorSystems(options.clock, (id, error) => this.#onError(id, error));
  }

  /**
   * Starts `machine` under `id` (such as `session/n1`). The machine's effects must already be provided, except
   * `reportUnexpected`: the host logs and counts events that no state handles.
   */
  start<Machine extends AnyStateMachine>(
    machine: Machine,
    id: string,
    input: InputFrom<Machine>,
  ): HostedActor<Machine> {
    assert(!this.#live.has(id), `H2: actor ${id} is not live already`);
    const provided = this.#provide(machine);
    const system = this.#systems.enter();
    const actor = createActor(provided, { id, input, parent: system.root } as never) as Actor<Machine>;
    const live: Live = { actor: actor as unknown as Actor<AnyStateMachine>, system };
    this.#live.set(id, live);
    actor.start();
    return {
      id,
      actor,
      stop: () => {
        if (this.#live.get(id) === live) this.#stop(live);
      },
    };
  }

  /** Once for each machine, however many actors run it: providing builds a whole new chart. */
  #provide<Machine extends AnyStateMachine>(machine: Machine): Machine {
    const known = this.#provided.get(machine);
    if (known !== undefined) return known as Machine;
    const { telemetry } = this.#options;
    const unexpected = telemetry.metrics.counter(
      "muster_actor_unexpected_events_total",
      "Events that an actor's state does not handle.",
    );
    const provided = machine.provide({
      actions: {
        reportUnexpected: ({ event, self }: { event: { type: string }; self: { id: string } }) => {
          unexpected.add(1, { machine: machine.id, event: event.type });
          telemetry.log.debug({ actor: self.id, event: event.type }, "event not expected in this state");
        },
      },
    } as never) as Machine;
    this.#provided.set(machine, provided);
    return provided;
  }

  /** The live actor with that id, for reading its state rather than sending it events. */
  find(id: string): Actor<AnyStateMachine> | undefined {
    return this.#live.get(id)?.actor;
  }

  /** Ids of all live actors, in start order. */
  ids(): Iterable<string> {
    return this.#live.keys();
  }

  inspect(inspector: (inspection: Inspection) => void): Subscription {
    this.#inspectors.add(inspector);
    if (this.#inspectors.size === 1) this.#systems.inspect((event) => this.#show(event));
    return {
      unsubscribe: () => {
        this.#inspectors.delete(inspector);
        if (this.#inspectors.size === 0) this.#systems.inspect(null);
      },
    };
  }

  stopAll(): void {
    for (const live of [...this.#live.values()].reverse()) this.#stop(live);
  }

  #stop({ actor, system }: Live): void {
    this.#live.delete(actor.id);
    this.#systems.stop(system, actor);
  }

  /** H1 */
  #onError(id: string, error: unknown): void {
    const live = this.#live.get(id);
    if (live === undefined) return;
    this.#live.delete(id);
    this.#systems.leave(live.system);
    this.#options.onCrash(id, error);
  }

  #show(event: InspectionEvent): void {
    if (event.type !== "@xstate.snapshot") return;
    const actor = event.actorRef as Actor<AnyStateMachine>;
    const inspection: Inspection = {
      at: this.#options.clock.now(),
      actorId: actor.id,
      machine: actor.logic.id,
      event: event.event.type,
      state: (event.snapshot as { value?: unknown }).value ?? null,
    };
    for (const inspector of this.#inspectors) inspector(inspection);
  }
}
