/**
 * A listener's model of the actors, to which the feed of each process is applied. Actors are changed in place, and views read them once
 * a frame, so a step costs no rendering.
 *
 * U1: after a lost message, a process is marked `stale` until a whole snapshot has replaced its actors.
 * U2: the counts by state are those of the actors that are listed.
 */
import type { ActorFeed, ActorState, ActorStep } from "../gen/page.ts";
import { actorLimits, ActorTable, sameStates, type Actor, type ActorLimits } from "./actor-table.ts";
import { Ring } from "./ring.ts";

export type { Actor } from "./actor-table.ts";

/** Newest steps of all actors, for the sequence of a trace. */
const recentStepsMax = 20_000;
/** Newest steps of a watched actor. */
export const watchedStepsMax = 100;

export interface Process {
  readonly id: string;
  hostname: string;
  actors: ActorTable;
  /** The snapshot that is arriving. */
  incoming: ActorTable | null;
  sequence: number;
  stale: boolean;
  /** Why it can no longer be watched; empty: it is watched. */
  lost: string;
  gaps: number;
  droppedSteps: number;
  /** Its clock minus the listener's, in milliseconds. */
  skewMs: number;
  /** Number of actors by kind and state. */
  counts: Map<string, Map<string, number>>;
}

export interface Step {
  readonly process: string;
  readonly step: ActorStep;
}

export const kindOf = (id: string): string => id.split("/", 1)[0] as string;
export const statesText = (states: readonly string[]): string => states.join(" + ") || "-";

export class Actors {
  readonly processes = new Map<string, Process>();
  readonly recent = new Ring<Step>(recentStepsMax);
  readonly #watched = new Map<string, Ring<ActorStep>>();
  readonly #limits: ActorLimits;
  /** Grows when actors or processes come or go. */
  membership = 0;
  stepsSeen = 0;

  /** `limits`: of each process. */
  constructor(limits: ActorLimits = actorLimits) {
    this.#limits = limits;
  }

  get size(): number {
    let size = 0;
    for (const { actors } of this.processes.values()) size += actors.size;
    return size;
  }

  find(process: string, id: string): Actor | undefined {
    return this.processes.get(process)?.actors.get(id);
  }

  /** Keeps the newest steps of an actor from now on; begins with those that are still known. */
  watch(process: string, id: string): void {
    const key = keyOf(process, id);
    if (this.#watched.has(key)) return;
    const ring = new Ring<ActorStep>(watchedStepsMax);
    for (const each of this.recent.items())
      if (each.process === process && each.step.actor === id) ring.push(each.step);
    this.#watched.set(key, ring);
  }

  unwatch(process: string, id: string): void {
    this.#watched.delete(keyOf(process, id));
  }

  /** Oldest first. */
  stepsOf(process: string, id: string): readonly ActorStep[] {
    return this.#watched.get(keyOf(process, id))?.items() ?? [];
  }

  /** The connection was lost: every process is unknown until its next snapshot. */
  disconnected(): void {
    for (const process of this.processes.values()) {
      process.stale = true;
      process.sequence = 0;
      process.incoming = null;
      process.gaps += 1;
    }
  }

  /** `nowMs`: the listener's clock. */
  apply(feed: ActorFeed, nowMs: number): void {
    const process = this.#processOf(feed.process);
    if (feed.hostname !== "") process.hostname = feed.hostname;
    if (feed.atMs !== 0) process.skewMs = feed.atMs - nowMs;
    const begins = feed.snapshot?.begins === true;
    if (process.sequence !== 0 && feed.sequence !== process.sequence + 1 && !begins) this.#mark(process);
    if (process.sequence === 0 && !begins && !process.stale) process.stale = true;
    process.sequence = feed.sequence;
    process.droppedSteps += feed.droppedSteps;
    if (feed.snapshot !== null) this.#snapshot(process, feed.snapshot);
    for (const step of feed.steps) this.#step(process, step);
    for (const id of feed.ended) this.#end(process, id);
    if (feed.lost !== "") {
      process.lost = feed.lost;
      process.stale = true;
      process.incoming = null;
    }
  }

  /** An actor's newest step, which a snapshot does not tell: the transitions that it took. */
  took(process: string, step: ActorStep): void {
    const actor = this.find(process, step.actor);
    if (actor?.steps === step.number) actor.transitions = step.transitions;
  }

  #mark(process: Process): void {
    process.gaps += 1;
    process.stale = true;
    // The snapshot that was arriving has a hole.
    process.incoming = null;
  }

