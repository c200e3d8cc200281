/**
 * The cluster's objects at any moment of a recording, from its range of the log: a replica that goes forward by records, and back by
 * checkpoints.
 *
 * OB1: the whole range was applied once when the recording was opened, so a record that does not fit is found then.
 * OB2: a returned state must be read at once: it may be advanced in the next turn.
 * OB3: nothing is shown for a moment that the range does not cover.
 */
import { SnapshotPart, type RecordedTransaction } from "../../proto/gen/messages.ts";
import { decodedOrNull } from "../../proto/codec.ts";
import { tableNames } from "../../proto/table-names.ts";
import { RpcError, Status } from "../ports/rpc.ts";
import { LogBreak } from "../store/log-break.ts";
import { splitFirst } from "../store/record.ts";
import { Replica } from "../store/replica.ts";
import { SnapshotError, type Capture } from "../store/snapshot.ts";
import type { Commit } from "../store/store.ts";
import { mebibytes, PartFileError } from "../part-file.ts";
import { objectOverheadBytes, rangeBytesMax } from "./format.ts";
import { isoTime } from "./iso-time.ts";

/** Changes between two checkpoints, at some 20 µs each. */
const checkpointChanges = 2_000;
/** Objects of the state for each of these changes: restoring a large state takes as long as applying so many. */
const objectsPerChange = 8;

interface RangeLimits {
  readonly rangeBytesMax: number;
  /** Changes between two checkpoints. */
  readonly checkpointChanges: number;
}

interface Commits {
  /** Milliseconds since the epoch, by the writer's clock. */
  readonly atMs: number;
  readonly commit: Commit;
}

type OpenedObjects = {
  /** Null: the recording has none, or its base cannot be read. */
  readonly objects: RecordedObjects | null;
  /** Why the range cannot be read, or not to its end; null: it can. */
  readonly fault: PartFileError | null;
};

export class RecordedObjects {
  readonly #base: number;
  /** When the state of the base was written. */
  readonly fromMs: number;
  /** By record: its bytes, its time, which never decreases here, and the number of changes up to it. */
  readonly #records: Uint8Array[] = [];
  readonly #timesMs: number[] = [];
  readonly #changes: number[] = [];
  readonly #checkpoints: Capture[];
  readonly #checkpointChanges: number;
  #replica: Replica;
  #sinceCheckpoint = 0;
  #isComplete = false;

  private constructor(replica: Replica, fromMs: number, limits: Partial<RangeLimits>) {
    this.#replica = replica;
    this.#base = replica.version;
    this.fromMs = fromMs;
    this.#checkpointChanges = limits.checkpointChanges ?? checkpointChanges;
    this.#checkpoints = [replica.capture()];
  }

  /** Applies the range as far as it can be read. `parts`: in the order of the file. */
  static open(parts: readonly RecordedTransaction[], limits: Partial<RangeLimits> = {}): OpenedObjects {
    let objects: RecordedObjects | null = null;
    try {
      if (parts.length === 0) return { objects: null, fault: null };
      const firstRecord = parts.findIndex(({ base }) => !base);
      const pieces = firstRecord < 0 ? parts : parts.slice(0, firstRecord);
      const count = new ByteCount(limits.rangeBytesMax ?? rangeBytesMax);
      objects = new RecordedObjects(loadedBase(pieces, count), pieces[0]?.atMs ?? 0, limits);
      for (const part of parts.slice(pieces.length)) objects.#take(part, count);
      return { objects, fault: null };
    } catch (error) {
      // A record that does not fit may have been applied in part.
      if (objects !== null) objects.#restore(0);
      return { objects, fault: faultOf(error) };
    }
  }

  /** Number of transactions after the base. */
  get transactions(): number {
    return this.#records.length;
  }

  /** The time of the last record if nothing is known of the time after it; null: what follows has no further record. */
  get toMs(): number | null {
    return this.#isComplete ? null : (this.#timesMs.at(-1) ?? this.fromMs);
  }

