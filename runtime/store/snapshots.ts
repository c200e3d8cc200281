/**
 * Writes snapshots and drops old history while this manager leads: after a number of records or bytes, the state is written to
 * the blobs. The newest few snapshots and some older ones are kept, and the log is purged of what precedes the promised
 * history.
 *
 * N1: the log keeps every record after the oldest kept snapshot, so that each of them can be rolled forward.
 * N2: a blob is removed and a record purged only after a newer snapshot is completely stored.
 * N4: while the disk under the log is short of space, and while the log is larger than its history may be, history is dropped
 *     early, oldest first, down to the newest stored snapshot; nothing that no snapshot covers is ever dropped.
 * N3: every version of the promised history that N4 has left can be rebuilt: a snapshot from before it is kept, and the records
 *     since; or, while there is none, every record from the first.
 * N5: while no stored snapshot reaches the log's first record, such as after the loss of the object store, one is written at
 *     once: until then, no manager could start.
 */
import type { Blobs, Clock, Log, Subscription, Telemetry, TimerHandle } from "../ports/index.ts";
import { stepInTurn } from "./wait.ts";
import type { Replica } from "./replica.ts";
import { encodingSteps } from "./snapshot.ts";

export interface SnapshotOptions {
  /** Records after which a snapshot is written. */
  readonly everyRecords: number;
  /** Bytes of records after which a snapshot is written earlier. */
  readonly everyBytes: number;
  readonly snapshotsKept: number;
  /** Number of newest records at each of which the state can be rebuilt, for watchers that resume and for reading the past. */
  readonly historyRecordsKept: number;
  /** Size of the log in bytes beyond which its oldest history is dropped although it has fewer records. */
  readonly historyBytesKept: number;
}

export const snapshotDefaults: SnapshotOptions = {
  // SwarmKit's default SnapshotInterval.
  everyRecords: 10_000,
  // A new process reads and applies that much in about two seconds.
  everyBytes: 64 * 1024 * 1024,
  // One may be read while the next is written.
  snapshotsKept: 2,
  // More than a day at one transaction a second.
  historyRecordsKept: 100_000,
  // Twenty times what a cluster of 20,000 tasks writes while creating them; an eighth of a small machine's disk.
  historyBytesKept: 2 * 1024 * 1024 * 1024,
};

/**
 * How often the space under the log is checked, and the minimum delay between two snapshots that are written to free space, in
 * milliseconds.
 */
const spaceCheckMs = 5_000;
const scarceSnapshotMs = 60_000;
const logTimeoutMs = 5_000;
/**
 * How often a leader makes sure that managers can start from what is stored, in milliseconds: two requests, and well within the
 * minute that a manager waits before it exits. N5
 */
const coverCheckMs = 20_000;

/** Snapshots are kept at steps of this fraction of the history: a rebuild replays at most that many records. */
const historySteps = 4;

/**
 * Which of the stored snapshots to keep, newest first (N3): the newest `snapshotsKept`; the newest that is as old as the whole
 * history, or the oldest while there is none; and between them one for each step. Whatever is dropped, a later call finds the
 * remaining ones at the same steps.
 */
export function snapshotsToKeep(sequences: readonly number[], newest: number, options: SnapshotOptions): number[] {
  // A snapshot ahead of this log belongs to a lost log; it would never be loaded.
  const usable = sequences.filter((sequence) => sequence <= newest).toSorted((a, b) => b - a);
  const recent = usable.slice(0, options.snapshotsKept);
  const base = usable.find((sequence) => sequence <= newest - options.historyRecordsKept) ?? usable.at(-1);
  if (base === undefined) return [];
  const step = options.historyRecordsKept / historySteps;
  const kept = [base];
  for (const sequence of usable.toReversed()) {
    const isNextStep = sequence - (kept.at(-1) as number) >= step;
    if (sequence > base && (isNextStep || recent.includes(sequence))) kept.push(sequence);
  }
  return kept.reverse();
}

/**
 * The first record that is needed with these snapshots (N1, N3): while none of them is as old as the history, the whole log is.
 */
export function firstRecordToKeep(kept: readonly number[], newest: number, options: SnapshotOptions): number {
  const base = kept.find((sequence) => sequence <= newest - options.historyRecordsKept);
  return base === undefined ? 1 : base + 1;
}

const namePattern = /^snapshot-(\d+)$/;

/** `sequence`: of the last log record in the snapshot. */
export function snapshotName(sequence: number): string {
  return `snapshot-${sequence}`;
}

/** Sequence of the snapshot in a blob's name; null for other blobs. */
export function parseSnapshotName(name: string): number | null {
  const match = namePattern.exec(name);
  return match === null ? null : Number(match[1]);
}

/** Sequences of the stored snapshots, newest first. Rejects if the blobs do not answer. */
export async function listSnapshots(blobs: Blobs): Promise<number[]> {
  const sequences = (await blobs.list()).map(parseSnapshotName).filter((sequence) => sequence !== null);
  return sequences.sort((a, b) => b - a);
}