  #processOf(id: string): Process {
    let process = this.processes.get(id);
    if (process === undefined) {
      this.membership += 1;
      process = {
        id,
        hostname: "",
        actors: new ActorTable(this.#limits),
        incoming: null,
        sequence: 0,
        stale: true,
        lost: "",
        gaps: 0,
        droppedSteps: 0,
        skewMs: 0,
        counts: new Map(),
      };
      this.processes.set(id, process);
    }
    return process;
  }

  #snapshot(process: Process, { begins, ends, actors }: NonNullable<ActorFeed["snapshot"]>): void {
    if (begins) process.incoming = new ActorTable(this.#limits);
    const { incoming } = process;
    if (incoming === null) {
      // Without steps, a changed actor is sent again in a snapshot that neither begins nor ends.
      if (!process.stale) for (const state of actors) this.#put(process, state);
      return;
    }
    for (const state of actors) incoming.set(state.actor, actorOf(process.id, state));
    if (!ends) return;
    process.actors = incoming;
    process.incoming = null;
    process.stale = false;
    process.lost = "";
    this.membership += 1;
    process.counts = new Map();
    for (const actor of incoming.values()) count(process, actor, 1);
  }

  #put(process: Process, state: ActorState): void {
    const known = process.actors.get(state.actor);
    const actor = actorOf(process.id, state);
    process.actors.set(state.actor, actor);
    if (process.actors.get(state.actor) !== actor) return;
    if (known === undefined) this.membership += 1;
    else count(process, known, -1);
    count(process, actor, 1);
  }

  #step(process: Process, step: ActorStep): void {
    this.stepsSeen += 1;
    this.recent.push({ process: process.id, step });
    this.#watched.get(keyOf(process.id, step.actor))?.push(step);
    const pending = process.incoming?.get(step.actor);
    if (pending !== undefined) process.incoming?.change(pending, step);
    const actor = process.actors.get(step.actor);
    if (actor !== undefined) {
      const moved = !sameStates(actor.states, step.states);
      if (moved) count(process, actor, -1);
      process.actors.change(actor, step);
      if (moved) count(process, actor, 1);
      return;
    }
    if (process.incoming !== null) {
      if (pending === undefined) process.incoming.set(step.actor, actorOfStep(process.id, step));
      return;
    }
    const fresh = actorOfStep(process.id, step);
    process.actors.set(step.actor, fresh);
    if (process.actors.get(step.actor) !== fresh) return;
    count(process, fresh, 1);
    this.membership += 1;
  }

  #end(process: Process, id: string): void {
    process.incoming?.delete(id);
    const actor = process.actors.get(id);
    if (actor === undefined) return;
    process.actors.delete(id);
    count(process, actor, -1);
    this.membership += 1;
  }
}

const keyOf = (process: string, id: string): string => `${process}\n${id}`;

function count(process: Process, { kind, states }: Actor, by: number): void {
  let ofKind = process.counts.get(kind);
  if (ofKind === undefined) process.counts.set(kind, (ofKind = new Map()));
  const text = statesText(states);
  const sum = (ofKind.get(text) ?? 0) + by;
  if (sum > 0) ofKind.set(text, sum);
  else ofKind.delete(text);
}

function actorOf(process: string, state: ActorState): Actor {
  return {
    process,
    id: state.actor,
    kind: kindOf(state.actor),
    machine: state.machine,
    states: state.states,
    status: state.status,
    startedAtMs: state.startedAtMs,
    sinceMs: state.sinceMs,
    context: state.context,
    timers: state.timers,
    steps: state.steps,
    event: state.event,
    transitions: [],
  };
}

function actorOfStep(process: string, step: ActorStep): Actor {
  return {
    process,
    id: step.actor,
    kind: kindOf(step.actor),
    machine: step.machine,
    states: step.states,
    status: step.status,
    startedAtMs: step.number === 1 ? step.atMs : 0,
    sinceMs: step.atMs,
    context: step.context,
    timers: step.timers,
    steps: step.number,
    event: step.event,
    transitions: step.transitions,
  };
}
