/**
 * Checks how much of a log and its snapshots is usable, and repairs a log that managers reject. Nobody else may write to it
 * meanwhile.
 *
 * C1: checking changes nothing.
 * C2: a repair keeps the state as of the last record that can be reached from a snapshot or from the log's beginning, and
 *     reuses no sequence: the state becomes a snapshot at the log's end, and the log's contents are dropped.
 * C3: nothing is dropped before its copy is complete and the snapshot is stored.
 */
import type { Blobs, Clock, Log } from "../ports/index.ts";
import { sleep } from "./wait.ts";
import { FutureRecord, LogBreak } from "./log-break.ts";
import { Replica } from "./replica.ts";
import { FutureSnapshot, SnapshotError } from "./snapshot.ts";
import { listSnapshots, snapshotName } from "./snapshots.ts";

/** How long the log may take to report its bounds, and how long it may deliver nothing, in milliseconds. */
const boundsTimeoutMs = 5_000;
const silentMs = 10_000;
const boundsAttemptsMax = 6;
/** Stands for a message that is not a record. */
const noRecord = new Uint8Array(0);

interface LogFinding {
  readonly sequence: number;
  readonly what: string;
}

export interface LogReport {
  readonly first: number;
  readonly last: number;
  /** Messages that something else published. */
  readonly foreign: readonly number[];
  /** Where the log can no longer be followed from the best starting point; null if it can to its end. */
  readonly broken: LogFinding | null;
  /** Unusable snapshots, newest first. */
  readonly badSnapshots: readonly LogFinding[];
  /** The recoverable state: as of record `reached`, from the snapshot at `base` (0: from the first record). */
  readonly base: number;
  readonly reached: number;
  /** The only problem is that it needs a later version of Muster. */
  readonly isFuture: boolean;
}

export interface CheckedLog {
  readonly report: LogReport;
  /** The state at `report.reached`; null if there is none. */
  readonly replica: Replica | null;
}

interface Parts {
  readonly log: Log;
  readonly blobs: Blobs;
  readonly clock: Clock;
}

/** Rejects if NATS does not answer, and with LogSilent if it delivers nothing for a while. */
export async function checkLog(parts: Parts): Promise<CheckedLog> {
  const { blobs } = parts;
  const { first, last } = await boundsOf(parts);
  const badSnapshots: LogFinding[] = [];
  const bases: Replica[] = [];
  let isFuture = false;
  for (const sequence of await listSnapshots(blobs)) {
    const bytes = await blobs.get(snapshotName(sequence));
    const replica = new Replica();
    try {
      if (bytes === null) throw new SnapshotError("it is incomplete");
      if (sequence > last) throw new SnapshotError(`the log ends at ${last}`);
      replica.load(bytes);
      if (sequence >= first - 1) bases.push(replica);
    } catch (error) {
      if (!(error instanceof SnapshotError)) throw error;
      isFuture ||= error instanceof FutureSnapshot;
      badSnapshots.push({ sequence, what: error.message });
    }
  }
  // The oldest first: of two that reach equally far, the older finds more of the problems on its way.
  if (first === 1) bases.push(new Replica());
  bases.reverse();
  let best: { readonly followed: Followed; readonly base: number } | null = null;
  let broken: LogFinding | null = null;
  for (const replica of bases) {
    const base = replica.version;
    const followed = await follow(parts, replica, last);
    broken ??= followed.broken;
    if (followed.broken !== null) isFuture ||= followed.isFuture;
    if (best === null || replica.recordSequence > best.followed.replica.recordSequence) best = { followed, base };
    // A later starting point cannot find more than this one.
    if (followed.broken === null) break;
  }
  if (best === null && last >= first) broken = { sequence: first, what: "no usable snapshot reaches it" };
  const report: LogReport = {
    first,
    last,
    foreign: best?.followed.foreign ?? [],
    broken,
    badSnapshots,
    base: best?.base ?? 0,
    reached: best?.followed.replica.recordSequence ?? 0,
    isFuture,
  };
  return { report, replica: best?.followed.replica ?? null };
}

