/**
 * Founds a cluster again from a backup: the data dir of a manager whose own NATS has the log and the state of the backup, under new
 * data keys.
 *
 * RS1: the data dir appears when it is complete and on disk; until then everything is in a folder beside it.
 * RS2: the identity of the cluster stays: its root, tokens, node ids, tasks. Its managers and sessions are gone: the first
 *      record of the new log says so (`machines/manager/restored.ts`).
 * RS3: no version that the lost log may have had is used again, unless the history is restored, which the log continues without a
 *      gap. No epoch is.
 */
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { UserError } from "../lib/user-error.ts";
import { changesOfRestore } from "../machines/manager/restored.ts";
import { openBackup, type BackupTaker, type OpenedBackup } from "../runtime/backup/format.ts";
import type { Opening } from "../runtime/backup/envelope.ts";
import { newId } from "../runtime/ids.ts";
import { beginStreams } from "../runtime/nats/begin.ts";
import { forgetAccess } from "../runtime/nats/server-files.ts";
import { PartFileError } from "../runtime/part-file.ts";
import type { Telemetry } from "../runtime/ports/index.ts";
import { Keyring } from "../runtime/store/keyring.ts";
import { checkLog } from "../runtime/store/log-check.ts";
import { Replica } from "../runtime/store/replica.ts";
import { SealedBlobs } from "../runtime/store/sealed-blobs.ts";
import { SealedLog } from "../runtime/store/sealed-log.ts";
import { encodeSnapshot } from "../runtime/store/snapshot.ts";
import { snapshotName } from "../runtime/store/snapshots.ts";
import { openVault } from "../runtime/store/vault.ts";
import { SystemClock } from "../runtime/system/clock.ts";
import { SystemRandom } from "../runtime/system/random.ts";
import { syncFolder } from "../runtime/system/whole-file.ts";
import { openDataDir, type DataDir } from "./data-dir.ts";
import { keyFileDisk } from "./key-file.ts";
import { acceptLoss, recordOfFounding, syncTree, withNats } from "./founding.ts";
import { ownNatsFolder } from "./move-own-nats.ts";

/**
 * Versions that are left out after the backup's (RS3): a cluster writes some hundred a second at most, so the lost log had fewer
 * for any backup of the last hour; more would also do, as versions are exact to 2^53.
 */
const versionsSkipped = 1_000_000;
/** Records that are appended to the log at a time: an append waits for the disk, which takes several at once. */
const appendsMax = 64;

interface RestoreOptions {
  /** Reads the file from its beginning. */
  readonly read: () => AsyncIterable<Uint8Array>;
  readonly opening: Opening;
  readonly dataDir: string;
  readonly telemetry: Telemetry;
}

interface RestoredCluster {
  readonly backup: OpenedBackup;
  /** Version at which the cluster continues. */
  readonly version: number;
}

/** Rejects with UserError, PartFileError, NatsProblem and NatsServerProblem; then there is no data dir. */
export async function restoreCluster(options: RestoreOptions): Promise<RestoredCluster> {
  const dataDir = resolve(options.dataDir);
  demandEmpty(dataDir);
  // Everything is checked before anything is made.
  const backup = await openBackup(options.read(), options.opening);
  if (backup.seal.kind !== "signed")
    throw new PartFileError("damaged", "it has no signature of a manager: the cluster that made it was not complete");
  const beside = `${dataDir}.restoring`;
  const folder = openDataDir(beside);
  try {
    // Left by a restore that was killed.
    for (const name of readdirSync(beside)) if (name !== "owner") rmSync(join(beside, name), { recursive: true });
    const version = await found(folder, backup, options);
    await forgetAccess(ownNatsFolder(beside));
    folder.release();
    await syncTree(beside);
    mkdirSync(dirname(dataDir), { recursive: true });
    // RS1. An empty folder is replaced.
    renameSync(beside, dataDir);
    await syncFolder(dirname(dataDir));
    return { backup, version };
  } catch (error) {
    rmSync(beside, { recursive: true, force: true });
    throw error;
  }
}

