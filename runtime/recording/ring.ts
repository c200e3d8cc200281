/**
 * The last minutes of a process in a few megabytes: steps of its actors, log lines and spans, in the order in which they came.
 * Full pieces are compressed. When the ring is full, the oldest piece is dropped, and the states that its steps lead to are kept,
 * so that what is left begins with a snapshot.
 *
 * RR1: the ring never asks the feed to wait or to drop anything.
 * RR2: a read gives a whole recording of the process: a snapshot, then every step since.
 * RR3: the ring never throws at those who add to it. It drops a part that it cannot keep; a missing feed message is a gap in the
 *     sequence numbers.
 * RR4: a step is encoded as it happens, so that neither its context nor its event outlives it.
 */
import { constants, zstdCompressSync, zstdDecompressSync } from "node:zlib";
import { scanPart } from "../../proto/feed-scan.ts";
import {
  ActorFeed,
  ActorStatus,
  ActorStep,
  RecordedLine,
  RecordedSpan,
  RecordingPart,
} from "../../proto/gen/messages.ts";
import { lengthDelimited, ListWriter } from "../../proto/list-writer.ts";
import { ActorStates } from "./actor-states.ts";
import { framed } from "../part-file.ts";

/**
 * Compressed bytes of a ring: ten minutes at 100 steps a second, hours of a small cluster. A state of each actor, about
 * 1 KiB in memory, comes on top.
 */
const ringBytesMax = 4 * 1024 * 1024;
/** A piece of this size compresses to less than a tenth, in half a millisecond. */
const pieceBytesMax = 256 * 1024;
/** Steps are so alike that zstd's default level (3) takes twice the time for no fewer bytes. */
const compression = { params: { [constants.ZSTD_c_compressionLevel]: 1 } };

/** Steps of this many milliseconds are joined to one feed message, as for a listener. */
const messageMs = 50;
/** Bytes of the steps of one feed message; a larger step is alone in its message. */
const messageBytesMax = 64 * 1024;

/** Fields of RecordingPart. */
const Field = { feed: 2, line: 4, span: 5 } as const;
/** Field of ActorFeed. */
const stepsField = 5;
const noSteps = { length: 0, bytes: 0 };

interface PieceOptions {
  /** Bytes of a piece before it is compressed. */
  readonly pieceBytes?: number;
  /** Called with the compressed bytes of each new piece. */
  readonly onPiece?: (bytes: number) => void;
}

export class RecordingRing {
  readonly bytesMax: number;
  readonly #pieceBytes: number;
  readonly #onPiece: (bytes: number) => void;
  #process = "";
  #hostname = "";
  #sequence = 0;
  /** The steps of the feed message that is not complete yet. */
  #steps = new ListWriter(ActorStep, stepsField);
  #stepBytes = 0;
  #firstMs = 0;
  #lastMs = 0;
  /** Actors that have ended in it. */
  readonly #ended = new Set<string>();
  #pieces: Uint8Array[] = [];

  #packedBytes = 0;
  /** Framed parts of the newest piece. */
  #open: Buffer[] = [];
  #openBytes = 0;
  /** The states before the oldest piece. */
  readonly #base = new ActorStates();

  /** `bytesMax`: of compressed pieces. */
  constructor(bytesMax: number = ringBytesMax, { onPiece = () => {}, pieceBytes = pieceBytesMax }: PieceOptions = {}) {
    this.bytesMax = bytesMax;
    this.#pieceBytes = pieceBytes;
    this.#onPiece = onPiece;
  }

  /** Bytes that are kept, without the states. */
  get bytes(): number {
    return this.#packedBytes + this.#openBytes + this.#stepBytes;
  }

  /** A message of the feed, such as a part of its snapshot; the steps that follow belong to its process. */
  onFeed(feed: ActorFeed): void {
    this.#completeMessage();
    this.#process = feed.process;
    this.#hostname = feed.hostname;
    this.#sequence = feed.sequence;
    this.#add(() => RecordingPart.encode(RecordingPart.create({ feed })));
  }