/** C2, C3. `keep`: writes an exact copy of each message in NATS, and resolves when the copy is complete and on disk. */
export async function repairLog(
  { blobs, log }: Parts,
  { replica, report }: CheckedLog,
  keep: () => Promise<void>,
): Promise<void> {
  if (replica === null) throw new Error("there is no state to keep");
  await keep();
  // S6: unusable messages count as messages of others.
  while (replica.version < report.last) replica.apply(replica.version + 1, noRecord);
  for (const { sequence } of report.badSnapshots) await blobs.remove(snapshotName(sequence));
  await blobs.put(snapshotName(report.last), replica.snapshot());
  await log.purgeBefore(report.last + 1);
}

/** The log delivers nothing more, for example for lack of a data key. */
export class LogSilent extends Error {
  override readonly name = "LogSilent";
  /** Sequence of the record that does not arrive. */
  readonly sequence: number;
  constructor(sequence: number) {
    super(`the log does not deliver record ${sequence}`);
    this.sequence = sequence;
  }
}

/** NATS has lost records in the middle of the log. */
class LogHole extends LogBreak {
  override readonly name = "LogHole";
  constructor(sequence: number, kept: number) {
    super(sequence, `NATS has lost it; the next record there is ${kept}`);
  }
}

interface Followed {
  readonly replica: Replica;
  readonly foreign: readonly number[];
  readonly broken: LogFinding | null;
  readonly isFuture: boolean;
}

/** Applies the records after the replica's version, as far as possible. */
async function follow(parts: Parts, replica: Replica, last: number): Promise<Followed> {
  const foreign: number[] = [];
  let broken: LogFinding | null = null;
  let isFuture = false;
  await readAll(parts, replica.version + 1, last, (sequence, data) => {
    try {
      if (replica.apply(sequence, data).isForeign) foreign.push(sequence);
      return true;
    } catch (error) {
      if (!(error instanceof LogBreak)) throw error;
      isFuture = error instanceof FutureRecord;
      broken = { sequence: error.sequence, what: error.check };
      return false;
    }
  }).catch((error: unknown) => {
    if (!(error instanceof LogHole)) throw error;
    broken = { sequence: error.sequence, what: error.check };
  });
  return { replica, foreign: foreign.filter((each) => each < replica.recordSequence), broken, isFuture };
}

async function boundsOf({ clock, log }: Parts): Promise<{ readonly first: number; readonly last: number }> {
  for (let attempt = 1; attempt <= boundsAttemptsMax; attempt += 1) {
    const bounds = await log.bounds(boundsTimeoutMs);
    if (bounds !== null) return bounds;
    await sleep(clock, 1_000);
  }
  throw new Error("NATS does not report what the log contains");
}

/**
 * Delivers the messages from `from` to `to`, until `take` returns false. Rejects with LogSilent if nothing arrives for a while,
 * and with LogHole if NATS has lost some, unless those are skipped.
 */
export function readAll(
  { clock, log }: Pick<Parts, "clock" | "log">,
  from: number,
  to: number,
  take: (sequence: number, data: Uint8Array) => boolean,
  passesHoles = false,
): Promise<void> {
  if (from > to) return Promise.resolve();
  return new Promise((resolve, reject) => {
    let next = from;
    let isOver = false;
    const end = (settle: () => void): void => {
      if (isOver) return;
      isOver = true;
      clock.clearTimeout(timer);
      // `read` may deliver before it returns.
      clock.soon(() => reading.unsubscribe());
      settle();
    };
    const expire = (): void => end(() => reject(new LogSilent(next)));
    let timer = clock.setTimeout(expire, silentMs);
    const reading = log.read(from, {
      onRecord: (sequence, data) => {
        if (isOver) return;
        clock.clearTimeout(timer);
        timer = clock.setTimeout(expire, silentMs);
        next = sequence + 1;
        try {
          if (!take(sequence, data) || sequence >= to) end(resolve);
        } catch (error) {
          end(() => reject(error as Error));
        }
      },
      onCaughtUp: () => {},
      onGap: (kept) => {
        if (passesHoles) end(() => resolve(readAll({ clock, log }, kept, to, take, passesHoles)));
        else end(() => reject(new LogHole(next, kept)));
      },
    });
  });
}
