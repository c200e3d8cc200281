/**
 * Reads what a task has written: first the existing output, in time order as far as known, then new output. The collector
 * writes the files; this polls them while it follows.
 *
 * OR1: every byte of each file is returned once, in order, across a rotation; only output that was rotated away twice between
 *      two polls is lost.
 * OR2: a line without an end is held until it has one, or until nothing more can come.
 * OR3: at most `helpingBytes` of each file are in memory.
 */
import { open, readFile, stat, type FileHandle } from "node:fs/promises";
import { join } from "node:path";
import type { OutputLine, OutputPosition, OutputReader, OutputRequest } from "../../actors/agent/ports.ts";
import type { Clock } from "../../runtime/ports/index.ts";
import { OutputMarks } from "./output-marks.ts";

/** Maximum size of a read, and of a line that is returned as one. */
const helpingBytes = 64 * 1024;
/** Delay between two polls of followed files: soon enough for a person, and 20 stats a second per task. */
const followLookMs = 100;
const newline = 10;
const nothing = Buffer.alloc(0);

type StreamName = OutputLine["stream"];

/** A part of a file that can be read. */
interface Segment {
  readonly handle: FileHandle;
  readonly from: number;
  readonly to: number;
  readonly marks: OutputMarks;
  /** Part of the current file. */
  readonly isPresent: boolean;
}

/** One of the two files, with its rotated predecessor. */
class OutputFile {
  readonly name: StreamName;
  readonly #path: string;
  readonly #clock: Clock;
  /** Kept open, so that the contents remain readable after the task's directory is removed. */
  #main: FileHandle | null = null;
  #old: FileHandle | null = null;
  /** Inode of the marks (O2) of the file read last; null before the first poll. */
  #generation: number | null;
  #offset: number;

  constructor(directory: string, name: StreamName, clock: Clock, from: OutputPosition | null) {
    this.name = name;
    this.#path = join(directory, name);
    this.#clock = clock;
    this.#generation = from?.[`${name}.generation`] ?? null;
    this.#offset = from?.[`${name}.offset`] ?? 0;
  }