/** N4, N2: drops records that a stored snapshot covers, and snapshots that have a newer one. */
export async function shedHistory(parts: {
  readonly log: Pick<Log, "bytes" | "purgeBefore" | "space">;
  readonly blobs: Pick<Blobs, "list" | "remove">;
  readonly options: SnapshotOptions;
  /** The replica's version: a snapshot ahead of it belongs to a lost log. */
  readonly version: number;
  readonly isStopped: () => boolean;
}): Promise<void> {
  const { blobs, isStopped, log, options, version } = parts;
  const isShort = log.space() !== "ample";
  const least = isShort ? 1 : options.snapshotsKept;
  const kept = (await blobs.list())
    .map(parseSnapshotName)
    .filter((sequence) => sequence !== null && sequence <= version)
    .toSorted((a, b) => (b ?? 0) - (a ?? 0)) as number[];
  while (!isStopped() && kept.length > least) {
    if (!isShort && ((await log.bytes(logTimeoutMs)) ?? 0) <= options.historyBytesKept) return;
    await blobs.remove(snapshotName(kept.pop() as number));
    await log.purgeBefore((kept.at(-1) as number) + 1);
  }
  const [newest] = kept;
  if (isShort && !isStopped() && newest !== undefined) await log.purgeBefore(newest + 1);
}

interface SnapshotWriterParts {
  readonly clock: Clock;
  readonly log: Log;
  readonly blobs: Blobs;
  readonly replica: Replica;
  readonly telemetry: Telemetry;
  readonly options: SnapshotOptions;
}

export function startSnapshotWriter(parts: SnapshotWriterParts): { stop(): void } {
  const { clock, log, blobs, replica, telemetry, options } = parts;
  const written = telemetry.metrics.counter("muster_snapshots_total", "Snapshots of the store written.");
  let isStopped = false;
  let isWriting = false;
  /** Version and record bytes at the last snapshot; unknown until the blobs were listed. */
  let last: { version: number; recordBytes: number } | null = null;
  let watching: Subscription | null = null;
  let spaceTimer: TimerHandle | null = null;
  let scarceSince = Number.NEGATIVE_INFINITY;
  let coverAt = clock.monotonic();

  const check = (): void => {
    if (isStopped || isWriting || last === null) return;
    const isDue =
      replica.version - last.version >= options.everyRecords ||
      replica.recordBytes - last.recordBytes >= options.everyBytes;
    if (isDue) begin(write);
    else if (log.space() !== "ample" && clock.monotonic() - scarceSince >= scarceSnapshotMs) {
      scarceSince = clock.monotonic();
      // N4: a new snapshot takes space that a full disk does not have.
      begin(log.space() === "full" || replica.version === last.version ? shed : write);
    }
  };

  const checkSpace = (): void => {
    spaceTimer = clock.setTimeout(checkSpace, spaceCheckMs);
    check();
    if (isWriting || clock.monotonic() - coverAt < coverCheckMs) return;
    coverAt = clock.monotonic();
    begin(cover);
  };

  const begin = (work: () => Promise<boolean>): void => {
    isWriting = true;
    const begun = { version: replica.version, recordBytes: replica.recordBytes };
    let isSnapshot = work === write;
    work()
      .then((isStored) => {
        isSnapshot ||= isStored;
        if (isStored) written.add();
      })
      .catch((error: unknown) => {
        // The next attempt follows after as many records again; until then the log keeps everything (N2).
        telemetry.log.warn({ error: String(error), version: begun.version }, "snapshot not written");
      })
      .finally(() => {
        if (isSnapshot) last = begun;
        isWriting = false;
        check();
      });
  };

  /** True if it was stored. */
  const write = async (): Promise<boolean> => {
    const capture = replica.capture();
    if (capture.version === 0) return false;
    const steps = encodingSteps(capture);
    let step = await stepInTurn(clock, () => steps.next());
    while (step.done !== true && !isStopped) step = await stepInTurn(clock, () => steps.next());
    if (step.done !== true) return false;
    await blobs.put(snapshotName(capture.version), step.value);
    await retire(capture.version);
    return true;
  };

  /** N5 */
  const cover = async (): Promise<boolean> => {
    const bounds = await log.bounds(logTimeoutMs);
    if (bounds === null || bounds.first <= 1 || isStopped) return false;
    const { first, last } = bounds;
    const isCovered = (await listSnapshots(blobs)).some((sequence) => sequence >= first - 1 && sequence <= last);
    if (isCovered || isStopped) return false;
    telemetry.log.error({ first }, "no stored snapshot reaches the log's first record: writing one now");
    return write();
  };

  /** N1, N2 */
  const retire = async (newest: number): Promise<void> => {
    const sequences = await listSnapshots(blobs);
    const kept = snapshotsToKeep(sequences, newest, options);
    for (const sequence of sequences) {
      if (isStopped) return;
      if (sequence <= newest && !kept.includes(sequence)) await blobs.remove(snapshotName(sequence));
    }
    const first = firstRecordToKeep(kept, newest, options);
    if (!isStopped && first > 1) await log.purgeBefore(first);
    await shed();
  };

  const shed = async (): Promise<boolean> => {
    await shedHistory({ log, blobs, options, version: replica.version, isStopped: () => isStopped });
    return false;
  };

  const start = async (): Promise<void> => {
    let newest = 0;
    try {
      newest = (await listSnapshots(blobs)).find((sequence) => sequence <= replica.version) ?? 0;
    } catch (error) {
      telemetry.log.warn({ error: String(error) }, "snapshots not listed; the next is written as if there were none");
    }
    if (isStopped) return;
    last = { version: newest, recordBytes: replica.recordBytes };
    watching = replica.watch(check);
    checkSpace();
  };
  void start();

  return {
    stop: () => {
      isStopped = true;
      watching?.unsubscribe();
      if (spaceTimer !== null) clock.clearTimeout(spaceTimer);
    },
  };
}
