/**
 * The bus with some subjects sealed: requests that carry what goes into the log are as unreadable to whoever listens on NATS
 * as the log itself. Everything else passes as it is.
 *
 * X1: what cannot be sealed for want of a key is known not to have been sent. What does not open is not heard.
 */
import { Sealed } from "../../proto/gen/messages.ts";
import type { Bus, BusMessage, Headers, Random, RequestOutcome, Subscription } from "../ports.ts";
import type { Keyring } from "./keyring.ts";
import { open, seal, type SealedFor } from "./seal.ts";

export interface SealedBusOptions {
  readonly bus: Bus;
  readonly keyring: Keyring;
  readonly random: Random;
  /** Subjects of which requests and replies are sealed. Nothing is published on them without being asked. */
  readonly subjects: ReadonlySet<string>;
}

const question = (subject: string): SealedFor => ({ purpose: "message", place: subject });
const reply = (subject: string): SealedFor => ({ purpose: "message", place: `${subject} reply` });

export class SealedBus implements Bus {
  readonly #bus: Bus;
  readonly #keyring: Keyring;
  readonly #random: Random;
  readonly #subjects: ReadonlySet<string>;

  constructor({ bus, keyring, random, subjects }: SealedBusOptions) {
    this.#bus = bus;
    this.#keyring = keyring;
    this.#random = random;
    this.#subjects = subjects;
  }

  publish(subject: string, data: Uint8Array, headers?: Headers): void {
    this.#bus.publish(subject, data, headers);
  }

  subscribe(subject: string, handler: (message: BusMessage) => void, queue?: string): Subscription {
    if (!this.#subjects.has(subject)) return this.#bus.subscribe(subject, handler, queue);
    const opening = (message: BusMessage): void => {
      const data = this.#open(message.data, question(subject));
      if (data === null) return;
      const respond = (answer: Uint8Array): void => {
        const sealed = this.#seal(answer, reply(subject));
        if (sealed !== null) message.respond(sealed);
      };
      handler({ subject: message.subject, headers: message.headers, data, respond });
    };
    return this.#bus.subscribe(subject, opening, queue);
  }

  async request(
    subject: string,
    data: Uint8Array,
    options: { timeoutMs: number; headers?: Headers },
  ): Promise<RequestOutcome> {
    if (!this.#subjects.has(subject)) return this.#bus.request(subject, data, options);
    const sealed = this.#seal(data, question(subject));
    if (sealed === null) return { kind: "no-responders" };
    const outcome = await this.#bus.request(subject, sealed, options);
    if (outcome.kind !== "reply") return outcome;
    const answer = this.#open(outcome.data, reply(subject));
    return answer === null ? { kind: "timeout" } : { kind: "reply", data: answer };
  }

  isUp(): boolean {
    return this.#bus.isUp();
  }

  onLink(listener: (up: boolean) => void): Subscription {
    return this.#bus.onLink(listener);
  }

  #seal(data: Uint8Array, sealedFor: SealedFor): Uint8Array | null {
    const key = this.#keyring.current;
    return key === null ? null : Sealed.encode(seal(key, data, this.#random, sealedFor));
  }

  #open(data: Uint8Array, sealedFor: SealedFor): Uint8Array | null {
    let sealed: Sealed;
    try {
      sealed = Sealed.decode(data);
    } catch {
      return null;
    }
    const key = this.#keyring.find(sealed.keyId);
    return key === undefined ? null : open(key.key, sealed, sealedFor);
  }
}
