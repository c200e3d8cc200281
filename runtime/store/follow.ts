/**
 * Keeps a replica up to date with the log: loads the newest snapshot that fits, reads from there, applies.
 *
 * F1: records that the replica has already (the ledger applies its own) are passed over.
 * F2: when the log no longer has the next record, a newer snapshot takes its place, and reading goes on behind that.
 * F3: after a LogBreak nothing more is applied: `onBroken` is called once, and whoever called ends the process.
 * F4: whenever the log was reached (again), it is looked whether it still holds the record that was applied last. A log
 *     that lost its tail and grew to the old length again looks like one that has nothing new.
 *     One that ends before what was applied, and keeps to that, has lost its tail.
 * F5: a snapshot of records that the log has lost is not loaded, nor by anybody after that: nothing would ever follow it.
 *     One that cannot be asked for is done without where the log goes on from the replica: NATS may serve one and not the other.
 * F6: nothing is applied of a log that lacks what the manager's mark names, unless that loss was accepted.
 */
import { Trouble_Kind } from "../../proto/gen/messages.ts";
import type { Blobs, Clock, Log, Subscription, Telemetry } from "../ports.ts";
import type { Troubles } from "../troubles.ts";
import { isOfLog } from "./fitting.ts";
import { findLoss, type MarkKeeper } from "./log-mark.ts";
import { decodeRecord, equalBytes } from "./record.ts";
import { FutureRecord, LogBreak, LogLoss } from "./log-break.ts";
import type { AppliedRecord, Replica } from "./replica.ts";
import { FutureSnapshot, SnapshotError } from "./snapshot.ts";
import { listSnapshots, snapshotName } from "./snapshots.ts";
import { reachesVersion, sleep } from "./wait.ts";

/** Between two tries to reach the log or the blobs, in milliseconds. */
const retryMs = 250;
/** Tries to read the snapshots before a log that the replica can follow from where it is does without: each takes 5 s at most. */
const failuresMax = 3;
/** How long the log may take to tell its bounds, in milliseconds. */
const boundsTimeoutMs = 2_000;
/** How long `caughtUp` waits for the reader before it asks for the bounds again, in milliseconds. */
const reachTimeoutMs = 5_000;
/** How often in a row the log must end before the replica until that counts as a break: one answer may be a stale server's. */
const shortAnswersMax = 5;

export interface Follower {
  /** Resolves once everything that was in the log when it was called is applied. Never rejects; never resolves after `stop`. */
  caughtUp(): Promise<void>;
  /** True from the first time that the log's end was reached, but while a snapshot is being loaded to close a gap. */
  isCaughtUp(): boolean;
  /** Called each time that the log's end is reached: at first, and again after a lost link or a gap. */
  onCaughtUp(listener: () => void): void;
  stop(): void;
}

export interface FollowerParts {
  readonly log: Log;
  readonly blobs: Blobs;
  readonly replica: Replica;
  readonly clock: Clock;
  readonly telemetry: Telemetry;
  /** What this manager has seen of the log before (F6); absent for one that keeps no mark. */
  readonly mark?: MarkKeeper | undefined;
  /** The log is taken as it is, whatever the mark says. */
  readonly acceptsLoss?: boolean | undefined;
  readonly troubles?: Troubles | undefined;
  /** What the log holds does not fit the replica, which has stopped (F3). */
  onBroken(error: Error): void;
  /** Called after each record that came from the log and not from this process's ledger. */
  onApplied?(record: AppliedRecord): void;
}

