/** What a manager's troubles mean to whoever waits for anything: each that keeps it from writing, as a reason. */
import { Reason, type Trouble } from "../../proto/gen/messages.ts";

export function explainTroubles(troubles: readonly Trouble[]): readonly Reason[] {
  return troubles
    .filter(({ blocking }) => blocking)
    .map(({ sentence, since }) =>
      Reason.create({
        waitingFor: `this manager to write again: ${sentence}`,
        wokenBy: "the end of that trouble, which 'muster info' shows",
        since,
      }),
    );
}
