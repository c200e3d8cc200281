/**
 * A stretch of the time line: its steps as columns of numbers, and what is not a number as bytes in one buffer. A segment starts
 * with a keyframe, the place where each live actor's state is found, so no moment needs more than one segment to be read through.
 */
/** Steps of one segment: reading through them takes under a millisecond, and a keyframe of 10,000 actors adds 4 bytes to each. */
const segmentStepsMax = 65_536;
/** Bytes after which a segment ends early, so that dropping the oldest frees memory in small parts. */
const segmentBytesMax = 8 * 1024 * 1024;
const bytesMin = 64 * 1024;
const columnsMin = 1_024;
/** A life in a keyframe or a mark: a pointer and its share of a table. */
const entryBytes = 64;
/** Bytes of one step in all columns. */
const columnBytes = 3 * 8 + 5 * 4 + 1;

export const Flag = { trouble: 1, copiedContext: 2 } as const;
/** No step of this segment has the context: the actor has none. */
export const noContext = 0xffff_ffff;

/** Where an actor's state is: after a step of a segment, or in a snapshot. */
export type Place =
  | { readonly kind: "step"; readonly segment: Segment; readonly at: number }
  | { readonly kind: "state"; readonly state: Uint8Array };

/** An actor from one start to its end. */
export interface Life {
  readonly process: string;
  readonly actor: string;
  readonly machine: string;
  /** 0: unknown. */
  readonly startedAtMs: number;
  /** Where its newest state is. */
  place: Place | null;
  /** Its newest states, as `StepScan.states`; null: unknown. */
  states: string | null;
  sinceMs: number;
  /** Number and time of its newest step. */
  steps: number;
  stepMs: number;
  /** Its newest context, encoded with its tag, if no step has it. */
  toldContext: Uint8Array | null;
  /** The step that has its newest context, in this segment; null: no step. */
  contextSegment: Segment | null;
  contextStep: number;
  /** Memory of all that, without what is a segment's. */
  bytes: number;
}

export function createLife(fields: Pick<Life, "process" | "actor" | "machine" | "startedAtMs">): Life {
  return {
    ...fields,
    place: null,
    states: null,
    sinceMs: 0,
    steps: 0,
    stepMs: 0,
    toldContext: null,
    contextSegment: null,
    contextStep: 0,
    bytes: 0,
  };
}

/** Facts about a process: its hostname, and why it cannot be watched; empty if it can be. */
export interface KnownProcess {
  readonly hostname: string;
  readonly lost: string;
}

/** An event between two steps. */
export type Mark =
  | {
      readonly kind: "state";
      readonly atMs: number;
      readonly after: number;
      readonly life: Life;
      readonly state: Uint8Array;
    }
  | { readonly kind: "gone"; readonly atMs: number; readonly after: number; readonly life: Life }
  | {
      readonly kind: "process";
      readonly atMs: number;
      readonly after: number;
      readonly process: string;
      readonly known: KnownProcess;
    };

interface SegmentStep {
  readonly timeMs: number;
  /** The step's own time; `timeMs` is the same, but never decreases. */
  readonly atMs: number;
  readonly sinceMs: number;
  readonly life: Life;
  readonly number: number;
  readonly shape: number;
  readonly traceHash: number;
  readonly flags: number;
}

export class Segment {
  /** Number of the step before this segment's first. */
  readonly before: number;
  /** The place of each live actor at the beginning. */
  readonly keyframe: Map<Life, Place>;
  readonly processes: ReadonlyMap<string, KnownProcess>;
  readonly fromMs: number;
  readonly marks: Mark[] = [];
  /** By position: hashes of the traces to which the step is linked, as `traceHash`. */
  readonly links = new Map<number, Uint32Array>();
  /** Of the steps. */
  readonly lives: Life[] = [];
  length = 0;
  timeMs = new Float64Array(columnsMin);
  sinceMs = new Float64Array(columnsMin);
  atMs = new Float64Array(columnsMin);
  number = new Uint32Array(columnsMin);
  shape = new Uint32Array(columnsMin);
  traceHash = new Uint32Array(columnsMin);
  context = new Uint32Array(columnsMin);
  offset = new Uint32Array(columnsMin);
  flags = new Uint8Array(columnsMin);
  #bytes = new Uint8Array(bytesMin);
  #used = 0;
  #markBytes = 0;
  #keyframeBytes = 0;

  constructor(
    before: number,
    fromMs: number,
    keyframe: Map<Life, Place>,
    processes: ReadonlyMap<string, KnownProcess>,
  ) {
    this.before = before;
    this.fromMs = fromMs;
    this.keyframe = keyframe;
    this.processes = processes;
  }

