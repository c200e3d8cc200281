/**
 * The bus between managers: every message on every subject is sealed under the cluster's data keys, so whoever is on NATS
 * without them can neither read nor forge nor replay one. Nothing is sent in clear, and actors have no other bus.
 *
 * A message names the run of the process that sent it (its life) and its number within that run. A receiver that meets a life
 * for the first time, or has had no proof from it for some seconds, asks that life for its current number, and holds its
 * messages until then (sender-life.ts). An answer is sealed to its question, so it fits no other.
 *
 * SB1: a handler gets only what a holder of a current data key sealed for this very subject.
 * SB4: a question is resolved only by what a holder of a key sealed as the answer to it; anything else in its inbox ends it
 *      like a timeout.
 * X1: a message that cannot be sealed for lack of a key is known not to have been sent.
 */
import { decodedOrNull } from "../../proto/codec.ts";
import { lengthDelimited } from "../../proto/list-writer.ts";
import { LifeAnswer, LifeQuestion, SealedMessage, type DataKey } from "../../proto/gen/messages.ts";
import { assert } from "../../lib/assert.ts";
import { BusRefusals } from "../bus-refusals.ts";
import { isSubjectToken, newId } from "../ids.ts";
import type {
  Bus,
  BusMessage,
  Clock,
  Random,
  RequestOutcome,
  Subscription,
  Telemetry,
  TimerHandle,
} from "../ports/index.ts";
import * as subjects from "../subjects.ts";
import { inMessage } from "../observation/cause.ts";
import type { BusObserver } from "./bus-observer.ts";
import type { Keyring } from "./keyring.ts";
import { open, sealPieces, type SealedFor } from "./seal.ts";
import { SenderLife } from "./sender-life.ts";

interface SealedBusOptions {
  readonly bus: Bus;
  readonly keyring: Keyring;
  readonly random: Random;
  readonly clock: Clock;
  readonly telemetry: Telemetry;
  /** For simulations. */
  readonly observer?: BusObserver | undefined;
}

/** Size in bytes of the largest message that is examined; our own nats-server accepts 8 MiB. */
const messageBytesMax = 8 * 1024 * 1024;
/**
 * Number of attempts to get a proof, since questions get lost, and the milliseconds between them. An answer to any of them
 * counts until the end: an overloaded manager that takes 2 s to answer is not a stranger. Each question waits 2 s for its
 * answer.
 */
const proofTries = 3;
const proofAgainMs = 700;
/** Milliseconds for which a life without proof is not asked again. */
const unprovenMs = 1_000;
/** Lives that are remembered; beyond that, the one first met is forgotten. Each restart of a manager creates one. */
const livesMax = 256;
/** Concurrent requests for proof. Old messages of dead lives cost no more than that. */
const proofsMax = 32;
/** Messages and bytes held until their senders have proven themselves; further ones are dropped. */
const heldMax = 1_024;
const heldBytesMax = 32 * 1024 * 1024;
/** Milliseconds for which messages under the previous key are accepted: managers learn of a change from the log. */
const oldKeyMs = 60_000;
/** Numbers of open questions in a proof; the newest count. */
const openMax = 4_096;

type Handler = (message: BusMessage) => void;

interface Held {
  readonly number: number;
  readonly asked: boolean;
  readonly bytes: number;
  readonly subject: string;
  readonly deliver: () => void;
}

interface Life {
  readonly sender: SenderLife;
  /** Held until the current question is answered; null if there is none. */
  held: Held[] | null;
  refusedAtMs: number | null;
}

/** The format of the envelope that this version sends, without naming it, and the highest that it reads. */
export const busFormat = 1;

/** SealedMessage.ciphertext. */
const ciphertextField = 6;

const answerTo = (subject: string, life: string, number: number): SealedFor => ({
  purpose: "message",
  place: `${subject}\0answer\0${life}\0${number}`,
});

const messageOf = (subject: string, life: string, number: number, asked: boolean): SealedFor => ({
  purpose: "message",
  place: `${subject}\0${asked ? "question" : "news"}\0${life}\0${number}`,
});

