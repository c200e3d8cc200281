/**
 * Opens a recording: its steps go to an index, ordered by time across its processes, and its other parts to lists.
 */
import { decodedOrNull } from "../../proto/codec.ts";
import { scanFeed, scanPart } from "../../proto/feed-scan.ts";
import {
  RecordedLine,
  RecordedSpan,
  RecordedTransaction,
  RecordingEnd,
  RecordingHead,
} from "../../proto/gen/messages.ts";
import { PartFileError } from "../part-file.ts";
import { partsOfFile, recordingBytesMax, type RecordingLimits } from "./format.ts";
import { RecordedObjects } from "./recorded-objects.ts";
import { Seal, type SealCheck } from "./seal.ts";
import { everyTime, TimelineIndex } from "./timeline-index.ts";

/** Feeds of a process are sent every 50 ms, and a busy process is late: steps of different ones are ordered within this time. */
const holdMs = 1_000;

/**
 * Milliseconds by which clocks of processes may be ahead of that of the manager that made the recording. Later times are taken for
 * its end and this time.
 */
const clockMarginMs = 60_000;

export interface OpenedRecording {
  readonly head: RecordingHead;
  readonly index: TimelineIndex;
  /** The cluster's objects; null: the recording has none. */
  readonly objects: RecordedObjects | null;
  /** In the order of their times. */
  readonly lines: readonly RecordedLine[];
  /** Number of spans. */
  readonly spans: number;
  readonly missing: readonly string[];
  readonly seal: SealCheck;
  /** Why the rest, or the rest of the range of the log, could not be read, if it was opened all the same; null: it is whole. */
  readonly fault: PartFileError | null;
}

interface OpenOptions {
  /** Opens a recording whose end cannot be read, or whose seal is broken, as far as possible. */
  readonly isForced: boolean;
  readonly limits?: RecordingLimits;
}

/** In place of a process, in the list of gaps. */
const objectsName = "the cluster's objects";

interface QueuedFeed {
  readonly atMs: number;
  readonly bytes: Uint8Array;
}

/** Fields of RecordingPart. */
const Field = { head: 1, feed: 2, transaction: 3, line: 4, span: 5, end: 6 } as const;

class Parts {
  head: RecordingHead | null = null;
  end: RecordingEnd | null = null;
  readonly feeds: QueuedFeed[] = [];
  /** Time of each process's newest feed: its feeds stay in order, although its clock may be set back. */
  readonly #newestMs = new Map<string, number>();
  readonly transactions: RecordedTransaction[] = [];
  readonly lines: RecordedLine[] = [];
  readonly spans: RecordedSpan[] = [];
  readonly seal = new Seal();

  /** Throws PartFileError. */
  take(bytes: Uint8Array): void {
    if (this.end !== null) throw new PartFileError("damaged", "it is damaged: parts follow its last one");
    const part = partOf(bytes);
    if (part.field !== Field.end) this.seal.add(bytes);
    switch (part.field) {
      case Field.head:
        this.head ??= decoded(RecordingHead, part.value);
        break;
      case Field.feed: {
        const feed = scanFeed(part.value);
        const atMs = Math.max(feed.atMs, this.#newestMs.get(feed.process) ?? 0);
        this.#newestMs.set(feed.process, atMs);
        this.feeds.push({ atMs, bytes: part.value });
        break;
      }
      case Field.transaction:
        this.transactions.push(decoded(RecordedTransaction, part.value));
        break;
      case Field.line:
        this.lines.push(decoded(RecordedLine, part.value));
        break;
      case Field.span:
        this.spans.push(decoded(RecordedSpan, part.value));
        break;
      case Field.end:
        this.end = decoded(RecordingEnd, part.value);
        break;
      // A field of a later version of Muster: the seal covers it, and this version does not show it.
      default:
    }
  }
}

function partOf(bytes: Uint8Array): { readonly field: number; readonly value: Uint8Array } {
  try {
    const part = scanPart(bytes);
    // A part may share the memory of a large piece of the file.
    if (part !== null) return { field: part.field, value: new Uint8Array(part.value) };
  } catch {
    // Reported below.
  }
  throw new PartFileError("damaged", `it is damaged: a part of ${bytes.length} bytes cannot be decoded`);
}

function decoded<T>(codec: { readonly typeName: string; decode(bytes: Uint8Array): T }, bytes: Uint8Array): T {
  const message = decodedOrNull(codec, bytes);
  if (message === null) throw new PartFileError("damaged", `it is damaged: a ${codec.typeName} cannot be decoded`);
  return message;
}

/** The parts of the time line that the range of the log does not cover. */
function addObjectGaps({ gaps, fromMs, toMs }: TimelineIndex, objects: RecordedObjects): void {
  if (objects.fromMs > fromMs) gaps.add(objectsName, fromMs, Math.min(toMs, objects.fromMs));
  if (objects.toMs !== null && objects.toMs < toMs) gaps.add(objectsName, Math.max(fromMs, objects.toMs), toMs);
}

/** Rejects with PartFileError, and as `chunks` does. */
export async function openRecording(
  chunks: AsyncIterable<Uint8Array>,
  { isForced, limits }: OpenOptions,
): Promise<OpenedRecording> {
  const parts = new Parts();
  let fault: PartFileError | null = null;
  try {
    for await (const part of partsOfFile(chunks, limits)) parts.take(part);
    if (parts.end === null) throw new PartFileError("truncated", "it is truncated: its last part is missing");
  } catch (error) {
    const canGoOn = error instanceof PartFileError && (error.fault === "truncated" || error.fault === "damaged");
    if (!isForced || !canGoOn || parts.head === null) throw error;
    fault = error;
  }
  const { head, end, transactions, lines, spans } = parts;
  if (head === null) throw new PartFileError("damaged", "it is damaged: its first part is missing");
  const seal: SealCheck =
    end === null ? { kind: "broken", failed: fault?.message ?? "its end is missing" } : parts.seal.check(end, head);
  if (seal.kind === "broken" && !isForced) throw new PartFileError("damaged", `its seal is broken: ${seal.failed}`);
  const { objects, fault: rangeFault } = RecordedObjects.open(transactions);
  if (rangeFault !== null && !isForced) throw rangeFault;
  const times = { ...everyTime, toMs: head.toMs + clockMarginMs };
  const index = new TimelineIndex({ bytesMax: recordingBytesMax, holdMs, isRecording: true, bounds: () => times });
  for (const { bytes } of parts.feeds.sort((a, b) => a.atMs - b.atMs)) index.appendEncoded(bytes);
  index.settle();
  for (const span of spans) index.appendSpan(span);
  if (objects !== null) addObjectGaps(index, objects);
  return {
    head,
    index,
    objects,
    lines: lines.toSorted((a, b) => a.atMs - b.atMs),
    spans: spans.length,
    missing: end?.missing ?? [],
    seal,
    fault: fault ?? rangeFault,
  };
}
