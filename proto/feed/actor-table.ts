/**
 * The actors of one process in a listener's model.
 *
 * U3: a table has no more actors, and no longer texts, than its limits allow: a worker that makes up actors cannot fill a
 *     listener's memory. `isFull` tells that some are missing.
 */
import type { ActorStep, ArmedTimer } from "../gen/page.ts";

export interface Actor {
  readonly process: string;
  readonly id: string;
  /** The id up to its first `/`. */
  readonly kind: string;
  machine: string;
  states: readonly string[];
  status: number;
  startedAtMs: number;
  sinceMs: number;
  /** JSON object. */
  context: string;
  timers: readonly ArmedTimer[];
  steps: number;
  event: string;
  /** Ids of those taken in its newest step. */
  transitions: readonly string[];
}

export interface ActorLimits {
  /** A manager of 10,000 nodes has some 30,000. A further actor is not listed. */
  readonly actorsMax: number;
  /**
   * Characters of all texts, each of one or two bytes. Beyond it, a new actor is not listed, and a listed one goes on without
   * the context that would not fit.
   */
  readonly charactersMax: number;
}

export const actorLimits: ActorLimits = { actorsMax: 100_000, charactersMax: 32 * 1024 * 1024 };

/** As in messages that are too large. */
const cutContext = `{"$cut":true}`;

function charactersOf({ context, event, id, machine, states, timers, transitions }: Actor): number {
  let sum = context.length + event.length + id.length + machine.length;
  for (const state of states) sum += state.length;
  for (const transition of transitions) sum += transition.length;
  for (const timer of timers) sum += timer.delay.length;
  return sum;
}

export class ActorTable extends Map<string, Actor> {
  readonly #limits: ActorLimits;
  #characters = 0;
  /** An actor or a context did not fit. */
  isFull = false;

  constructor(limits: ActorLimits) {
    super();
    this.#limits = limits;
  }

  override set(id: string, actor: Actor): this {
    const known = this.get(id);
    const others = this.#characters - (known === undefined ? 0 : charactersOf(known));
    if (known !== undefined && others + charactersOf(actor) > this.#limits.charactersMax) {
      this.isFull = true;
      actor.context = cutContext;
    }
    const characters = others + charactersOf(actor);
    if (characters > this.#limits.charactersMax || (known === undefined && this.size >= this.#limits.actorsMax)) {
      this.isFull = true;
      return this;
    }
    this.#characters = characters;
    return super.set(id, actor);
  }

  override delete(id: string): boolean {
    const known = this.get(id);
    if (known !== undefined) this.#characters -= charactersOf(known);
    return super.delete(id);
  }

  /** Takes over a step of a listed actor. One that is older than the snapshot changes nothing. */
  change(actor: Actor, step: ActorStep): void {
    if (step.number <= actor.steps) return;
    this.#characters -= charactersOf(actor);
    if (!sameStates(actor.states, step.states)) actor.sinceMs = step.atMs;
    actor.states = step.states;
    actor.status = step.status;
    if (step.context !== "") actor.context = step.context;
    actor.timers = step.timers;
    actor.steps = step.number;
    actor.transitions = step.transitions;
    if (!step.unexpected) actor.event = step.event;
    if (this.#characters + charactersOf(actor) > this.#limits.charactersMax) {
      this.isFull = true;
      actor.context = cutContext;
    }
    this.#characters += charactersOf(actor);
  }
}

export function sameStates(a: readonly string[], b: readonly string[]): boolean {
  return a.length === b.length && a.every((state, index) => state === b[index]);
}
