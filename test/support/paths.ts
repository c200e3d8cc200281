/** Every path through a chart: each event in each reachable state, with a check on each step. */
import { createActor, type AnyMachineSnapshot, type AnyStateMachine, type AnyTransitionDefinition } from "xstate";
import { ChartNames } from "../../runtime/observation/chart-names.ts";
import { PlannedTwin } from "./planned-twin.ts";
import { childrenOf, pathOf, rootOf, transitionsOf, type AnyNode } from "../../runtime/observation/transition-ids.ts";

/** An effect as the chart requests it. */
export interface Asked {
  readonly type: string;
  readonly params: unknown;
}

/** A state of a chart, with what was remembered on the path to it. */
export interface Place<Memory> {
  /** Such as `live` and `live.running`. */
  readonly states: readonly string[];
  readonly snapshot: AnyMachineSnapshot;
  readonly memory: Memory;
  /** Types of the events that led here first; delays are XState events. */
  readonly events: readonly string[];
  /** The places one event away. */
  readonly next: Set<Place<Memory>>;
}

export interface Step<Memory, Event> {
  readonly asked: readonly Asked[];
  /** States after it. */
  readonly states: readonly string[];
  /** The chart's context after it. */
  readonly context: unknown;
  /** Null for an actor's start. */
  readonly event: Event | { readonly type: `xstate.after.${string}` } | null;
  readonly from: Place<Memory> | null;
}

export interface Exploration<Memory, Event> {
  readonly inputs: readonly unknown[];
  /** One of each relevant kind; delays fire by themselves. */
  readonly events: readonly Event[];
  /** The relevant part of the context, without counters and times, which never end. All of it if absent. */
  readonly matters?: (context: never) => unknown;
  /** Whether the chart's owner may send the event here, such as an answer that was requested; always if absent. */
  readonly mayCome?: (place: Place<Memory>, event: Event) => boolean;
  /** The event as it is sent in a state with this context, such as with the number of the last request; unchanged if absent. */
  readonly asSent?: (event: Event, context: never) => Event;
  /** The memory before the first step. */
  readonly memory: Memory;
  /** The memory after a step, kept small: paths to one state with one memory are merged. Throws if a check fails. */
  readonly remember: (memory: Memory, step: Step<Memory, Event>) => Memory;
}

/** Far above the size of our charts; one with more has a counter or a time in its context. */
const placesMax = 20_000;
/** How many of the last events an error names. */
const namedMax = 40;

function statesOf(value: unknown, above = ""): readonly string[] {
  if (typeof value === "string") return [above + value];
  return Object.entries(value as Record<string, unknown>).flatMap(([name, inner]) => [
    above + name,
    ...statesOf(inner, `${above}${name}.`),
  ]);
}

function nodesBelow(node: AnyNode): readonly AnyNode[] {
  return childrenOf(node).flatMap((child) => [child, ...nodesBelow(child)]);
}

/** Paths of all states of a chart, including final and nested ones. */
export function allStates(machine: AnyStateMachine): readonly string[] {
  return nodesBelow(rootOf(machine)).map(pathOf);
}

/** Ids of all transitions of a chart, by the transitions themselves. */
export function allTransitions(machine: AnyStateMachine): ReadonlyMap<AnyTransitionDefinition, string> {
  const root = rootOf(machine);
  const all = [root, ...nodesBelow(root)].flatMap(transitionsOf);
  return new Map(all.map(({ id, transition }) => [transition, id]));
}

/**
 * Takes steps of a chart without an actor, and remembers which transitions were taken. Each step is compared with that of the
 * chart's plans.
 */
class Stepper {
  readonly taken = new Set<AnyTransitionDefinition>();
  readonly #machine: AnyStateMachine;
  readonly #scope: Record<string, unknown>;
  /** States that were active, also between the transitions of one step. */
  readonly passed = new Set<string>();
  #actions: unknown[] = [];
  readonly #twin: PlannedTwin;

  constructor(machine: AnyStateMachine, input: unknown) {
    this.#machine = machine;
    for (const node of new ChartNames(machine).initial.nodes) this.passed.add(pathOf(node));
    const self = createActor(machine, {
      input: input as never,
      inspect: (inspected) => {
        if (inspected.type !== "@xstate.microstep") return;
        for (const each of inspected._transitions) this.taken.add(each);
        for (const state of statesOf((inspected.snapshot as AnyMachineSnapshot).value)) this.passed.add(state);
      },
    });
    this.#twin = new PlannedTwin(machine, self);
    const nothing = (): void => undefined;
    this.#scope = {
      self,
      logic: machine,
      id: "",
      sessionId: "",
      system: self.system,
      defer: nothing,
      emit: nothing,
      stopChild: nothing,
      actionExecutor: (action: unknown) => this.#actions.push(action),
    };
  }

  start(input: unknown): readonly [AnyMachineSnapshot, readonly unknown[]] {
    return this.#collect(() => this.#machine.getInitialSnapshot(this.#scope as never, input as never));
  }

  step(from: AnyMachineSnapshot, event: unknown): readonly [AnyMachineSnapshot, readonly unknown[]] {
    this.#twin.compare(from, event);
    return this.#collect(() => this.#machine.transition(from as never, event as never, this.#scope as never));
  }

  #collect(move: () => unknown): readonly [AnyMachineSnapshot, readonly unknown[]] {
    this.#actions = [];
    const next = move() as AnyMachineSnapshot;
    return [next, this.#actions];
  }
}