  /** The state at that time (OB2). OUT_OF_RANGE for a moment that is not covered (OB3). */
  at(atMs: number): Replica {
    return this.atVersion(this.#versionAt(atMs));
  }

  /** The state at that version (OB2). OUT_OF_RANGE for one that is not covered (OB3). */
  atVersion(version: number): Replica {
    const newest = this.#base + this.#records.length;
    if (version < this.#base || version > newest)
      throw new RpcError(
        Status.OUT_OF_RANGE,
        `version ${version} is outside of the recording (versions ${this.#base} to ${newest})`,
      );
    this.#go(version);
    return this.#replica;
  }

  /**
   * The newest commits up to that time that have `limit` changes together, or all; the first may have more than its share. Oldest first.
   */
  commitsUpTo(atMs: number, limit: number): readonly Commits[] {
    const count = this.#versionAt(atMs) - this.#base;
    const wanted = (this.#changes[count - 1] ?? 0) - limit;
    let from = count;
    while (from > 0 && (this.#changes[from - 1] as number) > wanted) from -= 1;
    this.#go(this.#base + from);
    return this.#records.slice(from, count).map((_, at) => ({
      atMs: this.#timesMs[from + at] as number,
      commit: this.#apply(from + at),
    }));
  }

  /** Throws LogBreak and PartFileError. */
  #take({ version, atMs, record, base, end }: RecordedTransaction, count: ByteCount): void {
    if (base || this.#isComplete)
      throw new PartFileError("damaged", `it is damaged: a part of its range of the log is out of order`);
    if (end) {
      if (version !== this.#replica.version)
        throw new LogBreak(
          version,
          `the range ends at version ${version}, but its last record is ${this.#replica.version}`,
        );
      this.#isComplete = true;
      return;
    }
    const { changes, isForeign } = this.#replica.apply(version, record);
    // A message of the log that was not a record is an empty one.
    if (isForeign && record.length > 0) throw new LogBreak(version, "it is not a record");
    count.add(record.length + (changes.length + 1) * objectOverheadBytes);
    this.#records.push(record);
    this.#timesMs.push(Math.max(atMs, this.#timesMs.at(-1) ?? this.fromMs));
    this.#changes.push((this.#changes.at(-1) ?? 0) + changes.length);
    this.#sinceCheckpoint += changes.length + 1;
    if (this.#sinceCheckpoint < Math.max(this.#checkpointChanges, this.#objects() / objectsPerChange)) return;
    this.#sinceCheckpoint = 0;
    this.#checkpoints.push(this.#replica.capture());
  }

  #objects(): number {
    let count = 0;
    for (const table of tableNames) count += this.#replica.count(table);
    return count;
  }

  #versionAt(atMs: number): number {
    const { toMs } = this;
    if (atMs < this.fromMs || (toMs !== null && atMs > toMs)) {
      const until = toMs === null ? "on" : `to ${isoTime(toMs)}`;
      throw new RpcError(
        Status.OUT_OF_RANGE,
        `the recording has the cluster's objects from ${isoTime(this.fromMs)} ${until}, not of ${isoTime(atMs)}`,
      );
    }
    let [low, high] = [0, this.#timesMs.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#timesMs[middle] as number) <= atMs) low = middle + 1;
      else high = middle;
    }
    return this.#base + low;
  }

  #go(version: number): void {
    // A checkpoint does not have the writer of its record; the record after it has.
    const at = Math.max(
      0,
      this.#checkpoints.findLastIndex((each) => each.version < version),
    );
    const here = this.#replica.version;
    if (here > version || here < (this.#checkpoints[at] as Capture).version) this.#restore(at);
    while (this.#replica.version < version) this.#apply(this.#replica.version - this.#base);
  }

  #restore(at: number): void {
    this.#replica = new Replica();
    this.#replica.restore(this.#checkpoints[at] as Capture);
  }

  #apply(at: number): Commit {
    return this.#replica.apply(this.#replica.version + 1, this.#records[at] as Uint8Array);
  }
}

/** Throws PartFileError above the limit. */
class ByteCount {
  readonly #bytesMax: number;
  #bytes = 0;

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
  }

  add(bytes: number): void {
    this.#bytes += bytes;
    if (this.#bytes <= this.#bytesMax) return;
    throw new PartFileError("damaged", `its range of the log exceeds the limit of ${mebibytes(this.#bytesMax)}`);
  }
}

/** Throws SnapshotError and PartFileError. */
function loadedBase(pieces: readonly RecordedTransaction[], count: ByteCount): Replica {
  const [first] = pieces;
  if (first === undefined)
    throw new PartFileError("damaged", "it is damaged: its range of the log begins without a state");
  const bytes = Buffer.concat(pieces.map(({ record }) => record));
  // The limit covers the memory for its objects, whose number is known before they are decoded, and checked after.
  const head = splitFirst(bytes)?.first;
  const records = (head === undefined ? null : decodedOrNull(SnapshotPart, head))?.header?.records ?? 0;
  count.add(bytes.length + records * objectOverheadBytes);
  const replica = new Replica();
  replica.load(bytes);
  if (pieces.some(({ version }) => version !== replica.version))
    throw new SnapshotError(`its pieces are not all of version ${replica.version}`);
  return replica;
}

function faultOf(error: unknown): PartFileError {
  if (error instanceof PartFileError) return error;
  if (error instanceof LogBreak || error instanceof SnapshotError)
    return new PartFileError("damaged", `it is damaged: its range of the log cannot be read: ${error.message}`, {
      cause: error,
    });
  throw error;
}
