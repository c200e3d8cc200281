/**
 * Records the range of the log: the state at or before a moment, and the transactions since, with those fields that recordings may have.
 * The chain of checksums is made anew, so whoever opens the recording reads it like a log.
 *
 * LR1: the sentences name what is missing of the range, so nobody takes the first or the last recorded state for that of another time.
 * LR2: at most `rangeBytesMax` are recorded; the rest is missing.
 */
import { recordedObject, recordedTransaction } from "../../machines/inspection/recorded-objects.ts";
import {
  LogRecord,
  RecordedTransaction,
  RecordingPart,
  Transaction,
  type StoreObject,
  type Timestamp,
} from "../../proto/gen/messages.ts";
import { timeMs, timestampOf } from "../../proto/time.ts";
import type { CallSignal, Sink } from "../../runtime/ports/rpc.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import { mebibytes } from "../../runtime/part-file.ts";
import { basePieceBytes, objectOverheadBytes, rangeBytesMax } from "../../runtime/recording/format.ts";
import { isoTime } from "../../runtime/recording/iso-time.ts";
import { LogBreak } from "../../runtime/store/log-break.ts";
import { decodeRecord, equalBytes, sha256 } from "../../runtime/store/record.ts";
import type { Replica } from "../../runtime/store/replica.ts";
import { encodingSteps, type Capture } from "../../runtime/store/snapshot.ts";
import type { Store } from "../../runtime/store/store.ts";
import type { AnyObject } from "../../runtime/store/tables.ts";
import { sleep } from "../../runtime/store/wait.ts";
import { extentOf, type PastParts } from "./base.ts";
import type { Pasts } from "./pasts.ts";
import { replayTo } from "./replay.ts";
import { findVersion, unreadable } from "./version-at.ts";

/** Unread bytes of the client; beyond it the log is not read on. */
const clientBytesMax = 512 * 1024;
/** Interval of checking whether the client has read, in milliseconds. */
const paceMs = 20;
/** Objects whose fields are chosen at once: some milliseconds. */
const sliceObjects = 1_000;
const noChecksum = new Uint8Array(0);

export interface LogRangeParts extends PastParts {
  readonly store: Pick<Store, "version">;
  readonly pasts: Pasts;
  /** Instead of `rangeBytesMax`. */
  readonly bytesMax?: number;
}

export interface LogRangeRequest {
  /** The first moment, in milliseconds since the epoch; what is recorded begins with the state at it. */
  readonly fromMs: number;
  readonly signal: CallSignal;
}

type PartSink = Pick<Sink<RecordingPart>, "write" | "bufferedBytes">;

/** Sends the range up to now. Resolves with a sentence for each part of it that is missing (LR1), and never rejects. */
export async function recordLogRange(
  parts: LogRangeParts,
  request: LogRangeRequest,
  sink: PartSink,
): Promise<readonly string[]> {
  const missing: string[] = [];
  try {
    await record(parts, request, sink, missing);
  } catch (error) {
    if (!(error instanceof RpcError)) {
      parts.telemetry.log.error({ err: error }, "cannot record the range of the log");
      missing.push("the cluster's objects: the manager cannot read them");
    } else missing.push(`the cluster's objects: ${error.message}`);
  }
  return missing;
}

async function record(
  parts: LogRangeParts,
  { fromMs, signal }: LogRangeRequest,
  sink: PartSink,
  missing: string[],
): Promise<void> {
  const { clock, store, bytesMax = rangeBytesMax } = parts;
  const [to, nowMs] = [store.version, clock.now()];
  const replica = await baseAt(parts, timestampOf(fromMs), signal);
  // Now: another reader may advance the replica later.
  const capture = replica.capture();
  const sentAt = { version: capture.version, ms: timeMs(capture.time) };
  if (sentAt.ms > fromMs)
    missing.push(
      `the cluster's objects before ${isoTime(sentAt.ms)}: the log has nothing older (version ${sentAt.version})`,
    );
  const base = await redactedBase(parts, capture);
  const counted = { bytes: base.bytes.length + base.objects * objectOverheadBytes };
  if (counted.bytes > bytesMax) {
    missing.push(`the cluster's objects: their state alone exceeds ${mebibytes(bytesMax)}`);
    return;
  }
  for (let at = 0; at < base.bytes.length && !signal.aborted; at += basePieceBytes) {
    await room(parts, sink, signal);
    const piece = base.bytes.subarray(at, at + basePieceBytes);
    sink.write(partOf({ version: sentAt.version, atMs: sentAt.ms, base: true, record: piece }));
  }
  const writer = new RangeWriter(capture, counted, bytesMax, (transaction) => {
    sink.write(partOf(transaction));
    if (transaction.atMs !== undefined) sentAt.ms = transaction.atMs;
  });
  const isEnough = (): boolean => signal.aborted || writer.isFull || sink.bufferedBytes() > clientBytesMax;
  const until = (why: string): void =>
    void missing.push(`the cluster's objects after ${isoTime(sentAt.ms)} (version ${writer.version} of ${to}): ${why}`);
  while (writer.version < to && !signal.aborted) {
    const outcome = await replayTo({ log: parts.log, clock }, writer, to, isEnough);
    if (writer.isFull) return until(`the range of the log exceeds ${mebibytes(bytesMax)}; use a shorter --since`);
    if (outcome === "gap") return until("the log was just shortened; try again");
    if (outcome === "broken") return until("the log cannot be read further");
    if (outcome === "silent") return until("the log does not answer");
    await room(parts, sink, signal);
  }
  sink.write(partOf({ version: to, atMs: nowMs, end: true }));
}

