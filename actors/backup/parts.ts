/**
 * The parts of a backup, made one after the other as they are read: the state at one version, and with history the oldest state
 * that can be rebuilt and every record since.
 *
 * BP1: without history, the backup has everything that was acknowledged before it was requested, or says what it lacks: a manager
 *      that the log does not answer still saves what it has.
 * BP2: a slow reader makes nothing wait but itself: the objects of the state are shared with the replica, not copied, and records
 *      are read as they are wanted.
 */
import { version as musterVersion } from "../../lib/version.ts";
import { BackedUpRecord, BackupHead, BackupPart, type RecordingEnd } from "../../proto/gen/messages.ts";
import { timestampOf } from "../../proto/time.ts";
import type { CallSignal } from "../../runtime/ports/rpc.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import { backupFormat } from "../../runtime/backup/format.ts";
import { LogBreak } from "../../runtime/store/log-break.ts";
import { decodeLink, equalBytes } from "../../runtime/store/record.ts";
import { Seal, type RecordingSigner } from "../../runtime/recording/seal.ts";
import type { Replica } from "../../runtime/store/replica.ts";
import { snapshotParts, type Capture } from "../../runtime/store/snapshot.ts";
import { sleep, stepInTurn } from "../../runtime/store/wait.ts";
import type { Environment } from "../environment.ts";
import { loadBase, type PastParts } from "../history/base.ts";
import { replayTo } from "../history/replay.ts";

/** How long the log may take to say what it contains, and the replica to reach that, in milliseconds. */
const boundsTimeoutMs = 2_000;
const catchUpMs = 10_000;
const lookMs = 20;
/** Bytes of records that are read ahead. */
const aheadBytesMax = 1024 * 1024;
/** Bytes of records that are queued while they are read: a read-ahead that ends discards them. */
const waitingBytesMax = 256 * 1024;
/** Bytes of records after which other work gets its turn: a record has a change or thousands. */
const turnBytes = 32 * 1024;

export interface BackupSources extends PastParts {
  readonly env: Environment;
  readonly replica: Replica;
  /** Certificate and key of this manager; null: there are none yet, and the backup is not signed. */
  readonly signer: () => RecordingSigner | null;
}

export interface BackupRequest {
  readonly history: boolean;
  readonly signal: CallSignal;
}

/** Rejects with RpcError, also once `signal` aborts: nobody mistakes the parts so far for a backup. */
export async function* backupParts(sources: BackupSources, request: BackupRequest): AsyncGenerator<BackupPart> {
  const { clock, env, signer } = sources;
  const { history, signal } = request;
  const missing = await behind(sources, signal);
  const seal = new Seal("muster backup");
  const sealed = (part: BackupPart): BackupPart => {
    seal.add(BackupPart.encode(part));
    return part;
  };
  const last = sources.replica.version;
  const capture = history ? await oldestState(sources) : sources.replica.capture();
  const [cluster] = env.store.all("cluster");
  if (cluster === undefined) throw new RpcError(Status.UNAVAILABLE, "this manager has no cluster yet: try again");
  const head = BackupHead.create({
    format: backupFormat,
    version: musterVersion,
    clusterId: cluster.id,
    managerId: env.managerId,
    madeAt: timestampOf(clock.now()),
    first: capture.version,
    last: history ? last : capture.version,
  });
  yield sealed(BackupPart.create({ head }));
  const steps = snapshotParts(capture);
  for (let isWhole = false; !isWhole;) {
    // Also for a reader that takes everything at once: other work of this manager gets its turn.
    const part = await stepInTurn(clock, () => {
      const step = steps.next();
      isWhole = step.done === true;
      if (step.done === true) return sealed(BackupPart.create({ stateEnd: step.value }));
      return step.value === undefined ? null : sealed(BackupPart.create({ state: step.value }));
    });
    if (part !== null) yield part;
    if (signal.aborted) throw ended();
  }
  if (history) {
    const queue = new RecordQueue(capture);
    while (queue.version < last) {
      if (signal.aborted) throw ended();
      await readOn(sources, queue, last, signal);
      for (const records of inTurns(queue.takeAll()))
        yield* await stepInTurn(clock, () => records.map((record) => sealed(BackupPart.create({ record }))));
    }
  }
  const end: RecordingEnd = seal.end(missing, signer());
  yield BackupPart.create({ end });
}