export class SealedBus implements Bus {
  readonly #bus: Bus;
  readonly #keyring: Keyring;
  readonly #random: Random;
  readonly #clock: Clock;
  readonly #refusals: BusRefusals;
  readonly #observer: BusObserver | null;
  readonly #life: string;
  #count = 0;
  /** Numbers of our own questions that wait for answers. */
  readonly #open = new Set<number>();
  readonly #lives = new Map<string, Life>();
  /** By subject and queue. */
  readonly #handlers = new Map<string, { readonly handlers: Set<Handler>; readonly subscription: Subscription }>();
  #proofs = 0;
  #held = 0;
  #heldBytes = 0;
  #keyId = "";
  #keySinceMs;
  readonly #proving: Subscription;

  constructor({ bus, keyring, random, clock, telemetry, observer }: SealedBusOptions) {
    this.#bus = bus;
    this.#keyring = keyring;
    this.#random = random;
    this.#clock = clock;
    this.#refusals = BusRefusals.of(telemetry, clock);
    this.#observer = observer ?? null;
    this.#life = newId(random);
    this.#keySinceMs = clock.monotonic();
    // Not itself checked for freshness: a repeated question reveals nothing, and the answer fits only its own question.
    this.#proving = bus.subscribe(subjects.lifeProof(this.#life), (message) => {
      const opened = this.#openMessage(message);
      if (opened === null) return;
      const numbers = [...this.#open].slice(-openMax);
      const answer = LifeAnswer.encode(LifeAnswer.create({ number: this.#count, open: numbers }));
      this.#respond(message, opened, answer);
    });
  }

  /** Headers are not sealed, so they are not sent. */
  publish(subject: string, data: Uint8Array): void {
    const sealed = this.#seal(subject, data, this.#next(), false);
    if (sealed !== null) this.#bus.publish(subject, sealed);
  }

  /** All handlers of one subject share one subscription: a message is opened once, and delivered once to each of them. */
  subscribe(subject: string, handler: (message: BusMessage) => void, queue?: string): Subscription {
    assert(subjects.subjectKind(subject) !== null, `B2: '${subject}' is in the table of subjects`);
    const key = `${queue ?? ""} ${subject}`;
    let shared = this.#handlers.get(key);
    if (shared === undefined) {
      const handlers = new Set<Handler>();
      const subscription = this.#bus.subscribe(subject, (message) => this.#receive(message, handlers), queue);
      shared = { handlers, subscription };
      this.#handlers.set(key, shared);
    }
    const { handlers, subscription } = shared;
    // The same function may be registered twice.
    const own: Handler = (message) => handler(message);
    handlers.add(own);
    return {
      unsubscribe: () => {
        if (!handlers.delete(own) || handlers.size > 0) return;
        subscription.unsubscribe();
        this.#handlers.delete(key);
      },
    };
  }

  async request(subject: string, data: Uint8Array, options: { timeoutMs: number }): Promise<RequestOutcome> {
    const number = this.#next();
    const sealed = this.#seal(subject, data, number, true);
    if (sealed === null) return { kind: "no-responders" };
    this.#open.add(number);
    const outcome = await this.#bus.request(subject, sealed, { timeoutMs: options.timeoutMs });
    this.#open.delete(number);
    if (outcome.kind !== "reply") return outcome;
    const answer = this.#openAnswer(subject, outcome.data, number);
    if (answer !== null) this.#observer?.resolved({ life: this.#life, number, subject, asked: true }, answer);
    return answer === null ? { kind: "timeout" } : { kind: "reply", data: answer };
  }

  isUp(): boolean {
    return this.#bus.isUp();
  }

  onLink(listener: (up: boolean) => void): Subscription {
    return this.#bus.onLink(listener);
  }

  stop(): void {
    this.#proving.unsubscribe();
  }

  #next(): number {
    return (this.#count += 1);
  }

  #seal(subject: string, data: Uint8Array, number: number, asked: boolean): Uint8Array | null {
    const key = this.#keyring.current;
    if (key === null) return null;
    const life = this.#life;
    this.#observer?.sent({ life, number, subject, asked });
    return this.#wrapped(key, data, { life, number, asked }, messageOf(subject, life, number, asked));
  }

  #respond(message: BusMessage, { life, number }: SealedMessage, answer: Uint8Array): void {
    const key = this.#keyring.current;
    if (key === null) return;
    this.#observer?.replied({ life, number, subject: message.subject, asked: true }, answer);
    message.respond(this.#wrapped(key, answer, {}, answerTo(message.subject, life, number)));
  }

  #wrapped(key: DataKey, data: Uint8Array, header: Partial<SealedMessage>, sealedFor: SealedFor): Uint8Array {
    const { keyId, nonce, pieces } = sealPieces(key, data, this.#random, sealedFor, this.#keyring.sealing);
    const head = SealedMessage.encode(SealedMessage.create({ ...header, keyId, nonce }));
    const bytes = pieces.reduce((sum, { length }) => sum + length, 0);
    return Buffer.concat([head, lengthDelimited(ciphertextField, bytes), ...pieces]);
  }

  /** SB4 */
  #openAnswer(subject: string, data: Uint8Array, number: number): Uint8Array | null {
    const answer = this.#decoded(subject, data);
    if (answer === null) return null;
    return this.#openWith(subject, answer, answerTo(subject, this.#life, number));
  }

