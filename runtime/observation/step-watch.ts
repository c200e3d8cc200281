/**
 * Assembles the steps of actors from XState's inspection events. It exists only while somebody observes the host.
 *
 * Effects run within the step that has them, so steps nest: an event that an actor sends meanwhile has that actor as its source.
 */
import type { Actor, AnyActorRef, AnyMachineSnapshot, AnyStateMachine, InspectionEvent } from "xstate";
import { ChartNames, joined, nothingTaken, type Active, type Taken } from "./chart-names.ts";
import type { AnyNode } from "./transition-ids.ts";
import type { ObservedActor, ObservedStep, ObservedTimer, StepObserver } from "./step.ts";
import { currentCause, inCause, lateCause, noCause, setCause, type Cause } from "./cause.ts";
import { armedIn } from "../steps/actor-timers.ts";
import type { Clock } from "../ports/index.ts";

type AnyActor = Actor<AnyStateMachine>;

/** An event that was sent and not handled yet. */
interface Sent {
  readonly event: object;
  readonly source: string;
  readonly cause: Cause;
}

/** A step under way. */
interface Acting {
  readonly id: string;
  /** The cause outside of it. */
  readonly before: Cause;
}

interface Armed {
  readonly eventType: string;
  readonly timer: ObservedTimer;
  /** Cause of the step that armed it. */
  readonly cause: Cause;
}

interface Watched {
  readonly actor: AnyActor;
  readonly names: ChartNames;
  readonly startedAtMs: number;
  sinceMs: number;
  steps: number;
  lastEvent: string;
  /** At the end of the newest step. */
  context: object | null;
  settled: Active | null;
  active: Active;
  /** The snapshot's array from which `active` was found. */
  nodes: unknown;
  /** By the id of the delayed event. */
  readonly timers: Map<string, Armed>;
  /** Null: changed since it was listed. */
  listed: readonly ObservedTimer[] | null;
  readonly sent: Sent[];
  taken: Taken | null;
}

const noTimers: readonly ObservedTimer[] = [];

export class StepWatch {
  readonly #clock: Clock;
  readonly show: StepObserver;
  readonly #watched = new Map<AnyActorRef, Watched>();
  /** The newest that was found: the events of a step follow each other. */
  #found: Watched | null = null;
  readonly #names = new Map<AnyStateMachine, ChartNames>();
  /** The innermost last. */
  readonly #acting: Acting[] = [];

  constructor(clock: Clock, show: StepObserver) {
    this.#clock = clock;
    this.show = show;
  }

  /** Watches an actor that has started already. */
  add(actor: AnyActor, startedAtMs: number): void {
    const watched = this.#begin(actor, startedAtMs);
    const { nodes, context } = snapshotOf(actor);
    watched.active = watched.settled = watched.names.active(nodes);
    watched.nodes = nodes;
    watched.context = context;
  }

  /** The timers that were armed in a system before its actors were watched. */
  addTimers(system: object): void {
    for (const { id, source, event, delay, armedAtMs } of armedIn(system)) {
      const watched = this.#watched.get(source);
      if (watched !== undefined) arm(watched, id, event.type, armedAtMs, delay, noCause);
    }
  }

  look(actor: AnyActor): ObservedActor | undefined {
    const watched = this.#watched.get(actor);
    if (watched === undefined) return undefined;
    const { status, context } = snapshotOf(actor);
    return this.#observed(watched, status, context);
  }

  /** An actor that is not XState's begins a step. */
  begin(id: string, cause = currentCause()): void {
    this.#acting.push({ id, before: setCause(cause) });
  }

