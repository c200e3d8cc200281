/**
 * The feed of a process to one listener: a snapshot in chunks, then steps (or, without steps, changed actors again).
 *
 * FL1: sequence numbers have no gap.
 * FL2: a listener that is not ready gets nothing, and its steps wait within a bound (`pending-steps.ts`).
 * FL3: each actor is either in the snapshot as it is after a step, or the step follows the snapshot; never neither.
 */
import {
  ActorFeed,
  ActorSnapshot,
  type ActorSelection,
  type ActorState,
  type ActorStep,
} from "../../proto/gen/messages.ts";
import type { Clock } from "../../runtime/ports/index.ts";
import type { ObservedActor, ObservedStep } from "../../runtime/observation/step.ts";
import { changesContext, stateMessage, stepMessage } from "./feed-messages.ts";
import { PendingSteps } from "./pending-steps.ts";
import type { FeedListener } from "./feed-listener.ts";

/** Actors in one message: about 100 kB. */
const actorsPerMessage = 250;
/** Messages of a snapshot per flush: 1,000 actors, some 10 ms; 10,000 actors take half a second. */
const snapshotMessagesPerFlush = 4;
/** Steps in one message: at most a flush of a process under full load. */
const stepsPerMessage = 1_000;
/** Ids of ended actors that wait for a listener without steps: beyond it, the listener gets a snapshot instead. */
const endedMax = 10_000;
/** How often an actor is sent again to a listener without steps, in milliseconds. */
const changedEveryMs = 1_000;

export interface FeedSource {
  readonly clock: Clock;
  readonly process: string;
  readonly hostname: string;
  ids(): Iterable<string>;
  look(id: string): ObservedActor | undefined;
}

export class FeedLine {
  readonly #source: FeedSource;
  readonly #selection: ActorSelection;
  readonly #listener: FeedListener;
  readonly #pending: PendingSteps;
  /** Actors that the snapshot under way still lacks; null: there is none. */
  #missing: Set<string> | null = null;
  #hasBegun = false;
  #sequence = 0;
  /** Without steps only. */
  readonly #changed = new Set<string>();
  #ended: string[] = [];
  #needsSnapshot = false;
  /** Changed actors that are being sent. */
  #sending: string[] = [];
  #changedAtMs = Number.NEGATIVE_INFINITY;

  constructor(source: FeedSource, selection: ActorSelection, listener: FeedListener, pendingMax?: number) {
    this.#source = source;
    this.#selection = selection;
    this.#listener = listener;
    this.#pending = new PendingSteps(pendingMax);
    this.again();
  }

  again(): void {
    this.#missing = new Set<string>();
    for (const id of this.#source.ids()) if (this.#isChosen(id)) this.#missing.add(id);
    this.#hasBegun = false;
    this.#pending.clear();
    this.#needsSnapshot = false;
    this.#changed.clear();
    this.#ended = [];
    this.#sending = [];
  }

  take(step: ObservedStep): void {
    if (this.#needsSnapshot) return;
    // FL3: the snapshot will have its state.
    if (this.#missing?.has(step.id) === true || !this.#isChosen(step.id)) return;
    if (!this.#selection.withoutSteps) this.#pending.add(step, changesContext(step));
    else if (step.status === "active") this.#changed.add(step.id);
    else {
      this.#changed.delete(step.id);
      this.#ended.push(step.id);
      if (this.#ended.length > endedMax) this.#needsSnapshot = true;
    }
  }

  /** Sends what the listener is ready for; true: more waits. */
  flush(): boolean {
    if (this.#needsSnapshot || this.#pending.isOverflown) {
      if (!this.#listener.ready()) return true;
      this.again();
    }
    for (let sent = 0; this.#missing !== null; sent += 1) {
      if (sent === snapshotMessagesPerFlush || !this.#listener.ready()) return true;
      this.#sendPart(this.#missing);
    }
    return this.#selection.withoutSteps ? this.#flushChanged() : this.#flushSteps();
  }

  #sendPart(missing: Set<string>): void {
    const actors: ActorState[] = [];
    for (const id of missing) {
      missing.delete(id);
      const actor = this.#source.look(id);
      if (actor?.status === "active") actors.push(stateMessage(actor));
      if (actors.length === actorsPerMessage) break;
    }
    const begins = !this.#hasBegun;
    this.#hasBegun = true;
    const ends = missing.size === 0;
    if (ends) this.#missing = null;
    this.#send({ snapshot: ActorSnapshot.create({ begins, ends, actors }) });
  }

  #flushSteps(): boolean {
    while (this.#pending.size > 0) {
      if (!this.#listener.ready()) return true;
      this.#sendSteps();
    }
    return this.#pending.isOverflown;
  }

  /** As many as fit into one message. An actor and a later one with its id are in different messages. */
  #sendSteps(): void {
    let steps: ActorStep[] = [];
    let ended = new Set<string>();
    for (const { step, withContext, skipped, endedBefore } of this.#pending.take(stepsPerMessage)) {
      if (endedBefore) ended.add(step.id);
      if (ended.has(step.id)) {
        this.#send({ steps, ended: [...ended] });
        [steps, ended] = [[], new Set()];
      }
      steps.push(stepMessage(step, withContext, skipped));
      if (step.status !== "active") ended.add(step.id);
    }
    this.#send({ steps, ended: [...ended] });
  }

  #flushChanged(): boolean {
    const hasWork = this.#ended.length + this.#changed.size + this.#sending.length > 0;
    if (!hasWork) return false;
    if (!this.#listener.ready()) return true;
    if (this.#ended.length > 0) this.#send({ ended: this.#ended.splice(0) });
    const now = this.#source.clock.monotonic();
    if (this.#sending.length === 0 && now - this.#changedAtMs >= changedEveryMs) {
      this.#changedAtMs = now;
      this.#sending = [...this.#changed];
      this.#changed.clear();
    }
    for (let sent = 0; this.#sending.length > 0; sent += 1) {
      if (sent === snapshotMessagesPerFlush || !this.#listener.ready()) return true;
      const actors = this.#sending.splice(0, actorsPerMessage).flatMap((id) => {
        const actor = this.#source.look(id);
        return actor?.status === "active" ? [stateMessage(actor)] : [];
      });
      this.#send({ snapshot: ActorSnapshot.create({ begins: false, ends: false, actors }) });
    }
    return this.#changed.size > 0;
  }

  #send(fields: Partial<ActorFeed>): void {
    const { clock, process, hostname } = this.#source;
    this.#sequence += 1;
    this.#listener.onFeed(
      ActorFeed.create({
        process,
        hostname,
        sequence: this.#sequence,
        atMs: clock.now(),
        droppedSteps: this.#pending.takeDropped(),
        ...fields,
      }),
    );
  }

  #isChosen(id: string): boolean {
    const { actors } = this.#selection;
    return (
      actors.length === 0 || actors.some((chosen) => (chosen.endsWith("/") ? id.startsWith(chosen) : id === chosen))
    );
  }
}