  position(): OutputPosition {
    return this.#generation === null
      ? {}
      : { [`${this.name}.generation`]: this.#generation, [`${this.name}.offset`]: this.#offset };
  }

  /** The unread parts. A segment of the rotated file is the whole rest of it. */
  async unread(): Promise<readonly Segment[]> {
    this.#main ??= await opened(this.#path);
    if (this.#main === null) return [];
    const [generation, oldGeneration] = [await inode(`${this.#path}.marks`), await inode(`${this.#path}.1.marks`)];
    const { mtimeMs, size } = await this.#main.stat();
    if (generation === null || generation === this.#generation) {
      // Smaller than what was read: it is being rotated, which the next poll will see.
      if (size <= this.#offset) return [];
      this.#generation ??= 0;
      const marks = await this.#marks("", mtimeMs, size);
      return [{ handle: this.#main, from: this.#offset, to: size, marks, isPresent: true }];
    }
    const segments: Segment[] = [];
    const isFirst = this.#generation === null;
    if (oldGeneration !== null && (isFirst || oldGeneration === this.#generation)) {
      await this.#old?.close();
      this.#old = await opened(`${this.#path}.1`);
      const old = await this.#old?.stat();
      if (this.#old !== null && old !== undefined && old.size > this.#offset) {
        const marks = await this.#marks(".1", old.mtimeMs, old.size);
        segments.push({ handle: this.#old, from: this.#offset, to: old.size, marks, isPresent: false });
      }
    }
    this.#generation = generation;
    this.#offset = 0;
    const marks = await this.#marks("", mtimeMs, size);
    segments.push({ handle: this.#main, from: 0, to: size, marks, isPresent: true });
    return segments;
  }

  /** Everything before `offset` of the current file was returned. */
  readTo(offset: number): void {
    this.#offset = offset;
  }

  async close(): Promise<void> {
    const handles = [this.#main, this.#old];
    this.#main = this.#old = null;
    for (const handle of handles) await handle?.close();
  }

  async #marks(suffix: string, mtimeMs: number, size: number): Promise<OutputMarks> {
    const text = await readFile(`${this.#path}${suffix}.marks`, "latin1").catch(() => "");
    return new OutputMarks(text, Math.min(mtimeMs, this.#clock.now()), size);
  }
}

interface Line extends OutputLine {
  /** Latest time at which it can have been written. */
  readonly latestMs: number;
  /** Its end, if it is in the current file. */
  readonly end: number | null;
}

/** The lines of consecutive segments. */
class Lines {
  readonly #name: StreamName;
  readonly #segments: readonly Segment[];
  /** Whether to return a last line that has no end yet. */
  readonly #isWhole: boolean;
  #segment = 0;
  #at: number;
  #chunk: Buffer = nothing;
  /** A line that continues in the next segment. */
  #carry: Buffer = nothing;
  /** The next line; null if there is none. */
  line: Line | null = null;

  constructor(name: StreamName, segments: readonly Segment[], isWhole: boolean) {
    this.#name = name;
    this.#segments = segments;
    this.#isWhole = isWhole;
    this.#at = segments[0]?.from ?? 0;
  }

  async advance(): Promise<void> {
    this.line = null;
    for (;;) {
      const segment = this.#segments[this.#segment];
      if (segment === undefined) return;
      const end = this.#chunk.indexOf(newline);
      if (end >= 0) return this.#hand(segment, end + 1);
      if (this.#chunk.length >= helpingBytes) return this.#hand(segment, this.#chunk.length);
      if (await this.#fill(segment)) continue;
      const isLast = this.#segment === this.#segments.length - 1;
      if (isLast) {
        if (this.#isWhole && this.#chunk.length + this.#carry.length > 0) this.#hand(segment, this.#chunk.length);
        return;
      }
      this.#carry = Buffer.concat([this.#carry, this.#chunk]);
      this.#chunk = nothing;
      this.#segment += 1;
      this.#at = this.#segments[this.#segment]?.from ?? 0;
    }
  }

  #hand(segment: Segment, length: number): void {
    const own = this.#chunk.subarray(0, length);
    const data = this.#carry.length === 0 ? own : Buffer.concat([this.#carry, own]);
    this.#carry = nothing;
    const { marks } = segment;
    this.line = {
      stream: this.#name,
      data,
      atMs: marks.timeOf(this.#at + length),
      latestMs: marks.latestOf(this.#at + length),
      end: segment.isPresent ? this.#at + length : null,
    };
    this.#at += length;
    this.#chunk = this.#chunk.subarray(length);
  }

  /** False if the segment is exhausted. OR3 */
  async #fill({ handle, to }: Segment): Promise<boolean> {
    const from = this.#at + this.#chunk.length;
    const length = Math.min(helpingBytes, to - from);
    if (length <= 0) return false;
    const { buffer, bytesRead } = await handle.read(Buffer.allocUnsafe(length), 0, length, from);
    if (bytesRead === 0) return false;
    const read = buffer.subarray(0, bytesRead);
    this.#chunk = this.#chunk.length === 0 ? read : Buffer.concat([this.#chunk, read]);
    return true;
  }
}

export class OutputFiles implements OutputReader {
  readonly #files: readonly OutputFile[];
  readonly #request: OutputRequest;
  readonly #clock: Clock;
  readonly #helpings: AsyncGenerator<readonly OutputLine[], void>;
  #follows: boolean;
  #isClosed = false;
  #wake: (() => void) | null = null;

  constructor(directory: string, request: OutputRequest, clock: Clock) {
    const names: StreamName[] = [];
    if (request.stdout) names.push("stdout");
    if (request.stderr) names.push("stderr");
    this.#files = names.map((name) => new OutputFile(directory, name, clock, request.from));
    this.#request = request;
    this.#clock = clock;
    this.#follows = request.follow;
    this.#helpings = this.#read();
  }

  async next(): Promise<readonly OutputLine[] | null> {
    const { done, value } = await this.#helpings.next();
    return done === true ? null : value;
  }

  position(): OutputPosition {
    return Object.assign({}, ...this.#files.map((file) => file.position())) as OutputPosition;
  }

  stopFollowing(): void {
    this.#follows = false;
    this.#wake?.();
  }

  close(): void {
    this.#isClosed = true;
    this.#wake?.();
    void this.#helpings.return();
  }

  async *#read(): AsyncGenerator<readonly OutputLine[], void> {
    try {
      let isFirst = true;
      while (!this.#isClosed) {
        // Checked before the poll, so that the output of an ended task is then complete.
        const isLast = !this.#follows || this.#request.isOver();
        const found: { file: OutputFile; segments: readonly Segment[] }[] = [];
        for (const file of this.#files) found.push({ file, segments: await file.unread() });
        const isOld = isFirst && this.#request.from === null;
        yield* this.#merged(found, isOld, isLast);
        isFirst = false;
        if (isLast) return;
        await this.#pause();
      }
    } finally {
      for (const file of this.#files) await file.close();
    }
  }

  async *#merged(
    found: readonly { readonly file: OutputFile; readonly segments: readonly Segment[] }[],
    isOld: boolean,
    isLast: boolean,
  ): AsyncGenerator<readonly OutputLine[], void> {
    const { sinceMs, tail } = this.#request;
    let skipped = 0;
    const cursors: { readonly file: OutputFile; readonly lines: Lines }[] = [];
    for (const { file, segments } of found) {
      const last = isOld && tail !== null ? await lastLines(segments, tail) : { segments, count: 0 };
      skipped += last.count;
      // Everything before the tail counts as read.
      const present = last.segments.at(-1);
      if (present?.isPresent === true) file.readTo(present.from);
      const lines = new Lines(file.name, last.segments, isLast);
      await lines.advance();
      cursors.push({ file, lines });
    }
    skipped = isOld && tail !== null ? Math.max(0, skipped - tail) : 0;
    let helping: OutputLine[] = [];
    let bytes = 0;
    while (!this.#isClosed) {
      const next = earliest(cursors);
      if (next === null) break;
      const line = next.lines.line as Line;
      if (line.end !== null) next.file.readTo(line.end);
      await next.lines.advance();
      if (skipped > 0) skipped -= 1;
      else if (!isOld || line.latestMs >= sinceMs) {
        const { data, stream } = line;
        helping.push({ stream, data, atMs: line.atMs });
        bytes += data.length;
      }
      if (bytes < helpingBytes) continue;
      yield helping;
      helping = [];
      bytes = 0;
    }
    if (helping.length > 0) yield helping;
  }

  #pause(): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        this.#wake = null;
        this.#clock.clearTimeout(timer);
        resolve();
      };
      const timer = this.#clock.setTimeout(done, followLookMs);
      this.#wake = done;
    });
  }
}

function earliest<Cursor extends { readonly lines: Lines }>(cursors: readonly Cursor[]): Cursor | null {
  let first: Cursor | null = null;
  for (const cursor of cursors) {
    if (cursor.lines.line === null) continue;
    if (first === null || cursor.lines.line.atMs < (first.lines.line?.atMs ?? 0)) first = cursor;
  }
  return first;
}

/** The segments reduced to their last `count` lines, and the number of lines in them. */
async function lastLines(
  segments: readonly Segment[],
  count: number,
): Promise<{ readonly segments: readonly Segment[]; readonly count: number }> {
  if (count === 0) return { segments: segments.slice(-1).map((each) => ({ ...each, from: each.to })), count: 0 };
  const kept: Segment[] = [];
  let ends = 0;
  let isAtEnd = true;
  for (const segment of segments.toReversed()) {
    for (let to = segment.to; to > segment.from;) {
      const from = Math.max(segment.from, to - helpingBytes);
      const { buffer, bytesRead } = await segment.handle.read(Buffer.allocUnsafe(to - from), 0, to - from, from);
      for (let at = bytesRead - 1; at >= 0; at -= 1) {
        const isEnd = buffer[at] === newline;
        // A last line without an end counts too.
        if (isAtEnd && !isEnd) ends += 1;
        isAtEnd = false;
        if (!isEnd) continue;
        if (ends === count) return { segments: [{ ...segment, from: from + at + 1 }, ...kept], count };
        ends += 1;
      }
      to = from;
    }
    kept.unshift(segment);
  }
  return { segments: kept, count: ends };
}

async function opened(path: string): Promise<FileHandle | null> {
  try {
    return await open(path, "r");
  } catch {
    return null; // not created yet, or removed with its task
  }
}

async function inode(path: string): Promise<number | null> {
  try {
    return (await stat(path)).ino;
  } catch {
    return null;
  }
}
