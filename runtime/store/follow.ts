/**
 * Keeps a replica up to date with the log: loads the newest snapshot that fits, reads from there, applies.
 *
 * F1: records that the replica already has (the ledger applies its own) are skipped.
 * F2: if the log no longer has the next record, a newer snapshot is loaded, and reading continues after it.
 * F3: after a LogBreak nothing more is applied: `onBroken` is called once, and its callee ends the process.
 * F4: whenever the log is reached (again), it must still contain the record applied last: a log that lost its tail and grew to
 *     the old length again looks like one without new records. A log that keeps ending before what was applied has lost its
 *     tail.
 * F5: a snapshot of records that the log has lost is neither loaded nor kept: nothing would ever follow it. If the snapshots
 *     cannot be read, but the log continues from the replica, they are skipped: NATS may serve one and not the other.
 * F6: nothing is applied from a log that lacks what the manager's mark names, unless that loss was accepted. The log may lose it while
 *     it is read, so a log that ends before it, or has another record there, is compared again, and counts as not reached.
 */
import { Trouble_Kind } from "../../proto/gen/messages.ts";
import type { Blobs, Clock, Log, Subscription, Telemetry } from "../ports/index.ts";
import type { Troubles } from "../ports/troubles.ts";
import { isOfLog } from "./fitting.ts";
import { findLoss, type MarkKeeper } from "./log-mark.ts";
import { decodeRecord, equalBytes } from "./record.ts";
import { FutureRecord, LogBreak, LogLoss } from "./log-break.ts";
import type { AppliedRecord, Replica } from "./replica.ts";
import { FutureSnapshot, SnapshotError } from "./snapshot.ts";
import { listSnapshots, snapshotName } from "./snapshots.ts";
import { reachesVersion, sleep } from "./wait.ts";

/** Delay between two attempts to reach the log or the blobs, in milliseconds. */
const retryMs = 250;
/**
 * Attempts to read the snapshots before a log that continues from the replica is followed without them; each takes at most 5 s.
 */
const failuresMax = 3;
/** How long the log may take to report its bounds, in milliseconds. */
const boundsTimeoutMs = 2_000;
/** How long `caughtUp` waits for the reader before it requests the bounds again, in milliseconds. */
const reachTimeoutMs = 5_000;
/**
 * How many times in a row the log must end before the replica to count as a break: a single answer may come from a stale
 * server.
 */
const shortAnswersMax = 5;

export interface Follower {
  /** Resolves once everything that was in the log at the call is applied. Never rejects; never resolves after `stop`. */
  caughtUp(): Promise<void>;
  /** True once the log's end was reached, except while a snapshot is being loaded to close a gap. */
  isCaughtUp(): boolean;
  /** Called each time the log's end is reached: the first time, and again after a lost link or a gap. */
  onCaughtUp(listener: () => void): void;
  stop(): void;
}

interface FollowerParts {
  readonly log: Log;
  readonly blobs: Blobs;
  readonly replica: Replica;
  readonly clock: Clock;
  readonly telemetry: Telemetry;
  /** This manager's mark of the log (F6); absent if it keeps none. */
  readonly mark?: MarkKeeper | undefined;
  /** Use the log even if it lacks what the mark names. */
  readonly acceptsLoss?: boolean | undefined;
  readonly troubles?: Troubles | undefined;
  /** The log does not fit the replica, which has stopped (F3). */
  onBroken(error: Error): void;
  /** Called after each record that came from the log rather than from this process's ledger. */
  onApplied?(record: AppliedRecord): void;
}

