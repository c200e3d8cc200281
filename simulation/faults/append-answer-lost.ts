/**
 * Records are appended, and the answers are lost, as when the stream's leader fails between the two: the writer cannot know
 * whether it wrote. In half of the strikes the same happens to leases.
 */
import type { Fault } from "./fault.ts";

/** Longer than an append waits for its answer (5 s). */
const lostMsMax = 7_000;

export const appendAnswerLost = {
  kind: "append.answer.lost",
  share: 0.3,
  meanMs: [3_000, 15_000],
  begin({ later, simulation: { nats } }) {
    const heal = (): void => void (nats.losesAnswersOf = "none");
    return {
      strike(random) {
        nats.losesAnswersOf = random.chance(0.5) ? "appends" : "all";
        later(random.between(50, lostMsMax), heal);
      },
      heal,
    };
  },
} as const satisfies Fault;
