/** Who is told, in simulations, what really passes on the sealed bus: an oracle beside it, which opens nothing itself. */

export interface BusPassage {
  /** Of the sender; of an answer, the asker's. */
  readonly life: string;
  readonly number: number;
  readonly subject: string;
  readonly asked: boolean;
}

export interface BusObserver {
  /** This life sends it. */
  sent(passage: BusPassage): void;
  /** This life's handlers are about to be handed it. */
  heard(by: string, passage: BusPassage): void;
  /** A handler answers that question. */
  replied(passage: BusPassage, answer: Uint8Array): void;
  /** Whoever asked that question takes this for its answer. */
  resolved(passage: BusPassage, answer: Uint8Array): void;
}