export function startFollowing(parts: FollowerParts): Follower {
  const { log, blobs, replica, clock, telemetry } = parts;
  const applied = telemetry.metrics.gauge("muster_store_version", "Last log sequence that the replica has applied.");
  const foreign = telemetry.metrics.counter(
    "muster_log_foreign_total",
    "Messages in the log that are not this cluster's, skipped.",
  );
  let isStopped = false;
  let isCaughtUp = false;
  /** The newest snapshot that only a later version can read. */
  let future: number | null = null;
  let reading: Subscription | null = null;
  let comparing: Subscription | null = null;
  const listeners: (() => void)[] = [];
  const known = parts.mark?.known ?? null;
  let isLossAccepted = false;

  /** F6: the replica has not reached what the manager's mark names. */
  const isBeforeMark = (): boolean => known !== null && !isLossAccepted && replica.version < known.sequence;
  const isMarked = (data: Uint8Array): boolean => {
    const outcome = decodeRecord(data);
    return known !== null && outcome.kind === "decoded" && equalBytes(outcome.record.checksum, known.checksum);
  };

  const stop = (): void => {
    isStopped = true;
    isCaughtUp = false;
    reading?.unsubscribe();
    comparing?.unsubscribe();
  };

  const breakOff = (error: Error): void => {
    if (isStopped) return;
    stop();
    telemetry.log.error({ error: error.message, version: replica.version }, "the log does not fit this replica");
    parts.onBroken(error);
  };

  /** Asks until the log answers; null once stopped. */
  const boundsOfLog = async (): Promise<{ readonly first: number; readonly last: number } | null> => {
    while (!isStopped) {
      const bounds = await log.bounds(boundsTimeoutMs);
      if (bounds !== null) return isStopped ? null : bounds;
      await sleep(clock, retryMs);
    }
    return null;
  };

  /** Loads the newest snapshot that the log continues, if one is newer than the replica. */
  const loadSnapshot = async (): Promise<void> => {
    const bounds = await boundsOfLog();
    if (bounds === null) return;
    for (const sequence of await listSnapshots(blobs)) {
      if (isStopped || sequence <= replica.version) return;
      if (sequence < bounds.first - 1 || sequence > bounds.last) continue;
      const bytes = await blobs.get(snapshotName(sequence));
      // The ledger may have advanced meanwhile.
      if (isStopped || sequence <= replica.version) return;
      if (bytes === null) continue;
      try {
        if (!(await isOfLog(log, clock, bytes, sequence, bounds))) {
          telemetry.log.error({ sequence }, "a snapshot contains records that the log has lost: removing it");
          await blobs.remove(snapshotName(sequence));
          continue;
        }
        if (isStopped || sequence <= replica.version) return;
        replica.load(bytes);
        telemetry.log.info({ sequence, bytes: bytes.length }, "snapshot loaded");
        return;
      } catch (error) {
        if (!(error instanceof SnapshotError)) throw error;
        if (error instanceof FutureSnapshot) future ??= sequence;
        telemetry.log.error({ sequence, error: error.message }, "snapshot is not usable; trying an older one");
      }
    }
  };

  /** F4. If the log is shorter than the replica, this waits until it has grown; a purged record proves nothing. */
  const compare = (): void => {
    const { recordSequence, checksum } = replica;
    comparing?.unsubscribe();
    if (recordSequence === 0) return;
    comparing = log.read(recordSequence, {
      onRecord: (sequence, data) => {
        comparing?.unsubscribe();
        const outcome = decodeRecord(data);
        if (outcome.kind === "decoded" && equalBytes(outcome.record.checksum, checksum)) return;
        breakOff(
          new LogLoss(sequence, "it contains a different record than the one that was applied: records were lost"),
        );
      },
      onCaughtUp: () => {},
      onGap: () => {},
    });
  };

  const read = (): void => {
    reading = log.read(replica.version + 1, {
      onShorter: (last) => {
        if (last < replica.version) breakOff(shorterThan(replica, last));
      },
      onRecord: (sequence, data) => {
        if (isStopped || sequence <= replica.version) return;
        if (isBeforeMark() && sequence === known?.sequence && !isMarked(data)) {
          admitAgain();
          return;
        }
        let record: AppliedRecord;
        try {
          record = replica.apply(sequence, data);
        } catch (error) {
          if (!(error instanceof LogBreak)) throw error;
          breakOff(error);
          return;
        }
        applied.set(sequence);
        if (record.isForeign) {
          foreign.add();
          telemetry.log.warn({ sequence }, "skipped a message in the log that is not this cluster's");
          parts.troubles?.raise({
            kind: Trouble_Kind.LOG_DAMAGED,
            sentence: `something else publishes to the log's subject: ${replica.foreignMessages} messages in the log are not this cluster's, most recently message ${sequence}; they are skipped`,
            blocking: false,
          });
        }
        parts.onApplied?.(record);
      },
      onCaughtUp: (sequence) => {
        if (isStopped) return;
        if (isBeforeMark()) {
          admitAgain();
          return;
        }
        isCaughtUp = true;
        compare();
        for (const listener of listeners) listener();
        // F4: an answer from before an append of this process's own says so as well.
        if (sequence < replica.version) void caughtUp();
      },
      onGap: (firstKept) => {
        if (isStopped) return;
        isCaughtUp = false;
        hole = replica.version + 1;
        reading?.unsubscribe();
        telemetry.log.warn(
          { firstKept, version: replica.version },
          "the log no longer has what this replica needs next",
        );
        void begin();
      },
    });
  };

  /** F6. False if nothing may be applied. */
  const admit = async (): Promise<boolean> => {
    if (known === null || !isBeforeMark()) return true;
    const loss = await findLoss({ clock, log }, known, () => isStopped);
    if (isStopped) return false;
    if (loss !== null && parts.acceptsLoss !== true) {
      breakOff(loss);
      return false;
    }
    if (loss !== null) {
      telemetry.log.error({ error: loss.message }, "the log has lost records; the loss was accepted");
      parts.mark?.accept();
      isLossAccepted = true;
    } else if (parts.acceptsLoss === true) {
      telemetry.log.warn({}, "the log has lost nothing: restart without --accept-log-loss");
    }
    return true;
  };
  /** F6 */
  const admitAgain = (): void => {
    reading?.unsubscribe();
    isCaughtUp = false;
    void sleep(clock, retryMs).then(begin);
  };
  /** The record that a reading did not find; 0: none. */
  let hole = 0;
  /** Failed attempts to read the snapshots. */
  let failures = 0;

  const begin = async (): Promise<void> => {
    while (!isStopped) {
      try {
        if (!(await admit())) return;
        await loadSnapshot().catch((error: unknown) => {
          failures += 1;
          // Only a snapshot closes a hole.
          if (error instanceof LogBreak || hole !== 0 || failures < failuresMax) throw error;
          telemetry.log.warn({ error: String(error) }, "cannot read the snapshots: following the log without them");
        });
        const bounds = await boundsOfLog();
        if (bounds === null) return;
        if (hole === replica.version + 1 && bounds.first <= hole) {
          breakOff(new LogBreak(hole, "NATS has lost it, but has later records"));
          return;
        }
        if (replica.version + 1 >= bounds.first) {
          read();
          return;
        }
        // F2: nothing closes the gap yet; the leader writes a snapshot when one is due.
        const { first } = bounds;
        telemetry.log.error({ first, version: replica.version }, "no snapshot reaches the log's first record");
        if (future !== null) {
          breakOff(
            new FutureRecord(
              future,
              "the snapshot of that version contains something that this version of Muster does not support",
            ),
          );
          return;
        }
      } catch (error) {
        if (error instanceof LogBreak) {
          breakOff(error);
          return;
        }
        telemetry.log.warn({ error: String(error) }, "cannot read the snapshots yet");
      }
      await sleep(clock, retryMs);
    }
  };
  void begin();

  const caughtUp = async (): Promise<void> => {
    let shortAnswers = 0;
    while (!isStopped) {
      const before = replica.version;
      const bounds = await boundsOfLog();
      if (bounds === null) break;
      const { last } = bounds;
      if (last >= before) {
        shortAnswers = 0;
        if ((await reachesVersion(replica, clock, last, reachTimeoutMs)) && !isBeforeMark()) break;
        if (isBeforeMark()) await sleep(clock, retryMs);
        continue;
      }
      shortAnswers += 1;
      if (shortAnswers >= shortAnswersMax) {
        breakOff(shorterThan(replica, last));
        break;
      }
      await sleep(clock, retryMs);
    }
    // A caller that waits for the log's end must not continue without it.
    if (isStopped) await new Promise<never>(() => {});
  };

  return { caughtUp, isCaughtUp: () => isCaughtUp, onCaughtUp: (listener) => listeners.push(listener), stop };
}

function shorterThan({ version }: Replica, last: number): LogLoss {
  const sentence = `it ends at record ${last}, but this manager has applied record ${version}: ${version - last} missing`;
  return new LogLoss(last + 1, sentence);
}
