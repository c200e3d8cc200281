/** Observes, in simulations, what really passes on the sealed bus: an oracle that opens nothing itself. */

export interface BusPassage {
  /** The sender's life; for an answer, the asker's. */
  readonly life: string;
  readonly number: number;
  readonly subject: string;
  readonly asked: boolean;
}

export interface BusObserver {
  /** This life sends it. */
  sent(passage: BusPassage): void;
  /** Called just before this life's handlers receive it. */
  heard(by: string, passage: BusPassage): void;
  /** A handler answers that question. */
  replied(passage: BusPassage, answer: Uint8Array): void;
  /** The asker of that question accepts this as its answer. */
  resolved(passage: BusPassage, answer: Uint8Array): void;
}