/** The records in groups, each of which is encoded in one turn. */
function* inTurns(records: readonly BackedUpRecord[]): Generator<readonly BackedUpRecord[]> {
  let group: BackedUpRecord[] = [];
  let bytes = 0;
  for (const record of records) {
    group.push(record);
    bytes += record.record.length;
    if (bytes < turnBytes) continue;
    yield group;
    group = [];
    bytes = 0;
  }
  if (group.length > 0) yield group;
}

function ended(): RpcError {
  return new RpcError(Status.CANCELLED, "the backup was cancelled");
}

/** BP1. Waits until the replica has everything that the log has now. */
async function behind({ clock, log, replica }: BackupSources, signal: CallSignal): Promise<readonly string[]> {
  const bounds = await log.bounds(boundsTimeoutMs);
  if (bounds === null) {
    if (replica.version === 0)
      throw new RpcError(Status.UNAVAILABLE, "this manager has not read the log yet: try again");
    return [`changes after version ${replica.version}, if there are any: the log does not answer`];
  }
  const giveUpAt = clock.monotonic() + catchUpMs;
  while (replica.version < bounds.last && !signal.aborted) {
    if (clock.monotonic() >= giveUpAt)
      throw new RpcError(
        Status.UNAVAILABLE,
        `this manager has read the log up to version ${replica.version} of ${bounds.last}: try again, or ask another manager`,
      );
    await sleep(clock, lookMs);
  }
  return [];
}

async function oldestState(sources: BackupSources): Promise<Capture> {
  const base = await loadBase(sources, ({ bases }) => bases.at(-1) ?? 0);
  if (base?.kind !== "base")
    throw new RpcError(Status.DATA_LOSS, "the history cannot be read: take the backup without --history");
  return base.replica.capture();
}

async function readOn(sources: BackupSources, queue: RecordQueue, last: number, signal: CallSignal): Promise<void> {
  const isEnough = (): boolean => signal.aborted || queue.bytes > aheadBytesMax;
  const outcome = await replayTo({ ...sources, waitingBytesMax }, queue, last, isEnough);
  switch (outcome) {
    case "reached":
    case "stopped":
      return;
    case "gap":
      throw new RpcError(Status.UNAVAILABLE, "the log was shortened during the backup: try again");
    case "silent":
      throw new RpcError(
        Status.UNAVAILABLE,
        "the log does not answer: try again, or take the backup without --history",
      );
    case "broken":
      throw new RpcError(
        Status.DATA_LOSS,
        `the log cannot be read beyond version ${queue.version}: take the backup without --history`,
      );
  }
}

/** Takes the records of the log in the place of a replica, and checks their chain as one. */
class RecordQueue {
  version: number;
  bytes = 0;
  #checksum: Uint8Array;
  #records: BackedUpRecord[] = [];

  constructor({ checksum, version }: Capture) {
    this.version = version;
    this.#checksum = checksum;
  }

  /** Throws LogBreak. */
  apply(sequence: number, data: Uint8Array): void {
    const outcome = decodeLink(data);
    // A message of others counts as a version without changes, as in a replica.
    if (outcome.kind === "decoded") {
      const { checksum, previous } = outcome.record;
      if (!equalBytes(previous, this.#checksum))
        throw new LogBreak(sequence, "it does not name the record before it as its predecessor");
      this.#checksum = checksum;
    }
    this.version = sequence;
    this.bytes += data.length;
    this.#records.push(BackedUpRecord.create({ version: sequence, record: data }));
  }

  takeAll(): readonly BackedUpRecord[] {
    const records = this.#records;
    this.#records = [];
    this.bytes = 0;
    return records;
  }
}
