/**
 * Paces answers over turns of the event loop. Otherwise, a thousand nodes that report at once would be answered, and would send
 * again, within one turn, and other callers (above all heartbeats) would wait for all of them each time.
 *
 * A1: at most `answersPerTurn` answers per turn, in request order; none is delayed while there are fewer.
 */
import type { Clock } from "../../runtime/ports/index.ts";

/** At about 0.1 ms for an answer and the next request, a turn takes 3 ms. */
const answersPerTurn = 32;

/** The answers of one future turn. */
interface Turn<Answer> {
  readonly promise: Promise<Answer>;
  readonly resolve: (answer: Answer) => void;
  size: number;
}

export class AnswerPace<Answer> {
  readonly #clock: Clock;
  /** Shared by all: callers of the same turn share one promise, as most calls of busy nodes do. */
  readonly #answer: Answer;
  #given = 0;
  #isCounting = false;
  #turns: Turn<Answer>[] = [];

  constructor(clock: Clock, answer: Answer) {
    this.#clock = clock;
    this.#answer = answer;
  }

  /** The answer, or a promise of it if its turn is later. */
  give(): Answer | Promise<Answer> {
    if (!this.#isCounting) {
      this.#isCounting = true;
      this.#clock.soon(() => this.#turn());
    }
    if (this.#given < answersPerTurn) {
      this.#given += 1;
      return this.#answer;
    }
    let turn = this.#turns.at(-1);
    if (turn === undefined || turn.size === answersPerTurn) {
      turn = { ...Promise.withResolvers<Answer>(), size: 0 };
      this.#turns.push(turn);
    }
    turn.size += 1;
    return turn.promise;
  }

  #turn(): void {
    const turn = this.#turns.shift();
    this.#given = turn?.size ?? 0;
    this.#isCounting = turn !== undefined;
    if (this.#isCounting) this.#clock.soon(() => this.#turn());
    turn?.resolve(this.#answer);
  }
}
