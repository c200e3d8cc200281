/** Finds the version of the cluster at a given time, by reading a few records of the log. */
import { isoOf } from "../../machines/orchestration/jobs/runs.ts";
import { timeMs } from "../../proto/time.ts";
import { FindVersionResponse, Timestamp } from "../../proto/gen/messages.ts";
import type { Clock, Log, LogReader } from "../../runtime/ports/index.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import { oneRecord } from "../../runtime/store/fitting.ts";
import { decodeRecord } from "../../runtime/store/record.ts";

/** Timeout of each answer of the log, in milliseconds. */
const answerTimeoutMs = 5_000;

export function unreadable(): RpcError {
  return new RpcError(Status.UNAVAILABLE, "the log does not answer: try again");
}

/** When the record was written, by its writer's clock; null when the log no longer has it. */
export function timeOf(log: Log, clock: Clock, sequence: number): Promise<Timestamp | null> {
  return new Promise((resolve, reject) => {
    const timer = clock.setTimeout(() => end(() => reject(unreadable())), answerTimeoutMs);
    let isOver = false;
    const end = (answer: () => void): void => {
      if (isOver) return;
      isOver = true;
      clock.clearTimeout(timer);
      // `read` may deliver before it has returned.
      clock.soon(() => reading.unsubscribe());
      answer();
    };
    const reader: LogReader = {
      onRecord: (_, data) => {
        const outcome = decodeRecord(data);
        // A foreign message has no time: the next record shows until when nothing changed.
        if (outcome.kind === "decoded") end(() => resolve(outcome.record.transaction.time ?? Timestamp.create()));
      },
      onCaughtUp: (last) => {
        // Only foreign messages follow: nothing was written since.
        if (last >= sequence) end(() => resolve(Timestamp.create({ seconds: Number.MAX_SAFE_INTEGER })));
      },
      onGap: () => end(() => resolve(null)),
    };
    const reading = log.read(sequence, reader, oneRecord);
  });
}

function isLater(a: Timestamp, b: Timestamp): boolean {
  return a.seconds > b.seconds || (a.seconds === b.seconds && a.nanos > b.nanos);
}

/**
 * The last version written at or before `time`. Leaders' clocks may differ: around a change of leader, times may decrease along
 * the log by that difference. OUT_OF_RANGE when the version is no longer retained.
 */
export async function findVersion(
  { log, clock }: { log: Log; clock: Clock },
  time: Timestamp,
): Promise<FindVersionResponse> {
  const bounds = await log.bounds(answerTimeoutMs);
  if (bounds === null) throw unreadable();
  // Everything below `low` was written by then, and nothing from `high` on.
  let [low, high] = [bounds.first, bounds.last + 1];
  let found: Timestamp | null = null;
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    const written = await timeOf(log, clock, middle);
    // Purged meanwhile, and so is everything before it.
    if (written === null) low = middle + 1;
    else if (isLater(written, time)) high = middle;
    else {
      low = middle + 1;
      found = written;
    }
  }
  if (low === bounds.first && bounds.first > 1) {
    const oldest = bounds.first > bounds.last ? null : await timeOf(log, clock, bounds.first);
    const when = oldest === null ? "" : `, of ${isoOf(timeMs(oldest))}`;
    throw new RpcError(
      Status.OUT_OF_RANGE,
      `that time is before the retained history (oldest: version ${bounds.first}${when})`,
    );
  }
  return FindVersionResponse.create({ version: low - 1, time: found });
}
