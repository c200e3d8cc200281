/**
 * The feed of a process to one listener: a snapshot in chunks, then steps (or, without steps, changed actors again).
 *
 * FL1: sequence numbers have no gap.
 * FL2: a listener that is not ready gets nothing, and its steps wait within a bound (`pending-steps.ts`).
 * FL3: each actor is either in the snapshot as it is after a step, or the step follows the snapshot; never neither.
 * FL4: no message is larger than `messageBytesMax`.
 */
import { ActorFeed, ActorSnapshot, type ActorSelection, type ActorState, ActorStep } from "../../proto/gen/messages.ts";
import type { Clock } from "../../runtime/ports/index.ts";
import type { ObservedActor, ObservedStep } from "../../runtime/observation/step.ts";
import {
  changesContext,
  fittingState,
  fittingStep,
  stateBytes,
  stateMessage,
  stepBytes,
  stepMessage,
} from "./feed-messages.ts";
import { PendingSteps } from "./pending-steps.ts";
import type { FeedListener } from "./feed-listener.ts";

/** Actors in one message. */
const actorsPerMessage = 250;
/** Messages of a snapshot per flush: 1,000 actors, some 10 ms; 10,000 actors take half a second. */
const snapshotMessagesPerFlush = 4;
/**
 * Bytes of one message, so that a NATS message (1 MB) and a request of gRPC (4 MiB) carry it, also as a part of a recording. A step
 * or a state that is larger has `{"$cut":true}` in place of its context, and of its event's fields if that is not enough.
 */
export const messageBytesMax = 128 * 1024;
/** Bytes of the steps or actors in one message; the rest is for its other fields. */
export const contentBytesMax = messageBytesMax - 2_048;
/** Steps in one message. */
const stepsPerMessage = 1_000;
/** Ids of ended actors in one message. */
const endedPerMessage = 500;
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
    let bytes = 0;
    for (const id of missing) {
      const state = this.#stateOf(id);
      bytes += state === null ? 0 : stateBytes(state);
      if (bytes > contentBytesMax && actors.length > 0) break;
      missing.delete(id);
      if (state !== null) actors.push(state);
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

  /** As many as fit into one message. An actor and a later one with its id are in different messages. FL4 */
  #sendSteps(): void {
    const steps: ActorStep[] = [];
    const ended = new Set<string>();
    let bytes = 0;
    this.#pending.takeWhile((pending) => {
      const { step } = pending;
      if (steps.length === stepsPerMessage || ended.has(step.id)) return false;
      if (pending.endedBefore) {
        pending.endedBefore = false;
        ended.add(step.id);
        return false;
      }
      const message = fittingStep(stepMessage(step, pending.withContext, pending.skipped), contentBytesMax);
      bytes += stepBytes(message) + (step.status === "active" ? 0 : stepBytes(ActorStep.create({ actor: step.id })));
      if (bytes > contentBytesMax && steps.length > 0) return false;
      steps.push(message);
      if (step.status !== "active") ended.add(step.id);
      return true;
    });
    this.#send({ steps, ended: [...ended] });
  }

  /** Null if it has ended. */
  #stateOf(id: string): ActorState | null {
    const actor = this.#source.look(id);
    return actor?.status === "active" ? fittingState(stateMessage(actor), contentBytesMax) : null;
  }

  #flushChanged(): boolean {
    const hasWork = this.#ended.length + this.#changed.size + this.#sending.length > 0;
    if (!hasWork) return false;
    if (!this.#listener.ready()) return true;
    while (this.#ended.length > 0) {
      if (!this.#listener.ready()) return true;
      this.#send({ ended: this.#ended.splice(0, endedPerMessage) });
    }
    const now = this.#source.clock.monotonic();
    if (this.#sending.length === 0 && now - this.#changedAtMs >= changedEveryMs) {
      this.#changedAtMs = now;
      this.#sending = [...this.#changed];
      this.#changed.clear();
    }
    for (let sent = 0; this.#sending.length > 0; sent += 1) {
      if (sent === snapshotMessagesPerFlush || !this.#listener.ready()) return true;
      const actors: ActorState[] = [];
      let [bytes, count] = [0, 0];
      for (const id of this.#sending) {
        const state = this.#stateOf(id);
        bytes += state === null ? 0 : stateBytes(state);
        if (bytes > contentBytesMax && actors.length > 0) break;
        count += 1;
        if (state !== null) actors.push(state);
        if (actors.length === actorsPerMessage) break;
      }
      this.#sending.splice(0, count);
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
