/**
 * The last minutes of a process in a few megabytes: steps of its actors, log lines and spans, in the order in which they came.
 * Full pieces are compressed. When the ring is full, the oldest piece is dropped, and the states that its steps lead to are kept,
 * so that what is left begins with a snapshot.
 *
 * RR1: the ring never asks the feed to wait or to drop anything.
 * RR2: a read gives a whole recording of the process: a snapshot, then every step since.
 * RR3: the ring never throws at those who add to it. It drops a part that it cannot keep; a missing feed message is a gap in the
 *     sequence numbers.
 */
import { zstdCompressSync, zstdDecompressSync } from "node:zlib";
import { scanPart } from "../../proto/feed-scan.ts";
import { ActorFeed, RecordedLine, RecordedSpan, RecordingPart } from "../../proto/gen/messages.ts";
import { ActorStates } from "./actor-states.ts";
import { framed } from "./seal.ts";

/**
 * Compressed bytes of a ring: ten minutes at 100 steps a second, hours of a small cluster. A state of each actor, about
 * 1 KiB in memory, comes on top.
 */
export const ringBytesMax = 4 * 1024 * 1024;
/** A piece of this size compresses to about a tenth, in a millisecond. */
const pieceBytes = 256 * 1024;

/** Fields of RecordingPart. */
const Field = { feed: 2, line: 4, span: 5 } as const;

export class RecordingRing {
  readonly bytesMax: number;
  #process = "";
  #pieces: Uint8Array[] = [];

  #packedBytes = 0;
  /** Framed parts of the newest piece. */
  #open: Buffer[] = [];
  #openBytes = 0;
  /** The states before the oldest piece. */
  readonly #base = new ActorStates();

  constructor(bytesMax: number = ringBytesMax) {
    this.bytesMax = bytesMax;
  }

  /** Bytes that are kept, without the states. */
  get bytes(): number {
    return this.#packedBytes + this.#openBytes;
  }

  /** RR1 */
  ready(): boolean {
    return true;
  }

  onFeed(feed: ActorFeed): void {
    this.#process = feed.process;
    this.#add(() => RecordingPart.create({ feed }));
  }

  addLine(line: Omit<RecordedLine, "process">): void {
    this.#add(() => RecordingPart.create({ line: RecordedLine.create(line) }));
  }

  addSpan(span: Omit<RecordedSpan, "process">): void {
    this.#add(() => RecordingPart.create({ span: RecordedSpan.create(span) }));
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

  /** RR3 */
  #add(create: () => RecordingPart): void {
    try {
      const frame = framed(RecordingPart.encode(create()));
      this.#open.push(frame);
      this.#openBytes += frame.length;
      if (this.#openBytes >= pieceBytes) this.#pack();
    } catch {
      // A log line about it would come here again.
    }
  }

  #pack(): void {
    const open = this.#open;
    // Taken out first: a piece that cannot be compressed is dropped, and not tried again with each line.
    this.#open = [];
    this.#openBytes = 0;
    const packed = zstdCompressSync(Buffer.concat(open));
    this.#pieces.push(packed);
    this.#packedBytes += packed.length;
    while (this.#packedBytes > this.bytesMax && this.#pieces.length > 1) this.#dropOldest();
  }

  #dropOldest(): void {
    const packed = this.#pieces[0] as Uint8Array;
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
