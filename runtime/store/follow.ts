/**
 * Keeps a replica up to date with the log: loads the newest snapshot that fits, reads from there, applies.
 *
 * F1: records that the replica has already (the ledger applies its own) are passed over.
 * F2: when the log no longer has the next record, a newer snapshot takes its place, and reading goes on behind that.
 * F3: after a LogBreak nothing more is applied: `onBroken` is called once, and whoever called ends the process.
 * F4: whenever the log was reached (again), it is looked whether it still holds the record that was applied last. A log
 *     that lost its tail and grew to the old length again looks like one that has nothing new.
 * F5: a snapshot of records that the log has lost is not loaded, nor by anybody after that: nothing would ever follow it.
 */
import type { Blobs, Clock, Log, Subscription, Telemetry } from "../ports.ts";
import { isOfLog } from "./fitting.ts";
import { decodeRecord, equalBytes } from "./record.ts";
import { LogBreak, type AppliedRecord, type Replica } from "./replica.ts";
import { SnapshotError } from "./snapshot.ts";
import { listSnapshots, snapshotName } from "./snapshots.ts";
import { reachesVersion, sleep } from "./wait.ts";

/** Between two tries to reach the log or the blobs, in milliseconds. */
const retryMs = 250;
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
  stop(): void;
}

export interface FollowerParts {
  readonly log: Log;
  readonly blobs: Blobs;
  readonly replica: Replica;
  readonly clock: Clock;
  readonly telemetry: Telemetry;
  /** What the log holds does not fit the replica, which has stopped (F3). */
  onBroken(error: Error): void;
  /** Called after each record that came from the log and not from this process's ledger. */
  onApplied?(record: AppliedRecord): void;
}

export function startFollowing(parts: FollowerParts): Follower {
  const { log, blobs, replica, clock, telemetry } = parts;
  const applied = telemetry.metrics.gauge("muster_store_version", "Last log sequence that the replica has applied.");
  let isStopped = false;
  let isCaughtUp = false;
  let reading: Subscription | null = null;
  let comparing: Subscription | null = null;

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
        telemetry.log.error({ sequence, error: error.message }, "snapshot is not usable; trying an older one");
      }
    }
  };

  /** F4. Where the log is shorter than the replica, this waits until it has grown so far; a purged record tells nothing. */
  const compare = (): void => {
    const { version, checksum } = replica;
    comparing?.unsubscribe();
    if (version === 0) return;
    comparing = log.read(version, {
      onRecord: (sequence, data) => {
        comparing?.unsubscribe();
        const outcome = decodeRecord(data);
        if (outcome.kind === "decoded" && equalBytes(outcome.record.checksum, checksum)) return;
        breakOff(new LogBreak(sequence, "the log holds another record than the one that was applied"));
      },
      onCaughtUp: () => {},
      onGap: () => {},
    });
  };

  const read = (): void => {
    reading = log.read(replica.version + 1, {
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
        parts.onApplied?.(record);
      },
      onCaughtUp: () => {
        if (isStopped) return;
        isCaughtUp = true;
        compare();
      },
      onGap: (firstKept) => {
        if (isStopped) return;
        isCaughtUp = false;
        reading?.unsubscribe();
        telemetry.log.warn(
          { firstKept, version: replica.version },
          "the log no longer has what this replica needs next",
        );
        void begin();
      },
    });
  };

  const begin = async (): Promise<void> => {
    while (!isStopped) {
      try {
        await loadSnapshot();
        const bounds = await boundsOfLog();
        if (bounds === null) return;
        if (replica.version + 1 >= bounds.first) {
          read();
          return;
        }
        // F2: nothing closes the gap yet; the leader writes a snapshot when one is due.
        const { first } = bounds;
        telemetry.log.error({ first, version: replica.version }, "no snapshot reaches the log's first record");
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
        breakOff(new LogBreak(last, `the log ends before what this replica has applied, ${before}`));
        break;
      }
      await sleep(clock, retryMs);
    }
    // A caller that waits for the log's end must not go on without it.
    if (isStopped) await new Promise<never>(() => {});
  };

  return { caughtUp, isCaughtUp: () => isCaughtUp, stop };
}
