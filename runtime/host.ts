/**
 * Runs machines as actors: gives each its address (its id), its effects, the process's clock and an error observer, and shows
 * every step to observers. It is independent of any domain.
 *
 * H1: if an actor's machine throws, `onCrash` ends the process; nothing runs beside a broken actor.
 * H2: no two live actors of a host have the same id.
 * H3: without an observer of the host, nothing watches an actor, and observation costs nothing.
 * H4: no actor starts without all effects of its machine.
 * H5: an actor that has ended or was stopped gets no events: what answers late finds nobody.
 * H6: an observer that throws does not disturb an actor.
 */
import {
  createActor,
  type Actor,
  type AnyStateMachine,
  type EventFromLogic,
  type InputFrom,
  type SnapshotFrom,
  type StateMachine,
} from "xstate";
import { ActorSystems, type ActorSystem } from "./actor-systems.ts";
import { assert } from "../lib/assert.ts";
import {
  actingActors,
  namesOf,
  ownedBy,
  providedMachine,
  type ActingActor,
  type AnyOwner,
} from "./steps/provided-machine.ts";
import { watchCauses } from "./observation/cause.ts";
import { StepWatch } from "./observation/step-watch.ts";
import type { ObservedActor, StepObserver } from "./observation/step.ts";
import { TableActors } from "./observation/table-actors.ts";
import type { Clock, Subscription, Telemetry } from "./ports/index.ts";

export interface HostOptions {
  readonly clock: Clock;
  readonly telemetry: Telemetry;
  /** Called with the error that an actor threw; the process must then exit. */
  readonly onCrash: (actorId: string, error: unknown) => void;
}

/** Effects and drawn delays in the machine's type (`machines/chart.ts`). */
type DeclaredBy<Machine> =
  Machine extends StateMachine<
    infer _Context,
    infer _Event,
    infer _Children,
    infer _Actor,
    infer _Action,
    infer _Guard,
    infer _Delay,
    infer _StateValue,
    infer _Tag,
    infer _Input,
    infer _Output,
    infer _Emitted,
    infer _Meta,
    infer Declared,
    infer _TransitionMeta
  >
    ? Declared
    : never;

/** The machine's effects by name. Each gets the action's params and the actor that acts. */
export type EffectsOf<Machine extends AnyStateMachine, Self = undefined> =
  DeclaredBy<Machine> extends { readonly effects: infer Effects }
    ? {
        readonly [Name in keyof Effects]: (
          this: Self,
          params: Effects[Name] extends (params: infer Params) => void ? Params : never,
          actor: HostedActor<Machine>,
        ) => void;
      }
    : never;

/** Supplies what the machine leaves open. */
export type Owner<Machine extends AnyStateMachine, Self = undefined> = {
  readonly effects: EffectsOf<Machine, NoInfer<Self>>;
  /**
   * `this` of the effects, when owners share one set of functions: own functions would cost an idle node's session 0.7 kB more.
   */
  readonly self?: Self;
} & (DeclaredBy<Machine> extends { readonly drawnDelays: string }
  ? [DeclaredBy<Machine>["drawnDelays"]] extends [never]
    ? unknown
    : {
        /** Draws a randomized delay; the chart has its bound, in milliseconds. */
        readonly draw: (boundMs: number) => number;
      }
  : unknown);

export interface HostedActor<Machine extends AnyStateMachine> {
  readonly id: string;
  readonly snapshot: SnapshotFrom<Machine>;
  /** H5 */
  send(event: EventFromLogic<Machine>): void;
  /** Sends the event as soon as this turn of the event loop is over, so that the commits of one turn lead to one round. */
  sendSoon(event: EventFromLogic<Machine>): void;
  /** Stops the actor and forgets it; a second call does nothing. */
  stop(): void;
}

/** The parts of a host that its actors share. */
interface Home {
  readonly clock: Clock;
  /** Wraps what comes in a later turn, so that observers see where it began. */
  later(act: () => void): () => void;
  leave(live: Live): void;
  reportUnexpected(actorId: string, machine: string, event: string): void;
}

/** Not generic: a host has actors of all machines. */
class Live implements HostedActor<AnyStateMachine>, ActingActor {
  readonly actor: Actor<AnyStateMachine>;
  readonly system: ActorSystem;
  readonly owner: AnyOwner;
  /** Milliseconds since the epoch. */
  readonly startedAtMs: number;
  readonly #home: Home;

  constructor(home: Home, actor: Actor<AnyStateMachine>, system: ActorSystem, owner: AnyOwner) {
    this.#home = home;
    this.actor = actor;
    this.system = system;
    this.owner = owner;
    this.startedAtMs = home.clock.now();
  }

  get id(): string {
    return this.actor.id;
  }

  get snapshot(): SnapshotFrom<AnyStateMachine> {
    return this.actor.getSnapshot();
  }

  send(event: EventFromLogic<AnyStateMachine>): void {
    if (this.snapshot.status === "active") this.actor.send(event);
  }

  sendSoon(event: EventFromLogic<AnyStateMachine>): void {
    this.#home.clock.soon(this.#home.later(() => this.send(event)));
  }