function demandEmpty(dataDir: string): void {
  if (!existsSync(dataDir)) return;
  let names: readonly string[];
  try {
    names = readdirSync(dataDir);
  } catch (error) {
    throw new UserError(`cannot read the data dir ${dataDir}: ${(error as Error).message}`, { cause: error });
  }
  if (names.length === 0) return;
  throw new UserError(
    names.includes("keys")
      ? `the data dir ${dataDir} has a manager's state: restore into another one`
      : `the data dir ${dataDir} is not empty: restore into a new one`,
  );
}

/** Returns the version at which the cluster continues. */
async function found(folder: DataDir, backup: OpenedBackup, options: RestoreOptions): Promise<number> {
  const { telemetry } = options;
  const random = new SystemRandom();
  const clock = new SystemClock();
  const opened = openVault(keyFileDisk(folder), random);
  if (opened.kind !== "open") throw new Error("a new data dir has a key file");
  const { vault } = opened;
  const keyring = new Keyring(vault, random);
  keyring.forAppend(0);
  const { head, records, replica } = backup;
  const hasHistory = records > 0;
  const begin = hasHistory ? head.first : head.last + versionsSkipped;
  await withNats(folder.path, vault, telemetry, async (_, access) =>
    beginStreams(access, { log: begin, leases: replica.epoch }),
  );
  return withNats(folder.path, vault, telemetry, async (link) => {
    const log = new SealedLog(link.log, keyring, random, clock);
    const blobs = new SealedBlobs(link.blobs, keyring, { random, clock });
    const appender = new Appender(log, begin);
    if (hasHistory) {
      const taker: BackupTaker = {
        onState: async (snapshot, version) => {
          if (version > 0) await blobs.put(snapshotName(version), snapshot);
        },
        onRecord: (_, record) => appender.append(record),
      };
      // Read again: its records need not fit into memory.
      await openBackup(options.read(), options.opening, taker);
      await appender.end();
    }
    const state = { ...replica.capture(), version: hasHistory ? head.last : begin };
    await blobs.put(snapshotName(state.version), encodeSnapshot(state));
    const founded = new Replica();
    founded.restore(state);
    const record = recordOfFounding(founded, {
      nowMs: clock.now(),
      id: newId(random),
      changes: changesOfRestore(founded),
    });
    founded.apply(state.version + 1, record);
    await appender.append(record);
    await appender.end();
    const { report } = await checkLog({ log, blobs, clock });
    if (report.broken !== null || report.reached !== founded.version || report.badSnapshots.length > 0)
      throw new UserError(
        `the restored log cannot be read (record ${report.broken?.sequence ?? report.reached}): is the disk damaged?`,
      );
    await acceptLoss(folder.path, founded);
    return founded.version;
  });
}

/** Appends records in their order, several at a time. */
class Appender {
  readonly #log: SealedLog;
  readonly #waiting: Promise<void>[] = [];
  #last: number;

  constructor(log: SealedLog, last: number) {
    this.#log = log;
    this.#last = last;
  }

  /** Resolves when there is room for the next one. */
  async append(record: Uint8Array): Promise<void> {
    const last = this.#last;
    this.#last += 1;
    const appended = this.#log.append(record, last).then((outcome) => {
      if (outcome.kind === "appended") return;
      const why = outcome.kind === "conflict" ? "something else writes to it" : outcome.reason;
      throw new UserError(`cannot write record ${last + 1} of the log: ${why}`);
    });
    // Reported when it is waited for.
    appended.catch(() => undefined);
    this.#waiting.push(appended);
    if (this.#waiting.length >= appendsMax) await this.#waiting.shift();
  }

  async end(): Promise<void> {
    await Promise.all(this.#waiting.splice(0));
  }
}