  /** The step after those and the messages before. RR1, RR3, RR4 */
  onStep(step: ActorStep): void {
    try {
      const { actor, atMs, status } = step;
      const isDue = atMs - this.#firstMs >= messageMs || atMs < this.#firstMs;
      // An actor and a later one with its id are in different messages.
      if (isDue || this.#ended.has(actor)) this.#completeMessage();
      const before = this.#steps.mark();
      let bytes = this.#steps.add(step);
      if (before.length > 0 && before.bytes + bytes > messageBytesMax) {
        this.#steps.truncate(before);
        this.#completeMessage();
        bytes = this.#steps.add(step);
      }
      if (this.#steps.length === 1) this.#firstMs = atMs;
      this.#lastMs = atMs;
      this.#stepBytes += bytes;
      if (status !== ActorStatus.ACTOR_ACTIVE) this.#ended.add(actor);
    } catch {
      // The writer may have half a step.
      this.#steps = new ListWriter(ActorStep, stepsField);
      this.#stepBytes = 0;
      this.#ended.clear();
      this.onMissing();
    }
  }

  /** A step that cannot be shown is missing: the number of its message is, too. */
  onMissing(): void {
    this.#completeMessage();
    this.#sequence += 1;
  }

  addLine(line: Omit<RecordedLine, "process">): void {
    this.#add(() => RecordingPart.encode(RecordingPart.create({ line: RecordedLine.create(line) })));
  }

  addSpan(span: Omit<RecordedSpan, "process">): void {
    this.#add(() => RecordingPart.encode(RecordingPart.create({ span: RecordedSpan.create(span) })));
  }

  /** Encoded RecordingParts, without head and end, from `sinceMs` on. RR2 */
  *parts(sinceMs: number): Generator<Uint8Array> {
    const states = new ActorStates(this.#base);
    let isBegun = false;
    const begin = function* (): Generator<Uint8Array> {
      if (isBegun) return;
      isBegun = true;
      if (!states.isKnown) return;
      for (const feed of states.snapshot()) yield RecordingPart.encode(RecordingPart.create({ feed }));
    };
    this.#completeMessage();
    // A copy: the ring goes on while its reader waits.
    const newest = Buffer.concat(this.#open);
    const raws = [...this.#pieces.map((packed) => () => zstdDecompressSync(packed)), () => newest];
    for (const raw of raws) {
      for (const part of framesOf(raw())) {
        const scanned = scanPart(part);
        if (scanned === null) continue;
        if (scanned.field === Field.feed) {
          if (!isBegun) {
            const feed = ActorFeed.decode(scanned.value);
            if (feed.atMs < sinceMs) {
              states.apply(feed);
              continue;
            }
          }
          yield* begin();
          yield part;
          continue;
        }
        const told = this.#withProcess(part);
        const ms = told.line?.atMs ?? told.span?.endMs ?? 0;
        if (ms >= sinceMs) yield RecordingPart.encode(told);
      }
    }
    yield* begin();
  }

  /** A process is named when its feed begins, which lines may precede. */
  #withProcess(encoded: Uint8Array): RecordingPart {
    const { line, span } = RecordingPart.decode(encoded);
    const process = this.#process;
    return RecordingPart.create({
      line: line === null ? null : RecordedLine.patch(line, { process }),
      span: span === null ? null : RecordedSpan.patch(span, { process }),
    });
  }

  #completeMessage(): void {
    if (this.#steps.length === 0) return;
    const steps = this.#steps.encoded();
    const ended = [...this.#ended];
    this.#steps.truncate(noSteps);
    this.#stepBytes = 0;
    this.#ended.clear();
    this.#sequence += 1;
    const [process, hostname, sequence, atMs] = [this.#process, this.#hostname, this.#sequence, this.#lastMs];
    this.#add(() => {
      // In the order of the fields.
      const before = ActorFeed.encode(ActorFeed.create({ process, sequence, atMs }));
      const after = ActorFeed.encode(ActorFeed.create({ ended, hostname }));
      const tag = lengthDelimited(Field.feed, before.length + steps.length + after.length);
      return Buffer.concat([tag, before, steps, after]);
    });
  }

  /** `encode` returns a RecordingPart. RR3 */
  #add(encode: () => Uint8Array): void {
    try {
      const frame = framed(encode());
      this.#open.push(frame);
      this.#openBytes += frame.length;
      if (this.#openBytes >= this.#pieceBytes) this.#pack();
    } catch {
      // A log line about it would come here again.
    }
  }

  /** Compresses what has come so far: nothing more will. */
  end(): void {
    this.#completeMessage();
    if (this.#open.length > 0) this.#pack();
  }

  #pack(): void {
    const open = this.#open;
    // Taken out first: a piece that cannot be compressed is dropped, and not tried again with each line.
    this.#open = [];
    this.#openBytes = 0;
    const packed = zstdCompressSync(Buffer.concat(open), compression);
    this.#pieces.push(packed);
    this.#packedBytes += packed.length;
    this.#onPiece(packed.length);
    while (this.#packedBytes > this.bytesMax && this.#pieces.length > 1) this.dropOldest();
  }

  /** Drops the oldest compressed piece, if there is one. */
  dropOldest(): void {
    const [packed] = this.#pieces;
    if (packed === undefined) return;
    this.#pieces = this.#pieces.slice(1);
    this.#packedBytes -= packed.length;
    for (const part of framesOf(zstdDecompressSync(packed))) {
      const scanned = scanPart(part);
      if (scanned?.field === Field.feed) this.#base.apply(ActorFeed.decode(scanned.value));
    }
  }
}

function* framesOf(bytes: Buffer): Generator<Uint8Array> {
  for (let at = 0; at < bytes.length;) {
    const length = bytes.readUInt32BE(at);
    yield bytes.subarray(at + 4, at + 4 + length);
    at += 4 + length;
  }
}
