/**
 * Actors of charts that tables run (`machines/flat.ts`). XState does not know them; they show themselves while somebody observes
 * the host, and cost one entry in a map otherwise.
 */
import type { AnyStateMachine } from "xstate";
import { assert } from "../../lib/assert.ts";
import { currentCause } from "./cause.ts";
import type { StepWatch } from "./step-watch.ts";
import type { ObservedActor, ObservedStep, ObservedTimer } from "./step.ts";
import type { Clock } from "../ports/index.ts";

/** The actor's present state. */
interface TableState {
  readonly value: string;
  readonly context: object;
  readonly isDone: boolean;
}

/** The part of a step that its table knows. */
interface TableTaken {
  readonly transitions: readonly string[];
  readonly guards: readonly string[];
  readonly effects: readonly string[];
  readonly unexpected: boolean;
}

type Watching = (show: (watch: StepWatch) => void) => void;

interface Home {
  readonly clock: Clock;
  watching: Watching | null;
  leave(id: string): void;
  states(value: string): readonly string[];
}

const noTimers: readonly ObservedTimer[] = [];

export class TableActor {
  readonly id: string;
  readonly #home: Home;
  readonly #machine: AnyStateMachine;
  readonly #startedAtMs: number;
  readonly #state: () => TableState;
  /** The watch that saw it last, to which the fields below belong. */
  #watch: StepWatch | null = null;
  #sinceMs = 0;
  #steps = 0;
  #lastEvent = "";
  #value = "";
  #context: object | null = null;

  constructor(home: Home, machine: AnyStateMachine, id: string, state: () => TableState) {
    this.#home = home;
    this.#machine = machine;
    this.id = id;
    this.#state = state;
    this.#startedAtMs = home.clock.now();
  }

  get isObserved(): boolean {
    return this.#home.watching !== null;
  }

  /** Before a step; `end` must follow. */
  begin(): void {
    this.#home.watching?.((watch) => {
      this.#seenBy(watch);
      watch.begin(this.id);
    });
  }

  /** After the effects of a step. `source` and the trace are those of the call. */
  end(event: { readonly type: string }, { transitions, guards, effects, unexpected }: TableTaken): void {
    this.#home.watching?.((watch) => {
      watch.end(this.id);
      const atMs = this.#home.clock.now();
      const { value, context } = this.#state();
      if (value !== this.#value) this.#sinceMs = atMs;
      this.#value = value;
      this.#steps += 1;
      if (!unexpected) this.#lastEvent = event.type;
      const contextBefore = this.#context;
      this.#context = context;
      const step: ObservedStep = {
        ...this.look(watch),
        atMs,
        event,
        contextBefore,
        transitions,
        guards,
        effects,
        unexpected,
        source: watch.source,
        cause: currentCause(),
      };
      watch.show(step);
    });
  }

  /** The actor is over. */
  leave(): void {
    this.#home.leave(this.id);
  }

  look(watch: StepWatch): ObservedActor {
    this.#seenBy(watch);
    const { value, context, isDone } = this.#state();
    return {
      id: this.id,
      machine: this.#machine,
      startedAtMs: this.#startedAtMs,
      sinceMs: this.#sinceMs,
      steps: this.#steps,
      lastEvent: this.#lastEvent,
      states: this.#home.states(value),
      status: isDone ? "done" : "active",
      context,
      timers: noTimers,
    };
  }

  /** Forgets what it saw before a time in which nobody observed. */
  #seenBy(watch: StepWatch): void {
    if (this.#watch === watch) return;
    this.#watch = watch;
    const { value, context } = this.#state();
    this.#sinceMs = this.#steps = 0;
    this.#lastEvent = "";
    this.#value = value;
    this.#context = context;
  }
}

export class TableActors {
  readonly #home: Home;
  readonly #actors = new Map<string, TableActor>();
  /** The same states are the same array. */
  readonly #states = new Map<string, readonly string[]>();

  constructor(clock: Clock) {
    this.#home = {
      clock,
      watching: null,
      leave: (id) => void this.#actors.delete(id),
      states: (value) => {
        let states = this.#states.get(value);
        if (states === undefined) this.#states.set(value, (states = [value]));
        return states;
      },
    };
  }

  /** `id` as in `Host.start`; `state` is asked while somebody observes. */
  start(machine: AnyStateMachine, id: string, state: () => TableState): TableActor {
    assert(!this.#actors.has(id), `H2: actor ${id} is not live already`);
    const actor = new TableActor(this.#home, machine, id, state);
    this.#actors.set(id, actor);
    return actor;
  }

  ids(): Iterable<string> {
    return this.#actors.keys();
  }

  look(id: string, watch: StepWatch): ObservedActor | undefined {
    return this.#actors.get(id)?.look(watch);
  }

  /** Null: nobody observes. */
  watch(watching: Watching | null): void {
    this.#home.watching = watching;
  }
}
