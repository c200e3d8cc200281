/** Every path through a chart: each event in each reachable state, with a check on each step. */
import { initialTransition, transition, type AnyMachineSnapshot, type AnyStateMachine } from "xstate";

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

interface Step<Memory, Event> {
  readonly asked: readonly Asked[];
  /** States after it. */
  readonly states: readonly string[];
  /** Null for an actor's start. */
  readonly event: Event | { readonly type: `xstate.after.${string}` } | null;
  readonly from: Place<Memory> | null;
}

interface Exploration<Memory, Event> {
  readonly inputs: readonly unknown[];
  /** One of each relevant kind; delays fire by themselves. */
  readonly events: readonly Event[];
  /** The relevant part of the context, without counters and times, which never end. All of it if absent. */
  readonly matters?: (context: never) => unknown;
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

/** All states of a chart, including final and nested ones. */
export function allStates(machine: AnyStateMachine): readonly string[] {
  const below = (states: AnyStateMachine["root"]["states"], above: string): readonly string[] =>
    Object.entries(states).flatMap(([name, node]) => [above + name, ...below(node.states, `${above}${name}.`)]);
  return below(machine.root.states, "");
}

/** The effects of a step, without XState's internal ones. */
function askedOf(actions: readonly { readonly type: string; readonly params?: unknown }[]): readonly Asked[] {
  return actions
    .filter(({ type }) => !type.startsWith("xstate."))
    .map(({ type, params }) => ({ type, params: params ?? null }));
}

/** All reachable places. Throws an Error that names the events after which `remember` threw. */
export function allPlaces<Memory, Event extends { readonly type: string }>(
  machine: AnyStateMachine,
  { events, inputs, matters = (context: never) => context, memory, remember }: Exploration<Memory, Event>,
): readonly Place<Memory>[] {
  type After = { readonly type: `xstate.after.${string}` };
  const delays = (machine.events as readonly string[])
    .filter((type) => type.startsWith("xstate.after."))
    .map((type) => ({ type }) as After);
  const found = new Map<string, Place<Memory>>();
  const queue: Place<Memory>[] = [];

  function add([next, actions]: readonly unknown[], from: Place<Memory> | null, event: Event | After | null): void {
    const snapshot = next as AnyMachineSnapshot;
    const led = from === null || event === null ? [] : [...from.events, event.type];
    const wrong = (text: string): Error => new Error(`${text}: ${led.slice(-namedMax).join(" → ")}`);
    const states = statesOf(snapshot.value);
    let after: Memory;
    try {
      after = remember(from?.memory ?? memory, { asked: askedOf(actions as never), states, event, from });
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

  for (const input of inputs) add(initialTransition(machine, input as never), null, null);
  for (let place = queue.shift(); place !== undefined; place = queue.shift()) {
    if (place.snapshot.status !== "active") continue;
    for (const event of [...events, ...delays]) {
      add(transition(machine, place.snapshot as never, event as never), place, event);
    }
  }
  return [...found.values()];
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