  #receive(message: BusMessage, handlers: ReadonlySet<Handler>): void {
    const opened = this.#openMessage(message);
    if (opened === null) return;
    const { asked, life: lifeId, number, data } = opened;
    const respond = (answer: Uint8Array): void => this.#respond(message, opened, answer);
    const deliver = (): void => {
      this.#observer?.heard(this.#life, { life: lifeId, number, subject: message.subject, asked });
      inMessage(message.subject, () => {
        for (const handler of handlers) handler({ subject: message.subject, headers: {}, data, respond });
      });
    };
    const held: Held = { number, asked, bytes: data.length, subject: message.subject, deliver };
    const life = this.#lifeOf(lifeId);
    if (life.held !== null && !life.sender.isProven(this.#clock.monotonic())) return this.#hold(life, held);
    if (!life.sender.isProven(this.#clock.monotonic())) return this.#askForProof(lifeId, life, held);
    switch (life.sender.take(number, asked, false)) {
      case "replayed":
        this.#refusals.add(message.subject, "replayed");
        return;
      case "doubtful":
        if (life.held !== null) this.#hold(life, held);
        else this.#askForProof(lifeId, life, held);
        return;
      case "fresh":
        if (life.held === null && life.sender.isAgeing(this.#clock.monotonic())) this.#askForProof(lifeId, life, null);
        deliver();
    }
  }

  #lifeOf(id: string): Life {
    let life = this.#lives.get(id);
    if (life === undefined) {
      life = { sender: new SenderLife(), held: null, refusedAtMs: null };
      this.#lives.set(id, life);
      if (this.#lives.size > livesMax) this.#forgetOne();
    }
    return life;
  }

  /** A forgotten life has to prove itself again; its earlier messages are then rejected. */
  #forgetOne(): void {
    const nowMs = this.#clock.monotonic();
    let oldest: string | null = null;
    for (const [id, { held, sender }] of this.#lives) {
      if (held !== null) continue;
      oldest ??= id;
      if (sender.isProven(nowMs)) continue;
      oldest = id;
      break;
    }
    if (oldest !== null) this.#lives.delete(oldest);
  }

  #hold(life: Life, held: Held): void {
    if (this.#held >= heldMax || this.#heldBytes + held.bytes > heldBytesMax) {
      this.#refusals.add(held.subject, "unproven", "too many messages wait for their senders' proofs");
      return;
    }
    this.#held += 1;
    this.#heldBytes += held.bytes;
    life.held?.push(held);
  }

  #askForProof(lifeId: string, life: Life, first: Held | null): void {
    const nowMs = this.#clock.monotonic();
    const { refusedAtMs } = life;
    const isRefused = refusedAtMs !== null && Math.abs(nowMs - refusedAtMs) < unprovenMs;
    if (isRefused || this.#proofs >= proofsMax) {
      if (first !== null) this.#refusals.add(first.subject, "unproven");
      return;
    }
    life.held = [];
    if (first !== null) this.#hold(life, first);
    this.#proofs += 1;
    void this.#proofOf(lifeId).then((answer) => {
      this.#proofs -= 1;
      // As of the time of the question: what the sender sent since then is newer than that.
      if (answer !== null) life.sender.prove(answer.number, answer.open, nowMs);
      life.refusedAtMs = answer === null ? nowMs : null;
      const waiting = life.held ?? [];
      life.held = null;
      for (const held of waiting) this.#release(life, held, answer !== null);
    });
  }

