/**
 * A manager's high-water mark: the last record of the log that it has seen, on its own disk. A log that ends before it, or has
 * a different record in its place, has lost what this manager may have acknowledged.
 *
 * K1: the mark on disk covers what this manager acknowledges to a caller before the caller is answered (`holds`), unless the
 *     disk rejects it, which is reported.
 * K2: otherwise the mark follows the log within `idleMs`: appending and applying never wait for it.
 * K3: the mark on disk never goes back, unless the loss was accepted.
 */
import { LogMark, Trouble_Kind, type Timestamp } from "../../proto/gen/messages.ts";
import { timeMs, timestampOf } from "../../proto/time.ts";
import type { Clock, Log, Subscription, Telemetry, TimerHandle } from "../ports/index.ts";
import type { Troubles } from "../ports/troubles.ts";
import { recordAt } from "./fitting.ts";
import { LogLoss } from "./log-break.ts";
import { decodeRecord, equalBytes } from "./record.ts";
import type { Replica } from "./replica.ts";
import { sleep } from "./wait.ts";

/** How far the mark of a manager that acknowledges nothing may lag behind, in milliseconds. */
const idleMs = 1_000;
/** Delay between two requests to the log, in milliseconds. */
const retryMs = 250;
/** How long the log may take to report its bounds, in milliseconds. */
const boundsTimeoutMs = 2_000;
/**
 * How long the log must keep answering that it ends before the mark, in milliseconds: a stream's new leader may still be
 * applying its entries.
 */
const shortMsMax = 10_000;

/** The disk's part. */
export interface LogMarkDisk {
  /** Null if none was written yet, or if it is damaged. */
  read(): Uint8Array | null;
  /** Resolves when the bytes survive a power failure; rejects with the old ones unchanged. One call at a time. */
  write(data: Uint8Array): Promise<void>;
}

/** Null if there is none. */
export function readMark(disk: LogMarkDisk): LogMark | null {
  const bytes = disk.read();
  if (bytes === null) return null;
  const mark = LogMark.decode(bytes);
  return mark.sequence === 0 ? null : mark;
}

interface MarkKeeperParts {
  readonly replica: Replica;
  readonly disk: LogMarkDisk;
  readonly clock: Clock;
  readonly telemetry: Telemetry;
  readonly troubles?: Troubles | undefined;
}

export class MarkKeeper {
  readonly #parts: MarkKeeperParts;
  readonly #watching: Subscription;
  /** As on disk at the start; null if there was none. */
  readonly known: LogMark | null;
  /** K3 */
  #floor: number;
  #lossAccepted: Timestamp | null;
  /** Version of the replica that the mark on disk covers. */
  #durable = 0;
  #isWriting = false;
  #timer: TimerHandle | null = null;
  #waiting: { readonly version: number; readonly resolve: () => void }[] = [];
  #isStopped = false;

  constructor(parts: MarkKeeperParts) {
    this.#parts = parts;
    this.known = readMark(parts.disk);
    this.#floor = this.known?.sequence ?? 0;
    this.#lossAccepted = this.known?.lossAccepted ?? null;
    this.#watching = parts.replica.watch(() => this.#later());
  }

