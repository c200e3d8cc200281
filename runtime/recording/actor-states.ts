/** The states of a process's actors, to which its feed is applied: where a recording begins. */
import { ActorFeed, ActorSnapshot, ActorState, type ActorStep } from "../../proto/gen/messages.ts";

/** Actors of one message of a snapshot, and their bytes: as a part of a recording, it fits a message on the bus. */
const actorsPerMessage = 500;
const messageBytesMax = 512 * 1024;

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
    const parts = this.#parts();
    const messages = parts.length;
    for (const [message, part] of parts.entries()) {
      yield ActorFeed.create({
        process: this.#process,
        hostname: this.#hostname,
        sequence: this.#sequence - messages + 1 + message,
        atMs: this.#atMs,
        snapshot: ActorSnapshot.create({ begins: message === 0, ends: message + 1 === messages, actors: part }),
      });
    }
  }

  /**
   * At most as many as there are numbers before that of the next feed. Each message before brought a part of the states, which is
   * smaller than one of these.
   */
  #parts(): readonly (readonly ActorState[])[] {
    let part: ActorState[] = [];
    let bytes = 0;
    const parts = [part];
    // The rest of a snapshot that has begun follows in the next feeds.
    for (const state of new Map([...this.#actors, ...(this.#incoming ?? [])]).values()) {
      const { length } = ActorState.encode(state);
      const isFull = part.length === actorsPerMessage || (part.length > 0 && bytes + length > messageBytesMax);
      if (isFull && parts.length < this.#sequence) {
        part = [];
        parts.push(part);
        bytes = 0;
      }
      part.push(state);
      bytes += length;
    }
    return parts;
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
