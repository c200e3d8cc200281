/**
 * A backup as a file: a part file (`runtime/part-file.ts`) of BackupPart messages within the encryption of `envelope.ts`.
 *
 * BF1: nothing is passed on to a taker that is not part of one whole state and the records that follow it; only `opened` says that
 *      the file is whole, unchanged, and made by a manager of the cluster that it names.
 */
import { decodedOrNull } from "../../proto/codec.ts";
import { BackupPart, type BackupHead, type SnapshotHeader } from "../../proto/gen/messages.ts";
import { timeMs } from "../../proto/time.ts";
import { partFile, PartFileError, partsOf, type PartFileKind } from "../part-file.ts";
import { Seal, type SealCheck } from "../recording/seal.ts";
import { FutureRecord, LogBreak } from "../store/log-break.ts";
import { Replica } from "../store/replica.ts";
import { FutureSnapshot, joinedSnapshot, SnapshotError } from "../store/snapshot.ts";
import { decrypted, encrypted, type Opening, type Wrapping } from "./envelope.ts";

/** A change that older readers cannot understand increases it. */
export const backupFormat = 1;

const kind: PartFileKind = {
  magic: "MUSTBAK\n",
  version: backupFormat,
  noun: "a backup of Muster",
  maker: "muster backup",
};

/** Bytes of a part: the log's largest record has 8 MiB; a piece of the state has 1 MiB and one object. */
const limits = {
  partBytesMax: 16 * 1024 * 1024,
  // Any length is read: parts are not kept, only the state, which a manager must also hold in memory.
  bytesMax: Number.MAX_SAFE_INTEGER,
  overheadBytes: 0,
  remedy: "",
};

/** The encrypted bytes of a file with these encoded parts. */
export function backupFile(parts: AsyncIterable<Uint8Array>, wrapping: Wrapping): AsyncGenerator<Uint8Array> {
  return encrypted(partFile(kind, parts), wrapping);
}

/** Receives the contents of a backup while it is read. */
export interface BackupTaker {
  /** The state that it begins with, as the bytes of a snapshot; `version` 0 is the empty state before the first record. */
  onState(snapshot: Uint8Array, version: number): Promise<void>;
  /** The next record. */
  onRecord(version: number, record: Uint8Array): Promise<void>;
}

export interface OpenedBackup {
  readonly head: BackupHead;
  /** The state at its last version. */
  readonly replica: Replica;
  /** Number of records. */
  readonly records: number;
  readonly seal: SealCheck;
  /** Parts that the manager could not include, in sentences. */
  readonly missing: readonly string[];
}

const noTaker: BackupTaker = { onState: () => Promise.resolve(), onRecord: () => Promise.resolve() };

/** BF1. Rejects with PartFileError, and as `chunks` and the taker do. */
export async function openBackup(
  chunks: AsyncIterable<Uint8Array>,
  opening: Opening,
  taker: BackupTaker = noTaker,
): Promise<OpenedBackup> {
  const reader = new BackupReader(taker);
  for await (const part of partsOf(kind, decrypted(chunks, opening), limits)) await reader.take(part);
  return reader.opened();
}

function damaged(what: string, cause?: unknown): PartFileError {
  return new PartFileError("damaged", `it is damaged: ${what}`, { cause });
}

class BackupReader {
  readonly #taker: BackupTaker;
  readonly #seal = new Seal("muster backup");
  readonly #replica = new Replica();
  #head: BackupHead | null = null;
  /** Of the state, until it is whole; null afterwards. */
  #pieces: Uint8Array[] | null = [];
  #records = 0;
  #opened: OpenedBackup | null = null;

  constructor(taker: BackupTaker) {
    this.#taker = taker;
  }

  async take(bytes: Uint8Array): Promise<void> {
    if (this.#opened !== null) throw damaged("parts follow its last one");
    const part = decodedOrNull(BackupPart, bytes);
    if (part === null) throw damaged(`a part of ${bytes.length} bytes cannot be decoded`);
    if (part.end !== null) {
      this.#end(part.end);
      return;
    }
    this.#seal.add(bytes);
    if (part.head !== null) {
      if (this.#head !== null) throw damaged("it has two heads");
      this.#head = part.head;
      return;
    }
    if (this.#head === null) throw damaged("its first part is missing");
    if (part.stateEnd !== null) await this.#state(part.stateEnd);
    else if (part.record !== null) await this.#record(part.record.version, part.record.record);
    else if (part.state.length > 0 && this.#pieces !== null) this.#pieces.push(Uint8Array.from(part.state));
    else throw new PartFileError("future", "it has a part that this Muster does not know: use a newer Muster");
  }

  /** Throws PartFileError. */
  opened(): OpenedBackup {
    if (this.#opened === null) throw new PartFileError("truncated", "it is truncated: its last part is missing");
    return this.#opened;
  }

  async #state(header: SnapshotHeader): Promise<void> {
    if (this.#pieces === null) throw damaged("it has two states");
    const snapshot = joinedSnapshot(header, this.#pieces);
    this.#pieces = null;
    try {
      this.#replica.load(snapshot);
    } catch (error) {
      if (error instanceof FutureSnapshot)
        throw new PartFileError("future", `${error.message}: use a newer Muster`, { cause: error });
      if (!(error instanceof SnapshotError)) throw error;
      throw damaged(error.message, error);
    }
    await this.#taker.onState(snapshot, header.sequence);
  }

  async #record(version: number, record: Uint8Array): Promise<void> {
    if (this.#pieces !== null) throw damaged("a record comes before the state");
    try {
      this.#replica.apply(version, record);
    } catch (error) {
      if (error instanceof FutureRecord)
        throw new PartFileError("future", `${error.message}: use a newer Muster`, { cause: error });
      if (!(error instanceof LogBreak)) throw error;
      throw damaged(error.message, error);
    }
    this.#records += 1;
    await this.#taker.onRecord(version, record);
  }

  #end(end: NonNullable<BackupPart["end"]>): void {
    const head = this.#head;
    if (head === null || this.#pieces !== null) throw damaged("its state is missing");
    const seal = this.#seal.check(end, { clusterId: head.clusterId, toMs: timeMs(head.madeAt) });
    if (seal.kind === "broken") throw damaged(seal.failed);
    if (this.#replica.version !== head.last)
      throw damaged(`it ends at version ${this.#replica.version}, not at ${head.last}`);
    if ([...this.#replica.all("cluster")][0]?.id !== head.clusterId) throw damaged("it has no cluster, or another one");
    this.#opened = { head, replica: this.#replica, records: this.#records, seal, missing: end.missing };
  }
}
