/**
 * Whether a snapshot belongs to this log. A log that lost its tail grows past the lost records with others under the same
 * sequences; a snapshot of the lost records then looks as if the log continued it.
 */
import type { Clock, Log, LogReader } from "../ports/index.ts";
import { decodeRecord, equalBytes } from "./record.ts";
import { snapshotChecksum } from "./snapshot.ts";

/** How long the log may take to deliver one record, in milliseconds. */
const recordTimeoutMs = 2_000;
/** Bytes that the log sends ahead: fewer than any record has. */
export const oneRecord = 1;

/**
 * Compares the last record in the snapshot with the log's, or with the predecessor that the next one names. True also if the
 * log has neither, or has something else than a record there. Throws SnapshotError for bytes that are not a snapshot; rejects
 * if the log does not answer.
 */
export async function isOfLog(
  log: Log,
  clock: Clock,
  bytes: Uint8Array,
  sequence: number,
  bounds: { readonly first: number; readonly last: number },
): Promise<boolean> {
  const checksum = snapshotChecksum(bytes);
  const at = Math.max(sequence, bounds.first);
  if (at > sequence + 1 || at > bounds.last) return true;
  const outcome = decodeRecord(await recordAt(log, clock, at));
  if (outcome.kind !== "decoded") return true;
  return equalBytes(at === sequence ? outcome.record.checksum : outcome.record.transaction.previous, checksum);
}

/** The record at that sequence. Rejects if the log does not deliver it. */
export function recordAt(log: Log, clock: Clock, sequence: number): Promise<Uint8Array> {
  return new Promise((resolve, reject) => {
    const end = (settle: () => void): void => {
      clock.clearTimeout(timer);
      reading.unsubscribe();
      settle();
    };
    const timer = clock.setTimeout(
      () => end(() => reject(new Error("the log does not deliver a record"))),
      recordTimeoutMs,
    );
    const reader: LogReader = {
      onRecord: (found, data) => {
        if (found === sequence) end(() => resolve(data));
      },
      onCaughtUp: () => {},
      onGap: () => end(() => reject(new Error("the log was purged meanwhile"))),
    };
    const reading = log.read(sequence, reader, oneRecord);
  });
}