  stop(): void {
    this.#home.leave(this);
  }

  reportUnexpected(event: string): void {
    this.#home.reportUnexpected(this.id, this.actor.logic.id, event);
  }
}

export class Host {
  readonly #options: HostOptions;
  readonly #live = new Map<string, Live>();
  readonly #observers = new Set<StepObserver>();
  #watch: StepWatch | null = null;
  /** Actors of charts that tables run. */
  readonly tables: TableActors;
  readonly #systems: ActorSystems;
  readonly #home: Home;

  constructor(options: HostOptions) {
    this.#options = options;
    const { log, metrics } = options.telemetry;
    const unexpected = metrics.counter(
      "muster_actor_unexpected_events_total",
      "Events that an actor's state does not handle.",
    );
    this.#home = {
      clock: options.clock,
      later: (act) => this.#watch?.later(act) ?? act,
      leave: (live) => {
        if (this.#live.get(live.id) === live) this.#stop(live);
      },
      reportUnexpected: (actor, machine, event) => {
        unexpected.add(1, { machine, event });
        log.debug({ actor, event }, "event not expected in this state");
      },
    };
    this.tables = new TableActors(options.clock);
    this.#systems = new ActorSystems(options.clock, (id, error) => this.#onError(id, error));
  }

  /** Starts `machine` under `id` (such as `session/n1`). H4 */
  start<Machine extends AnyStateMachine, Self = undefined>(
    machine: Machine,
    id: string,
    input: InputFrom<Machine>,
    owner: Owner<Machine, Self>,
  ): HostedActor<Machine> {
    assert(!this.#live.has(id), `H2: actor ${id} is not live already`);
    const supplied = owner as unknown as AnyOwner;
    const { effects, drawnDelays } = namesOf(machine);
    for (const name of effects)
      assert(typeof supplied.effects[name] === "function", `H4: effect ${name} of ${id} is supplied`);
    assert(drawnDelays.length === 0 || supplied.draw !== undefined, `H4: a draw for the delays of ${id} is supplied`);
    const system = this.#systems.enter();
    const actor = ownedBy(supplied, () =>
      createActor(providedMachine(machine), { id, input, parent: system.root } as never),
    ) as Actor<AnyStateMachine>;
    const live = new Live(this.#home, actor, system, supplied);
    this.#live.set(id, live);
    actingActors.set(actor, live);
    actor.start();
    return live as unknown as HostedActor<Machine>;
  }

  /** The live actor with that id, for reading its state rather than sending it events. */
  find(id: string): Actor<AnyStateMachine> | undefined {
    return this.#live.get(id)?.actor;
  }

  /** Ids of all live actors, in start order. */
  ids(): Iterable<string> {
    return this.#live.keys();
  }

  /** The live actor with that id, as observers see it; undefined also while nobody observes. */
  look(id: string): ObservedActor | undefined {
    const watch = this.#watch;
    if (watch === null) return undefined;
    const live = this.#live.get(id);
    return live === undefined ? this.tables.look(id, watch) : watch.look(live.actor);
  }

  /** Wraps what an effect does in a later turn, so that observers see from which actor it comes. */
  later(act: () => void): () => void {
    return this.#home.later(act);
  }

  /** Shows each step of every actor, from now on. H3, H6 */
  observe(observer: StepObserver): Subscription {
    this.#observers.add(observer);
    const causes = watchCauses();
    if (this.#watch === null) this.#startWatching();
    return {
      unsubscribe: () => {
        if (!this.#observers.delete(observer)) return;
        causes.unsubscribe();
        if (this.#observers.size > 0) return;
        this.#watch?.close();
        this.#watch = null;
        this.tables.watch(null);
        this.#systems.inspect(null);
      },
    };
  }

  #startWatching(): void {
    const watch = new StepWatch(this.#options.clock, (step) => {
      for (const observer of this.#observers)
        try {
          observer(step);
        } catch (error) {
          this.#reportFailed(error);
        }
    });
    const systems = new Set<object>();
    for (const { actor, startedAtMs } of this.#live.values()) {
      if (actor.getSnapshot().status !== "active") continue;
      watch.add(actor, startedAtMs);
      systems.add(actor.system);
    }
    for (const system of systems) watch.addTimers(system);
    this.#watch = watch;
    this.tables.watch((show) => this.#guarded(() => show(watch)));
    // Several events a step: without a closure for each.
    this.#systems.inspect((event) => {
      try {
        watch.see(event);
      } catch (error) {
        this.#reportFailed(error);
      }
    });
  }

  /** H6 */
  #guarded(observe: () => void): void {
    try {
      observe();
    } catch (error) {
      this.#reportFailed(error);
    }
  }

  #reportFailed(error: unknown): void {
    this.#options.telemetry.log.error({ error: String(error) }, "cannot show a step of an actor");
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
    const watch = this.#watch;
    if (watch !== null) this.#guarded(() => watch.fail(live.actor));
    this.#live.delete(id);
    this.#systems.leave(live.system);
    this.#options.onCrash(id, error);
  }
}
