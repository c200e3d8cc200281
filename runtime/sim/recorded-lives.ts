/**
 * The rings of a simulation's processes, one for each life, with one limit for all: when it is reached, the oldest piece of any
 * ring is dropped, so that the rings reach back equally far. A life of which nothing is left is forgotten.
 */
import { RecordingRing } from "../recording/ring.ts";
import type { Logger } from "../ports/index.ts";
import type { ProcessClock } from "./clock.ts";

/**
 * Compressed bytes of all rings together. Each process has `pieceBytes` that are not compressed yet and a state of each actor
 * on top. It becomes some 600 MiB when it is read, where `muster replay` accepts 1 GiB.
 */
export const recordedBytesMax = 64 * 1024 * 1024;
/** Smaller than in real processes: a simulation has thousands of them in one. */
const pieceBytes = 32 * 1024;

/** One run of a process, as far as it is recorded. */
export interface RecordedLife {
  readonly name: string;
  readonly isManager: boolean;
  readonly clock: ProcessClock;
  readonly log: Logger;
  readonly ring: RecordingRing;
}

interface Piece {
  readonly ring: RecordingRing;
  readonly bytes: number;
  /** When it was complete, by the true clock. */
  readonly atMs: number;
}

export class RecordedLives {
  readonly #bytesMax: number;
  readonly #now: () => number;
  /** In the order of their starts. */
  #lives: RecordedLife[] = [];
  /** Oldest first; those before `#first` are dropped. */
  #pieces: Piece[] = [];
  #first = 0;
  #bytes = 0;
  /** Pieces of each ring. */
  readonly #counts = new Map<RecordingRing, number>();
  readonly #ended = new Set<RecordingRing>();
  #droppedUntilMs: number | null = null;

  constructor(now: () => number, bytesMax: number = recordedBytesMax) {
    this.#now = now;
    this.#bytesMax = bytesMax;
  }

  /** When the newest part that was dropped ended, by the true clock; null: nothing was. */
  get droppedUntilMs(): number | null {
    return this.#droppedUntilMs;
  }

  /** Lives of which something may be left, in the order of their starts. */
  get all(): readonly RecordedLife[] {
    return this.#lives;
  }

  /** A ring for a new life, to which `add` gives a name. */
  ring(): RecordingRing {
    const ring: RecordingRing = new RecordingRing(Number.MAX_SAFE_INTEGER, {
      pieceBytes,
      onPiece: (bytes) => this.#onPiece(ring, bytes),
    });
    return ring;
  }

  /** A life begins; the earlier one of the process is over. */
  add(life: RecordedLife): void {
    const before = this.#lives.findLast(({ name }) => name === life.name);
    this.#lives.push(life);
    if (before === undefined) return;
    before.ring.end();
    this.#ended.add(before.ring);
    this.#forget(before.ring);
  }

  #onPiece(ring: RecordingRing, bytes: number): void {
    this.#pieces.push({ ring, bytes, atMs: this.#now() });
    this.#counts.set(ring, (this.#counts.get(ring) ?? 0) + 1);
    this.#bytes += bytes;
    while (this.#bytes > this.#bytesMax) this.#dropOldest();
  }

  #dropOldest(): void {
    const { atMs, bytes, ring } = this.#pieces[this.#first] as Piece;
    this.#first += 1;
    if (this.#first > this.#pieces.length / 2) {
      this.#pieces = this.#pieces.slice(this.#first);
      this.#first = 0;
    }
    ring.dropOldest();
    this.#bytes -= bytes;
    this.#counts.set(ring, (this.#counts.get(ring) ?? 1) - 1);
    this.#droppedUntilMs = atMs;
    this.#forget(ring);
  }

  /** A life that is over, and of which nothing is left. */
  #forget(ring: RecordingRing): void {
    if (!this.#ended.has(ring) || (this.#counts.get(ring) ?? 0) > 0) return;
    this.#ended.delete(ring);
    this.#counts.delete(ring);
    this.#lives = this.#lives.filter((life) => life.ring !== ring);
  }
}