/** The effects of a step, without XState's internal ones. */
function askedOf(actions: readonly { readonly type: string; readonly params?: unknown }[]): readonly Asked[] {
  return actions
    .filter(({ type }) => !type.startsWith("xstate."))
    .map(({ type, params }) => ({ type, params: params ?? null }));
}

export interface Explored<Memory> {
  readonly places: readonly Place<Memory>[];
  /** Paths of the states that were active, also between the transitions of one step. */
  readonly states: ReadonlySet<string>;
  /** Ids of the transitions that were taken. */
  readonly transitions: ReadonlySet<string>;
}

/** All reachable places, and what was reached on the way. Throws an Error that names the events after which `remember` threw. */
export function explore<Memory, Event extends { readonly type: string }>(
  machine: AnyStateMachine,
  {
    events,
    inputs,
    matters = (context) => context,
    mayCome = () => true,
    asSent = (event) => event,
    memory,
    remember,
  }: Exploration<Memory, Event>,
): Explored<Memory> {
  type After = { readonly type: `xstate.after.${string}` };
  const delays = (machine.events as readonly string[])
    .filter((type) => type.startsWith("xstate.after."))
    .map((type) => ({ type }) as After);
  const found = new Map<string, Place<Memory>>();
  const queue: Place<Memory>[] = [];

  const stepper = new Stepper(machine, inputs[0]);

  function add(
    [next, actions]: readonly [AnyMachineSnapshot, readonly unknown[]],
    from: Place<Memory> | null,
    event: Event | After | null,
  ): void {
    const snapshot = next;
    const led = from === null || event === null ? [] : [...from.events, event.type];
    const wrong = (text: string): Error => new Error(`${text}: ${led.slice(-namedMax).join(" → ")}`);
    const states = statesOf(snapshot.value);
    let after: Memory;
    try {
      after = remember(from?.memory ?? memory, {
        asked: askedOf(actions as never),
        states,
        context: snapshot.context,
        event,
        from,
      });
    } catch (error) {
      throw wrong((error as Error).message);
    }
    const key = JSON.stringify([snapshot.value, matters(snapshot.context as never), snapshot.status, after]);
    let place = found.get(key);
    if (place === undefined) {
      if (found.size >= placesMax) throw wrong(`more than ${placesMax} places`);
      place = { states, snapshot, memory: after, events: led, next: new Set() };
      found.set(key, place);
      queue.push(place);
    }
    from?.next.add(place);
  }

  for (const input of inputs) add(stepper.start(input), null, null);
  for (let place = queue.shift(); place !== undefined; place = queue.shift()) {
    if (place.snapshot.status !== "active") continue;
    const nodes = place.snapshot._nodes as unknown as readonly AnyNode[];
    const due = delays.filter(({ type }) => nodes.some(({ transitions }) => transitions.has(type)));
    const { context } = place.snapshot;
    const possible = events.filter((event) => mayCome(place, event)).map((event) => asSent(event, context as never));
    for (const event of [...possible, ...due]) add(stepper.step(place.snapshot, event), place, event);
  }
  const ids = allTransitions(machine);
  const states = new Set([...stepper.passed, ...[...found.values()].flatMap((place) => place.states)]);
  const transitions = new Set([...stepper.taken].flatMap((each) => ids.get(each) ?? []));
  return { places: [...found.values()], states, transitions };
}

/** Places from which no events lead to a wanted one. */
export function stuck<Memory>(
  places: readonly Place<Memory>[],
  isWanted: (place: Place<Memory>) => boolean,
): readonly Place<Memory>[] {
  const before = new Map<Place<Memory>, Place<Memory>[]>();
  for (const place of places) {
    for (const next of place.next) before.set(next, [...(before.get(next) ?? []), place]);
  }
  const free = new Set(places.filter(isWanted));
  for (const place of free) for (const earlier of before.get(place) ?? []) free.add(earlier);
  return places.filter((place) => !free.has(place));
}
