/** Applies records of the log to a replica of the past, up to a version or until its owner has enough for now. */
import type { Clock, Log } from "../../runtime/ports.ts";
import { LogBreak, type Replica } from "../../runtime/store/replica.ts";

/** How long the log may hand over nothing, in milliseconds. */
const silentMsMax = 5_000;

/**
 * `gap`: the next record is no longer kept. `broken`: the log does not fit together. `silent`: it does not answer.
 * `stopped`: `isEnough` said so.
 */
export type Replayed = "reached" | "gap" | "broken" | "silent" | "stopped";

/** Applies the records up to and including `to`. `isEnough` is asked after each. */
export function replayTo(
  { log, clock }: { readonly log: Log; readonly clock: Clock },
  replica: Replica,
  to: number,
  isEnough: () => boolean = () => false,
): Promise<Replayed> {
  if (replica.version >= to) return Promise.resolve("reached");
  return new Promise((resolve) => {
    let isOver = false;
    let seen = replica.version;
    const end = (outcome: Replayed): void => {
      if (isOver) return;
      isOver = true;
      clock.clearTimeout(looking);
      // `read` may hand over before it has returned.
      clock.soon(() => reading.unsubscribe());
      resolve(outcome);
    };
    const look = (): void => {
      if (isEnough()) end("stopped");
      else if (replica.version === seen) end("silent");
      else {
        seen = replica.version;
        looking = clock.setTimeout(look, silentMsMax);
      }
    };
    let looking = clock.setTimeout(look, silentMsMax);
    const reading = log.read(replica.version + 1, {
      onRecord: (sequence, data) => {
        if (isOver || sequence !== replica.version + 1) return;
        try {
          replica.apply(sequence, data);
        } catch (error) {
          if (!(error instanceof LogBreak)) throw error;
          end("broken");
          return;
        }
        if (replica.version >= to) end("reached");
        else if (isEnough()) end("stopped");
      },
      onCaughtUp: () => {},
      onGap: () => end("gap"),
    });
  });
}