  /** K1. Resolves immediately for a version that the replica does not have. */
  holds(version: number): Promise<void> {
    if (this.#isStopped || version <= this.#durable || version > this.#parts.replica.version) return Promise.resolve();
    return new Promise((resolve) => {
      this.#waiting.push({ version, resolve });
      this.#write();
    });
  }

  /** When an operator last accepted that the log lacks what the mark says; null for never. */
  get lossAccepted(): Timestamp | null {
    return this.#lossAccepted;
  }

  /** The log lacks what the mark says, and an operator has accepted that. Written with the next mark. */
  accept(): void {
    this.#lossAccepted = timestampOf(this.#parts.clock.now());
    this.#floor = 0;
    this.#durable = 0;
  }

  stop(): void {
    if (this.#isStopped) return;
    this.#isStopped = true;
    this.#watching.unsubscribe();
    if (this.#timer !== null) this.#parts.clock.clearTimeout(this.#timer);
    this.#release(Number.POSITIVE_INFINITY);
  }

  /** K2 */
  #later(): void {
    if (this.#timer !== null || this.#isWriting || this.#isStopped) return;
    this.#timer = this.#parts.clock.setTimeout(() => {
      this.#timer = null;
      this.#write();
    }, idleMs);
  }

  #write(): void {
    const { disk, replica, telemetry, troubles } = this.#parts;
    if (this.#isWriting || this.#isStopped) return;
    const { checksum, recordSequence: sequence, time, version, writer } = replica;
    if (sequence < this.#floor || version <= this.#durable) return;
    this.#isWriting = true;
    disk
      .write(LogMark.encode(LogMark.create({ sequence, checksum, time, writer, lossAccepted: this.#lossAccepted })))
      .then(
        () => {
          this.#floor = sequence;
          this.#durable = version;
          troubles?.clear(Trouble_Kind.LOG_MARK);
        },
        (error: unknown) => {
          const sentence = `the mark of the last record that this manager has seen cannot be written (${String(error)}): a loss of records would not be detected`;
          if (troubles === undefined) telemetry.log.error({ error: String(error) }, sentence);
          else troubles.raise({ kind: Trouble_Kind.LOG_MARK, sentence, blocking: false });
        },
      )
      .finally(() => {
        this.#isWriting = false;
        // Also after a failure: an answer that waits for this disk would never be sent.
        this.#release(version);
        if (this.#waiting.length > 0) this.#write();
        else if (replica.version > version) this.#later();
      });
  }

  #release(version: number): void {
    const ready = this.#waiting.filter((each) => each.version <= version);
    this.#waiting = this.#waiting.filter((each) => each.version > version);
    for (const { resolve } of ready) resolve();
  }
}

function when(time: { readonly seconds: number; readonly nanos: number } | null): string {
  return time === null ? "" : new Date(timeMs(time)).toISOString();
}

/**
 * Compares the log with the mark and returns what the log lacks, or null. Waits until the log answers, and until a log that is
 * too short has said so for a while. Null also once `isStopped`, and for a mark so old that the log no longer retains its
 * record.
 */
export async function findLoss(
  { clock, log }: { readonly clock: Clock; readonly log: Log },
  mark: LogMark,
  isStopped: () => boolean,
): Promise<LogLoss | null> {
  let shortMs = 0;
  const seen = `record ${mark.sequence}, written at ${when(mark.time)} by manager ${mark.writer || "?"}`;
  while (!isStopped()) {
    const bounds = await log.bounds(boundsTimeoutMs);
    if (bounds !== null && bounds.last < mark.sequence) {
      if (shortMs >= shortMsMax) {
        const missing = mark.sequence - bounds.last;
        return new LogLoss(
          bounds.last + 1,
          `it ends at record ${bounds.last}${await writtenAt(log, clock, bounds)}, but this manager has seen ${seen}: ${missing} ${missing === 1 ? "record is" : "records are"} missing`,
        );
      }
      shortMs += retryMs;
    } else if (bounds !== null) {
      shortMs = 0;
      if (bounds.first > mark.sequence) return null;
      try {
        const outcome = decodeRecord(await recordAt(log, clock, mark.sequence));
        if (outcome.kind === "decoded" && equalBytes(outcome.record.checksum, mark.checksum)) return null;
        const found =
          outcome.kind === "decoded" ? `one written at ${when(outcome.record.transaction.time)}` : "no record";
        return new LogLoss(
          mark.sequence,
          `this manager has seen ${seen}; in its place the log has ${found}: either records were lost and others written since, or this is another cluster's log`,
        );
      } catch {
        // The log does not answer yet, or the record's data key has not arrived.
      }
    }
    await sleep(clock, retryMs);
  }
  return null;
}

async function writtenAt(
  log: Log,
  clock: Clock,
  { first, last }: { readonly first: number; readonly last: number },
): Promise<string> {
  if (last < first) return "";
  const outcome = await recordAt(log, clock, last).then(decodeRecord, () => null);
  return outcome?.kind === "decoded" ? `, written at ${when(outcome.record.transaction.time)}` : "";
}
