/**
 * Answers in turns of the event loop. A thousand nodes that report at once would otherwise be answered, and heard again,
 * within one turn, and whoever else calls (a heartbeat above all) would wait for all of them, each time.
 *
 * A1: no more than `answersPerTurn` in a turn, in the order in which they were asked for; none is kept back while fewer are.
 */
import type { Clock } from "../../runtime/ports.ts";

/** At some 0.1 ms for an answer and the request that follows it, a turn takes 3 ms. */
const answersPerTurn = 32;

export class AnswerPace {
  readonly #clock: Clock;
  #given = 0;
  #isCounting = false;
  #waiting: (() => void)[] = [];

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** The answer, or a promise of it where its turn has not come. */
  give<T>(answer: T): T | Promise<T> {
    if (!this.#isCounting) {
      this.#isCounting = true;
      this.#clock.soon(() => this.#turn());
    }
    if (this.#given < answersPerTurn) {
      this.#given += 1;
      return answer;
    }
    return new Promise((resolve) => this.#waiting.push(() => resolve(answer)));
  }

  #turn(): void {
    const due = this.#waiting.slice(0, answersPerTurn);
    this.#waiting = this.#waiting.slice(due.length);
    this.#given = due.length;
    this.#isCounting = due.length > 0;
    if (this.#isCounting) this.#clock.soon(() => this.#turn());
    for (const give of due) give();
  }
}
