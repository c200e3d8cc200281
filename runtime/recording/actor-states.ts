/** The states of a process's actors, to which its feed is applied: where a recording begins. */
import { ActorFeed, ActorSnapshot, ActorState, type ActorStep } from "../../proto/gen/messages.ts";

/** Actors of one message of a snapshot: about 150 KiB. */
const actorsPerMessage = 500;

function after(before: ActorState | undefined, step: ActorStep): ActorState {
  const { actor, machine, number, atMs, states, status, event, timers } = step;
  const isSame = before !== undefined && before.machine === machine && before.steps < number;
  const isStill = isSame && before.states.join(" ") === states.join(" ");
  return ActorState.create({
    actor,
    machine,
    states,
    status,
    startedAtMs: isSame ? before.startedAtMs : number === 1 ? atMs : 0,
    sinceMs: isStill ? before.sinceMs : atMs,
    context: step.context === "" && isSame ? before.context : step.context,
    timers,
    steps: number,
    event,
  });
}

export class ActorStates {
  readonly #actors: Map<string, ActorState>;
  /** The snapshot that has begun. */
  #incoming: Map<string, ActorState> | null = null;
  #process = "";
  #hostname = "";
  #sequence = 0;
  #atMs = 0;

  constructor(from?: ActorStates) {
    this.#actors = new Map(from === undefined ? [] : from.#actors);
    if (from === undefined) return;
    this.#incoming = from.#incoming === null ? null : new Map(from.#incoming);
    this.#process = from.#process;
    this.#hostname = from.#hostname;
    this.#sequence = from.#sequence;
    this.#atMs = from.#atMs;
  }

  /** False until the first feed is applied. */
  get isKnown(): boolean {
    return this.#sequence > 0;
  }

  apply({ process, hostname, sequence, atMs, snapshot, steps, ended }: ActorFeed): void {
    this.#process = process;
    this.#hostname = hostname;
    this.#sequence = sequence;
    this.#atMs = atMs;
    if (snapshot !== null) this.#take(snapshot);
    for (const step of steps)
      for (const actors of [this.#actors, this.#incoming]) actors?.set(step.actor, after(actors.get(step.actor), step));
    for (const actor of ended) for (const actors of [this.#actors, this.#incoming]) actors?.delete(actor);
  }

  /** A snapshot of now, numbered so that the next feed follows it. */
  *snapshot(): Generator<ActorFeed> {
    const actors = [...this.#actors.values()];
    // As many as there are numbers before that of the next feed.
    const messages = Math.max(1, Math.min(Math.ceil(actors.length / actorsPerMessage), this.#sequence));
    const each = Math.ceil(actors.length / messages);
    for (let message = 0; message < messages; message += 1) {
      const part = actors.slice(message * each, (message + 1) * each);
      yield ActorFeed.create({
        process: this.#process,
        hostname: this.#hostname,
        sequence: this.#sequence - messages + 1 + message,
        atMs: this.#atMs,
        snapshot: ActorSnapshot.create({ begins: message === 0, ends: message + 1 === messages, actors: part }),
      });
    }
  }

  #take({ begins, ends, actors }: ActorSnapshot): void {
    if (begins) this.#incoming = new Map();
    const target = this.#incoming ?? this.#actors;
    for (const state of actors) target.set(state.actor, state);
    if (!ends || this.#incoming === null) return;
    this.#actors.clear();
    for (const [actor, state] of this.#incoming) this.#actors.set(actor, state);
    this.#incoming = null;
  }
}