  get isFull(): boolean {
    return this.length >= segmentStepsMax || this.#used + this.#markBytes >= segmentBytesMax;
  }

  /** Estimated memory. */
  get memoryBytes(): number {
    const pointerBytes = 8;
    return (
      this.timeMs.length * (columnBytes + pointerBytes) +
      this.#bytes.length +
      this.#markBytes +
      this.#keyframeBytes +
      this.keyframe.size * entryBytes
    );
  }

  /** Counts the states of the keyframe as its memory; those that an earlier segment's keyframe shares count there. */
  holdKeyframe(earlier?: ReadonlyMap<Life, Place>): void {
    this.#keyframeBytes = 0;
    for (const [life, place] of this.keyframe)
      if (place.kind === "state" && earlier?.get(life) !== place) this.#keyframeBytes += place.state.length;
  }

  /** Adds a step whose own bytes follow (`write`). `context`: the step that has its context. Returns its position. */
  append(step: SegmentStep, context: number): number {
    const at = this.length;
    if (at === this.timeMs.length) this.#growColumns(at * 2);
    this.timeMs[at] = step.timeMs;
    this.sinceMs[at] = step.sinceMs;
    this.atMs[at] = step.atMs;
    this.number[at] = step.number;
    this.shape[at] = step.shape;
    this.traceHash[at] = step.traceHash;
    this.context[at] = context;
    this.offset[at] = this.#used;
    this.flags[at] = step.flags;
    this.lives.push(step.life);
    this.length += 1;
    return at;
  }

  /** Adds bytes to those of the newest step. */
  write(bytes: Uint8Array, from = 0, to = bytes.length): void {
    this.#reserve(to - from);
    const [target, used] = [this.#bytes, this.#used];
    // Dozens of bytes: a view for `set` would cost more.
    for (let at = from; at < to; at += 1) target[used + at - from] = bytes[at] as number;
    this.#used = used + to - from;
  }

  /** Links the newest step to these traces. */
  link(hashes: readonly number[]): void {
    this.links.set(this.length - 1, Uint32Array.from(hashes));
    this.#markBytes += 2 * entryBytes + hashes.length * 4;
  }

  /** Whether the step belongs, as far as hashes tell, to the trace or is linked to it. */
  isOfTrace(at: number, hash: number): boolean {
    return this.traceHash[at] === hash || this.links.get(at)?.includes(hash) === true;
  }

  mark(mark: Mark): void {
    this.marks.push(mark);
    this.#markBytes += entryBytes;
    if (mark.kind === "state") this.#markBytes += mark.state.length;
    // An actor that has ended is kept until the segment of its end is dropped.
    if (mark.kind === "gone") this.#markBytes += mark.life.bytes;
  }

  /** The bytes that belong to the step alone. */
  own(at: number): Uint8Array {
    const to = at + 1 < this.length ? (this.offset[at + 1] as number) : this.#used;
    return this.#bytes.subarray(this.offset[at], to);
  }

  /** Number of steps up to and including `ms`. */
  stepsUntil(ms: number): number {
    let [low, high] = [0, this.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.timeMs[middle] as number) <= ms) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Gives back what was reserved for further steps. */
  close(): void {
    if (this.timeMs.length > this.length) this.#growColumns(this.length);
    this.#bytes = this.#bytes.slice(0, this.#used);
  }

  #reserve(bytes: number): void {
    const needed = this.#used + bytes;
    if (needed <= this.#bytes.length) return;
    const larger = new Uint8Array(Math.max(needed, this.#bytes.length * 2));
    larger.set(this.#bytes.subarray(0, this.#used));
    this.#bytes = larger;
  }

  #growColumns(length: number): void {
    const resized = <Column extends Float64Array | Uint32Array | Uint8Array>(column: Column, fresh: Column): Column => {
      fresh.set(column.subarray(0, length));
      return fresh;
    };
    this.timeMs = resized(this.timeMs, new Float64Array(length));
    this.sinceMs = resized(this.sinceMs, new Float64Array(length));
    this.atMs = resized(this.atMs, new Float64Array(length));
    this.number = resized(this.number, new Uint32Array(length));
    this.shape = resized(this.shape, new Uint32Array(length));
    this.traceHash = resized(this.traceHash, new Uint32Array(length));
    this.context = resized(this.context, new Uint32Array(length));
    this.offset = resized(this.offset, new Uint32Array(length));
    this.flags = resized(this.flags, new Uint8Array(length));
  }
}
