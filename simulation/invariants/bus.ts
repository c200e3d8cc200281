/**
 * Invariants of the bus: messages received by managers, compared with those sent.
 *
 * N1: a received message was sent by a manager, on that subject.
 * N2: one life of a manager receives each message once.
 * N3: no message is received long after it was sent.
 * N4: an accepted answer to a question was given by somebody to that question.
 */
import { createHash } from "node:crypto";
import type { BusObserver, BusPassage } from "../../runtime/store/bus-observer.ts";
import { provenMs } from "../../runtime/store/sender-life.ts";

/** N3: validity of a proof, plus a pause (12 s) in which a question stays open, and clock drift. */
export const heardMsMax = provenMs + 15_000;

const name = ({ life, number }: BusPassage): string => `${life}/${number}`;
const told = (passage: BusPassage): string => `${passage.subject} ${name(passage)}`;
const digest = (data: Uint8Array): string => createHash("sha256").update(data).digest("base64");

export class BusLedger implements BusObserver {
  readonly #now: () => number;
  readonly #fail: (claim: string) => void;
  readonly #sent = new Map<string, { readonly passage: BusPassage; readonly atMs: number }>();
  readonly #heard = new Set<string>();
  readonly #replies = new Map<string, Set<string>>();

  /** `now`: true time, in milliseconds. */
  constructor(now: () => number, fail: (claim: string) => void) {
    this.#now = now;
    this.#fail = fail;
  }

  sent(passage: BusPassage): void {
    this.#sent.set(name(passage), { passage, atMs: this.#now() });
  }

  heard(by: string, passage: BusPassage): void {
    const sent = this.#sent.get(name(passage));
    if (sent === undefined || sent.passage.subject !== passage.subject || sent.passage.asked !== passage.asked)
      return this.#fail(`N1: ${told(passage)} was received but never sent`);
    const once = `${by} ${name(passage)}`;
    if (this.#heard.has(once)) return this.#fail(`N2: ${told(passage)} was received twice by ${by}`);
    this.#heard.add(once);
    const ageMs = this.#now() - sent.atMs;
    if (ageMs > heardMsMax)
      return this.#fail(`N3: ${told(passage)} was received ${Math.round(ageMs)} ms after it was sent`);
    return undefined;
  }

  replied(passage: BusPassage, answer: Uint8Array): void {
    let replies = this.#replies.get(name(passage));
    if (replies === undefined) this.#replies.set(name(passage), (replies = new Set()));
    replies.add(digest(answer));
  }

  resolved(passage: BusPassage, answer: Uint8Array): void {
    if (this.#replies.get(name(passage))?.has(digest(answer)) === true) return;
    this.#fail(`N4: ${told(passage)} has an answer that nobody gave`);
  }
}