async function room({ clock }: LogRangeParts, sink: PartSink, signal: CallSignal): Promise<void> {
  while (!signal.aborted && sink.bufferedBytes() > clientBytesMax) await sleep(clock, paceMs);
}

/** The state at that time; the oldest that can be rebuilt if there is none. */
async function baseAt(parts: LogRangeParts, time: Timestamp, signal: CallSignal): Promise<Replica> {
  try {
    const { version } = await findVersion(parts, time);
    return await parts.pasts.at(version, signal);
  } catch (error) {
    if (!(error instanceof RpcError) || error.code !== Status.OUT_OF_RANGE) throw error;
  }
  const oldest = (await extentOf(parts))?.bases.at(-1);
  if (oldest === undefined) throw unreadable();
  return parts.pasts.at(oldest, signal);
}

/** In steps, so that the manager's other work continues. */
async function redactedBase(
  { clock }: LogRangeParts,
  capture: Capture,
): Promise<{ readonly bytes: Uint8Array; readonly objects: number }> {
  const tables: Capture["tables"][number][] = [];
  let objects = 0;
  for (const { table, objects: whole } of capture.tables) {
    const recorded: AnyObject[] = [];
    for (let from = 0; from < whole.length; from += sliceObjects) {
      for (const object of whole.slice(from, from + sliceObjects)) {
        const shown = recordedObject(table, object as NonNullable<StoreObject[typeof table]>);
        if (shown !== null) recorded.push(shown);
      }
      await sleep(clock, 0);
    }
    objects += recorded.length;
    tables.push({ table, objects: recorded });
  }
  const steps = encodingSteps({
    ...capture,
    recordSequence: capture.version,
    checksum: noChecksum,
    tables,
    receipts: [],
  });
  for (;;) {
    const step = steps.next();
    if (step.done === true) return { bytes: step.value, objects };
    await sleep(clock, 0);
  }
}

function partOf(fields: Partial<RecordedTransaction>): RecordingPart {
  return RecordingPart.create({ transaction: RecordedTransaction.create(fields) });
}

/** Takes the records of the log in the place of a replica. */
class RangeWriter {
  version: number;
  /** LR2 */
  isFull = false;
  readonly #counted: { bytes: number };
  readonly #bytesMax: number;
  readonly #write: (transaction: Partial<RecordedTransaction>) => void;
  /** Of the last record in the log, and in the recording. */
  #read: Uint8Array;
  #written: Uint8Array = noChecksum;
  #atMs: number;

  constructor(
    base: Capture,
    counted: { bytes: number },
    bytesMax: number,
    write: (transaction: Partial<RecordedTransaction>) => void,
  ) {
    this.version = base.version;
    this.#read = base.checksum;
    this.#atMs = timeMs(base.time);
    this.#counted = counted;
    this.#bytesMax = bytesMax;
    this.#write = write;
  }

  /** Throws LogBreak. */
  apply(sequence: number, data: Uint8Array): void {
    if (this.isFull) return;
    const outcome = decodeRecord(data);
    let record: Uint8Array = noChecksum;
    let changes = 0;
    // A foreign message counts as a version without changes, as in a replica: an empty record is one.
    if (outcome.kind === "decoded") {
      const { checksum, transaction } = outcome.record;
      if (!equalBytes(transaction.previous, this.#read))
        throw new LogBreak(sequence, "it does not name the record before it as its predecessor");
      this.#read = checksum;
      const shown = Transaction.patch(recordedTransaction(transaction), { previous: this.#written });
      changes = shown.changes.length;
      const bytes = Transaction.encode(shown);
      this.#written = sha256(bytes);
      record = LogRecord.encode(LogRecord.create({ transaction: bytes, checksum: this.#written }));
      this.#atMs = timeMs(transaction.time);
    }
    this.#counted.bytes += record.length + (changes + 1) * objectOverheadBytes;
    this.isFull = this.#counted.bytes > this.#bytesMax;
    if (this.isFull) return;
    this.version = sequence;
    this.#write({ version: sequence, atMs: this.#atMs, record });
  }
}