  end(id: string): void {
    const at = this.#acting.findLastIndex((acting) => acting.id === id);
    if (at === -1) return;
    setCause((this.#acting[at] as Acting).before);
    this.#acting.length = at;
  }

  /** Ends what is under way. */
  close(): void {
    for (const { id } of this.#acting.toReversed()) this.end(id);
  }

  /** `act` as part of the present step and its cause, in a later turn. */
  later(act: () => void): () => void {
    const { source } = this;
    const cause = currentCause();
    if (source === "" && cause === noCause) return act;
    return () => {
      if (source !== "") this.begin(source);
      inCause(cause, act);
      this.end(source);
    };
  }

  get source(): string {
    return this.#acting.at(-1)?.id ?? "";
  }

  see(event: InspectionEvent): void {
    const actor = event.actorRef as AnyActor;
    switch (event.type) {
      case "@xstate.actor":
        this.#begin(actor, this.#clock.now());
        return;
      case "@xstate.event": {
        const watched = this.#find(actor);
        if (watched === undefined) return;
        const isTimer = event.sourceRef === actor;
        watched.sent.push({
          event: event.event,
          source: isTimer ? "" : this.source,
          cause: isTimer ? lateCause(fired(watched, event.event.type)) : currentCause(),
        });
        return;
      }
      case "@xstate.action": {
        const watched = this.#find(actor);
        if (watched === undefined) return;
        // Its effects belong to what the event belongs to, which may have waited for the end of another step.
        if (this.source !== actor.id) this.begin(actor.id, watched.sent[0]?.cause);
        this.#act(watched, event.action as { readonly type: string; readonly params: unknown });
        return;
      }
      case "@xstate.microstep": {
        const watched = this.#find(actor);
        if (watched === undefined) return;
        const before = watched.active;
        const after = this.#move(watched, (event.snapshot as unknown as { readonly _nodes: unknown })._nodes);
        const taken = watched.names.taken(event._transitions, before, after);
        watched.taken = watched.taken === null ? taken : joined([watched.taken, taken]);
        return;
      }
      case "@xstate.snapshot": {
        const watched = this.#find(actor);
        if (watched !== undefined) this.#finish(watched, event.event, snapshotOf(actor).status);
        return;
      }
      case "@xstate.transition":
        // XState's pure `transition` function sends it, which no actor calls.
        return;
    }
  }

  /** The actor threw in the step under way. */
  fail(actor: AnyActor): void {
    const watched = this.#find(actor);
    if (watched === undefined) return;
    const event = watched.sent[0]?.event ?? { type: "xstate.init" };
    this.#finish(watched, event as { readonly type: string }, "error");
  }

  #find(actor: AnyActor): Watched | undefined {
    if (this.#found?.actor === actor) return this.#found;
    const watched = this.#watched.get(actor);
    if (watched !== undefined) this.#found = watched;
    return watched;
  }

  #begin(actor: AnyActor, startedAtMs: number): Watched {
    const machine = actor.logic;
    let names = this.#names.get(machine);
    if (names === undefined) this.#names.set(machine, (names = new ChartNames(machine)));
    const watched: Watched = {
      actor,
      names,
      startedAtMs,
      sinceMs: 0,
      steps: 0,
      lastEvent: "",
      context: null,
      settled: null,
      active: names.initial,
      nodes: null,
      timers: new Map(),
      listed: noTimers,
      sent: [],
      taken: null,
    };
    this.#watched.set(actor, watched);
    return watched;
  }

  #act(watched: Watched, { type, params }: { readonly type: string; readonly params: unknown }): void {
    if (type === "xstate.raise") {
      const { id, delay, event } = params as { id?: string; delay?: number; event: { readonly type: string } };
      if (delay !== undefined) arm(watched, id ?? event.type, event.type, this.#clock.now(), delay, currentCause());
    } else if (type === "xstate.cancel") {
      if (watched.timers.delete((params as { readonly sendId: string }).sendId)) watched.listed = null;
    }
  }

  #move(watched: Watched, nodes: unknown): Active {
    if (watched.nodes !== nodes) {
      watched.nodes = nodes;
      watched.active = watched.names.active(nodes as readonly AnyNode[]);
    }
    return watched.active;
  }

  #finish(watched: Watched, event: { readonly type: string }, status: ObservedActor["status"]): void {
    const { actor, sent, names } = watched;
    this.end(actor.id);
    // An actor that stops forgets the events before.
    let cause: Sent | undefined;
    do cause = sent.shift();
    while (cause !== undefined && cause.event !== event);
    let taken = watched.taken ?? nothingTaken;
    watched.taken = null;
    if (event.type === "xstate.init") taken = taken === nothingTaken ? names.started : joined([names.started, taken]);
    const isOver = status !== "active";
    if (isOver) {
      watched.listed = noTimers;
      this.#watched.delete(actor);
      this.#found = null;
    }
    const { context, nodes } = snapshotOf(actor);
    const atMs = this.#clock.now();
    if (this.#move(watched, nodes) !== watched.settled) watched.sinceMs = atMs;
    watched.settled = watched.active;
    watched.steps += 1;
    if (!taken.unexpected) watched.lastEvent = event.type;
    const contextBefore = watched.context;
    watched.context = context;
    const step: ObservedStep = {
      id: actor.id,
      machine: actor.logic,
      startedAtMs: watched.startedAtMs,
      sinceMs: watched.sinceMs,
      steps: watched.steps,
      lastEvent: watched.lastEvent,
      states: watched.active.paths,
      status,
      context,
      timers: timersOf(watched),
      atMs,
      event,
      contextBefore,
      transitions: taken.transitions,
      guards: taken.guards,
      effects: taken.effects,
      unexpected: taken.unexpected,
      source: cause?.source ?? this.source,
      cause: cause?.cause ?? currentCause(),
    };
    this.show(step);
  }

  #observed(watched: Watched, status: ObservedActor["status"], context: object): ObservedActor {
    const { actor, startedAtMs, sinceMs, steps, lastEvent, active } = watched;
    return {
      id: actor.id,
      machine: actor.logic,
      startedAtMs,
      sinceMs,
      steps,
      lastEvent,
      states: active.paths,
      status,
      context,
      timers: timersOf(watched),
    };
  }
}

function timersOf(watched: Watched): readonly ObservedTimer[] {
  return (watched.listed ??= Array.from(watched.timers.values(), ({ timer }) => timer));
}

function snapshotOf(actor: AnyActor): {
  readonly status: ObservedActor["status"];
  readonly context: object;
  readonly nodes: readonly AnyNode[];
} {
  const { status, context, _nodes } = actor.getSnapshot() as AnyMachineSnapshot;
  return { status, context: context as object, nodes: _nodes as unknown as readonly AnyNode[] };
}

function arm(watched: Watched, id: string, eventType: string, armedAtMs: number, delayMs: number, cause: Cause): void {
  const { delay, state } = watched.names.delay(id);
  // Last in the order of the list.
  watched.timers.delete(id);
  // In whole milliseconds, as in messages.
  const timer = { delay, state, armedAtMs: Math.round(armedAtMs), dueAtMs: Math.round(armedAtMs + delayMs) };
  watched.timers.set(id, { eventType, timer, cause });
  watched.listed = null;
}

/** The cause of the timer that has led to the event. */
function fired(watched: Watched, eventType: string): Cause {
  for (const [id, armed] of watched.timers) {
    if (armed.eventType !== eventType) continue;
    watched.timers.delete(id);
    watched.listed = null;
    return armed.cause;
  }
  return noCause;
}
