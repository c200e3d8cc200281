/** A manager's troubles as reasons: each that keeps it from writing delays everything that waits. */
import { Reason, type Trouble } from "../../proto/gen/messages.ts";

export function explainTroubles(troubles: readonly Trouble[]): readonly Reason[] {
  return troubles
    .filter(({ blocking }) => blocking)
    .map(({ sentence, since }) =>
      Reason.create({
        waitingFor: `this manager to write again: ${sentence}`,
        wokenBy: "the end of the problem, which 'muster info' shows",
        since,
      }),
    );
}
