/**
 * Answers in turns of the event loop. A thousand nodes that report at once would otherwise be answered, and heard again,
 * within one turn, and whoever else calls (a heartbeat above all) would wait for all of them, each time.
 *
 * A1: no more than `answersPerTurn` in a turn, in the order in which they were asked for; none is kept back while fewer are.
 */
import type { Clock } from "../../runtime/ports.ts";

/** At some 0.1 ms for an answer and the request that follows it, a turn takes 3 ms. */
const answersPerTurn = 32;

/** The answers of one turn to come. */
interface Turn<Answer> {
  readonly promise: Promise<Answer>;
  readonly resolve: (answer: Answer) => void;
  size: number;
}

export class AnswerPace<Answer> {
  readonly #clock: Clock;
  /** One for all: who waits for the same turn waits for the same promise, as most calls of busy nodes do. */
  readonly #answer: Answer;
  #given = 0;
  #isCounting = false;
  #turns: Turn<Answer>[] = [];

  constructor(clock: Clock, answer: Answer) {
    this.#clock = clock;
    this.#answer = answer;
  }

  /** The answer, or a promise of it where its turn has not come. */
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