export function startFollowing(parts: FollowerParts): Follower {
  const { log, blobs, replica, clock, telemetry } = parts;
  const applied = telemetry.metrics.gauge("muster_store_version", "Last log sequence that the replica has applied.");
  const foreign = telemetry.metrics.counter(
    "muster_log_foreign_total",
    "Messages in the log that are not this cluster's, passed over.",
  );
  let isStopped = false;
  let isCaughtUp = false;
  /** The newest snapshot that only a later version can read. */
  let future: number | null = null;
  let reading: Subscription | null = null;
  let comparing: Subscription | null = null;
  const listeners: (() => void)[] = [];

  const stop = (): void => {
    isStopped = true;
    isCaughtUp = false;
    reading?.unsubscribe();
    comparing?.unsubscribe();
  };

  const breakOff = (error: Error): void => {
    if (isStopped) return;
    stop();
    telemetry.log.error(
      { error: error.message, version: replica.version },
      "the log and this replica do not fit together",
    );
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

  /** Loads the newest snapshot that the log continues, if there is one newer than the replica. */
  const loadSnapshot = async (): Promise<void> => {
    const bounds = await boundsOfLog();
    if (bounds === null) return;
    for (const sequence of await listSnapshots(blobs)) {
      if (isStopped || sequence <= replica.version) return;
      if (sequence < bounds.first - 1 || sequence > bounds.last) continue;
      const bytes = await blobs.get(snapshotName(sequence));
      // The ledger may have moved on meanwhile.
      if (isStopped || sequence <= replica.version) return;
      if (bytes === null) continue;
      try {
        if (!(await isOfLog(log, clock, bytes, sequence, bounds))) {
          telemetry.log.error({ sequence }, "a snapshot is of records that the log has lost: it is removed");
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

  /** F4. Where the log is shorter than the replica, this waits until it has grown so far; a purged record tells nothing. */
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
          new LogLoss(sequence, "it holds another record there than the one that was applied: records were lost"),
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
          telemetry.log.warn({ sequence }, "a message in the log is not this cluster's; it is passed over");
          parts.troubles?.raise({
            kind: Trouble_Kind.LOG_DAMAGED,
            sentence: `something else publishes to the log's subject: ${replica.foreignMessages} messages in the log are not this cluster's, the last is message ${sequence}; they are passed over`,
            blocking: false,
          });
        }
        parts.onApplied?.(record);
      },
      onCaughtUp: (sequence) => {
        if (isStopped) return;
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

  /** F6. False when nothing may be applied. */
  const admit = async (): Promise<boolean> => {
    const known = parts.mark?.known ?? null;
    if (known === null || isAdmitted) return true;
    const loss = await findLoss({ clock, log }, known, () => isStopped);
    if (isStopped) return false;
    if (loss !== null && parts.acceptsLoss !== true) {
      breakOff(loss);
      return false;
    }
    if (loss !== null) {
      telemetry.log.error({ error: loss.message }, "the log has lost records, and that was accepted");
      parts.mark?.accept();
    } else if (parts.acceptsLoss === true) {
      telemetry.log.warn({}, "the log has lost nothing: start without the flag that accepts losses");
    }
    isAdmitted = true;
    return true;
  };
  let isAdmitted = false;
  /** The record that a reading did not find; 0: none. */
  let hole = 0;
  /** How often the snapshots could not be read. */
  let failures = 0;

  const begin = async (): Promise<void> => {
    while (!isStopped) {
      try {
        if (!(await admit())) return;
        await loadSnapshot().catch((error: unknown) => {
          failures += 1;
          // Only a snapshot closes a hole.
          if (error instanceof LogBreak || hole !== 0 || failures < failuresMax) throw error;
          telemetry.log.warn({ error: String(error) }, "snapshots cannot be read: going by the log alone");
        });
        const bounds = await boundsOfLog();
        if (bounds === null) return;
        if (hole === replica.version + 1 && bounds.first <= hole) {
          breakOff(new LogBreak(hole, "NATS has lost it, and has later ones"));
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
              "the snapshot of that version holds objects of a kind that this version of Muster does not know",
            ),
          );
          return;
        }
      } catch (error) {
        if (error instanceof LogBreak) {
          breakOff(error);
          return;
        }
        telemetry.log.warn({ error: String(error) }, "snapshots cannot be read yet");
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
        if (await reachesVersion(replica, clock, last, reachTimeoutMs)) break;
        continue;
      }
      shortAnswers += 1;
      if (shortAnswers >= shortAnswersMax) {
        breakOff(shorterThan(replica, last));
        break;
      }
      await sleep(clock, retryMs);
    }
    // A caller that waits for the log's end must not go on without it.
    if (isStopped) await new Promise<never>(() => {});
  };

  return { caughtUp, isCaughtUp: () => isCaughtUp, onCaughtUp: (listener) => listeners.push(listener), stop };
}

function shorterThan({ version }: Replica, last: number): LogLoss {
  const sentence = `it ends at record ${last}, but this manager has applied record ${version}: ${version - last} missing`;
  return new LogLoss(last + 1, sentence);
}