  #release(life: Life, { asked, bytes, deliver, number, subject }: Held, isProven: boolean): void {
    this.#held -= 1;
    this.#heldBytes -= bytes;
    if (!isProven) this.#refusals.add(subject, "unproven");
    else if (life.sender.take(number, asked, true) === "fresh") deliver();
    // Messages that a manager published before it was first asked are skipped: they are outdated.
    else if (asked) this.#refusals.add(subject, "replayed");
  }

  /** The first answer; null if none arrives, or nobody listens there: that process has ended. */
  #proofOf(life: string): Promise<LifeAnswer | null> {
    const { promise, resolve } = Promise.withResolvers<LifeAnswer | null>();
    const question = LifeQuestion.encode(LifeQuestion.create());
    let timer: TimerHandle | null = null;
    const ask = (triesLeft: number): void => {
      const asked = this.request(subjects.lifeProof(life), question, { timeoutMs: triesLeft * proofAgainMs });
      if (triesLeft > 1) timer = this.#clock.setTimeout(() => ask(triesLeft - 1), proofAgainMs);
      void asked.then((outcome) => {
        if (timer !== null) this.#clock.clearTimeout(timer);
        resolve(outcome.kind === "reply" ? decodedOrNull(LifeAnswer, outcome.data) : null);
      });
    };
    ask(proofTries);
    return promise;
  }

  /** SB1 */
  #openMessage({ data, subject }: BusMessage): (SealedMessage & { readonly data: Uint8Array }) | null {
    const message = this.#decoded(subject, data);
    if (message === null) return null;
    const { asked, life, number } = message;
    if (!isSubjectToken(life) || !Number.isSafeInteger(number) || number < 1) {
      this.#refusals.add(subject, "unsealed");
      return null;
    }
    const opened = this.#openWith(subject, message, messageOf(subject, life, number, asked));
    return opened === null ? null : Object.assign(message, { data: opened });
  }

  #decoded(subject: string, data: Uint8Array): SealedMessage | null {
    if (data.length > messageBytesMax) {
      this.#refusals.add(subject, "too large", `${data.length} bytes`);
      return null;
    }
    const message = decodedOrNull(SealedMessage, data);
    // Every sealed message has a nonce.
    if (message === null || message.nonce.length === 0) {
      this.#refusals.add(subject, "unsealed");
      return null;
    }
    if (message.format > busFormat) {
      const known = `format ${message.format}, but this version of Muster knows format ${busFormat} at most: upgrade this manager`;
      this.#refusals.add(subject, "newer format", known);
      return null;
    }
    return message;
  }

  #openWith(subject: string, sealed: SealedMessage, sealedFor: SealedFor): Uint8Array | null {
    const key = this.#keyring.find(sealed.keyId);
    if (key === undefined) {
      this.#refusals.add(subject, "unknown key");
      return null;
    }
    if (!this.#isInUse(key)) {
      this.#refusals.add(subject, "old key", `generation ${key.generation}`);
      return null;
    }
    const opened = open(key.key, sealed, sealedFor, this.#keyring.sealing);
    if (opened === null) this.#refusals.add(subject, "forged");
    return opened;
  }

  /**
   * Former managers have the keys of their time, which expire soon after a newer one is in use. A manager that has just started
   * reads the log first, and accepts older keys for as long.
   */
  #isInUse({ generation }: DataKey): boolean {
    const { current } = this.#keyring;
    if (current === null) return true;
    const nowMs = this.#clock.monotonic();
    if (current.id !== this.#keyId) {
      this.#keyId = current.id;
      this.#keySinceMs = nowMs;
    }
    return generation >= current.generation || Math.abs(nowMs - this.#keySinceMs) < oldKeyMs;
  }
}
