/**
 * The past of the feed: every step of every actor, and the actors as they were at any moment. Feeds are appended; the oldest
 * segment is dropped when the memory is used up. Steps stay encoded, and what many share is kept once (`shapes.ts`): a million
 * steps are a few large buffers, not a million objects.
 *
 * T1: steps are numbered from 1 without gaps, in the order of their times as far as `holdMs` allows; a number never changes.
 * T2: a step that is appended twice counts once, so recordings and a live feed may overlap.
 * T3: steps that are not known leave a gap, never a silent hole: a sequence number is missing, the feed says that it dropped some,
 *     or a snapshot shows actors that have moved on.
 * T4: nothing that a process sends grows the index beyond its memory, or moves the times of the others: its actors are counted and
 *     weighed, and its times are taken as far as they can be true (`bounds`).
 */
import { encodedStateIdentity, movedContext, movedFields } from "../../proto/feed-state.ts";
import { encodedIdentity, scanFeed, StepScan, timeOfStep, type Range } from "../../proto/feed-scan.ts";
import {
  ActorFeed,
  ActorSnapshot,
  ActorState,
  ActorStatus,
  ActorStep,
  type RecordedSpan,
} from "../../proto/gen/messages.ts";
import { Gaps } from "./gaps.ts";
import { createLife, Flag, noContext, Segment, type KnownProcess, type Life, type Place } from "./segment.ts";
import { ownShape, Shapes } from "./shapes.ts";
import { Held } from "./held.ts";
import { KeptSpans } from "./kept-spans.ts";

/** In milliseconds since the epoch. */
export interface TimeBounds {
  readonly fromMs: number;
  readonly toMs: number;
}

export const everyTime: TimeBounds = { fromMs: Number.NEGATIVE_INFINITY, toMs: Number.POSITIVE_INFINITY };

interface TimelineIndexOptions {
  /** Memory in bytes, above which the oldest steps are dropped. */
  readonly bytesMax: number;
  /**
   * Milliseconds for which steps wait for earlier ones of other processes. 0 for a file, whose steps are sorted.
   */
  readonly holdMs: number;
  /** True for a recorded file. */
  readonly isRecording: boolean;
  /** Limits of all times, asked for each message: earlier or later ones are taken for the nearest. T4. Unset: none. */
  readonly bounds?: () => TimeBounds;
  /** By default `liveActorsMax`. */
  readonly actorsMax?: number;
}

/**
 * Live actors of one process: a manager of 10,000 nodes has some 30,000. Beyond it, or when those of the process take half of the
 * index's memory, a new actor is not shown, and its steps are a gap. T4
 */
const liveActorsMax = 100_000;

const none = new Uint8Array();

/** Milliseconds by which a recording may overlap with a live feed; an older snapshot is that of a clock that was set back. */
const overlapMsMax = 60_000;

/** A live actor's entries in tables, without its texts. */
const lifeBytes = 400;

interface Process {
  readonly name: string;
  /** Memory of its live actors, as far as it is not a segment's. */
  bytes: number;
  readonly alive: Map<string, Life>;
  known: KnownProcess | null;
  sequence: number;
  seenMs: number;
  /** No item of a process is ordered before one that it sent earlier. */
  itemMs: number;
  /** During a snapshot: the actors that it has listed so far. */
  listed: Set<Life> | null;
  /** The snapshot that has begun is older than what is known: a recording has told what came after it (T2). */
  isRepeated: boolean;
  /** Messages were lost before the snapshot that has begun, since this time; a gap if the actors have moved on. */
  lostSinceMs: number | null;
}

export class TimelineIndex {
  readonly isRecording: boolean;
  readonly gaps = new Gaps();
  readonly spans = new KeptSpans();
  readonly segments: Segment[] = [];
  readonly #bytesMax: number;
  readonly #held: Held;
  readonly #processes = new Map<string, Process>();
  readonly #shapes = new Shapes();
  readonly #scan = new StepScan();
  readonly #bounds: NonNullable<TimelineIndexOptions["bounds"]>;
  readonly #actorsMax: number;
  #closedBytes = 0;
  /** Of all processes. */
  #liveBytes = 0;
  #timeMs = 0;
  #fromMs = 0;

  constructor({ bytesMax, holdMs, isRecording, bounds, actorsMax = liveActorsMax }: TimelineIndexOptions) {
    this.#bytesMax = bytesMax;
    this.#actorsMax = actorsMax;
    this.#bounds = bounds ?? (() => everyTime);
    this.#held = new Held(holdMs);
    this.isRecording = isRecording;
  }

  /** Limits of the known range, in milliseconds since the epoch; 0 and 0 if nothing is known. */
  get fromMs(): number {
    return this.#fromMs;
  }

  get toMs(): number {
    return this.#timeMs;
  }

  /** Whether all steps up to a moment are here, as far as messages tell: none of them waits for others. */
  isSettled(ms: number): boolean {
    return this.#timeMs >= ms && this.#held.oldestMs > ms;
  }

  get stepsTotal(): number {
    const [first, last] = [this.segments[0], this.segments.at(-1)];
    return first === undefined || last === undefined ? 0 : last.before + last.length - first.before;
  }

  get processes(): readonly string[] {
    return [...this.#processes.keys()].toSorted();
  }

  /** Estimated memory of everything that is kept. */
  get memoryBytes(): number {
    const open = this.segments.at(-1)?.memoryBytes ?? 0;
    return this.#closedBytes + open + this.#liveBytes + this.#shapes.memoryBytes + this.spans.memoryBytes;
  }

  append(feed: ActorFeed): void {
    this.appendEncoded(ActorFeed.encode(feed));
  }

  /** Of an ActorFeed. Throws on malformed bytes. */
  appendEncoded(bytes: Uint8Array): void {
    const feed = scanFeed(bytes);
    const process = this.#processOf(feed.process);
    const { fromMs, toMs } = this.#bounds();
    const possible = (ms: number): number => Math.min(Math.max(ms, fromMs), toMs);
    const order = (ms: number, apply: () => void): void => {
      process.itemMs = Math.max(process.itemMs, ms);
      this.#held.add(process.itemMs, apply);
    };
    const { sequence, hostname, snapshot, droppedSteps, lost } = feed;
    const atMs = possible(feed.atMs);
    const first = snapshot === null ? null : ActorSnapshot.decode(bytes.subarray(snapshot.from, snapshot.to));
    if (snapshot !== null || droppedSteps > 0 || process.sequence + 1 !== sequence) {
      const isGap = process.sequence + 1 !== sequence;
      order(process.itemMs, () => {
        if (droppedSteps > 0 || (isGap && first?.begins !== true)) this.#gap(process, atMs);
        if (first !== null) this.#takeSnapshot(process, first, { isGap, atMs, hostname });
      });
    }
    process.sequence = sequence;
    for (const range of feed.steps) {
      const stepMs = possible(timeOfStep(bytes, range));
      order(stepMs, () => this.#takeStep(process, bytes, range, stepMs));
    }
    order(atMs, () => {
      for (const actor of feed.ended) this.#end(process, actor, atMs);
      if (lost !== "") this.#lose(process, { hostname, lost }, atMs);
      process.seenMs = Math.max(process.seenMs, atMs);
      this.#advance(atMs);
    });
    this.#held.release(toMs);
  }

  appendSpan(span: RecordedSpan): void {
    this.spans.add(span);
  }

  /** Appends what still waits for earlier steps. */
  settle(): void {
    this.#held.releaseAll();
  }

  /** The step with its fields as they were appended. */
  stepAt(segment: Segment, at: number): ActorStep {
    const step = ActorStep.decode(this.#encodedStep(segment, at));
    const isCopied = ((segment.flags[at] as number) & Flag.copiedContext) !== 0;
    return isCopied ? ActorStep.patch(step, { context: "" }) : step;
  }

  /** An actor's state at a place, an encoded ActorState. */
  stateAt({ actor, machine, startedAtMs }: Life, place: Place): Uint8Array {
    if (place.kind === "state") return place.state;
    const { segment, at } = place;
    const context = segment.context[at] as number;
    const sinceMs = segment.sinceMs[at] as number;
    return Buffer.concat([
      encodedStateIdentity({ actor, machine, startedAtMs, sinceMs, steps: segment.number[at] as number }),
      this.#shapes.ofState(segment.shape[at] as number),
      movedFields(segment.own(at)),
      context === noContext ? none : movedContext(segment.own(context)),
    ]);
  }

  #encodedStep(segment: Segment, at: number): Uint8Array {
    const life = segment.lives[at] as Life;
    return Buffer.concat([
      encodedIdentity(life.actor, life.machine, segment.number[at] as number, segment.atMs[at] as number),
      this.#shapes.bytesOf(segment.shape[at] as number) ?? none,
      segment.own(at),
    ]);
  }

  #processOf(name: string): Process {
    let process = this.#processes.get(name);
    if (process === undefined) {
      process = {
        name,
        bytes: 0,
        alive: new Map(),
        known: null,
        sequence: 0,
        seenMs: 0,
        itemMs: 0,
        listed: null,
        isRepeated: false,
        lostSinceMs: null,
      };
      this.#processes.set(name, process);
    }
    return process;
  }

  /** The time of the next item: never before that of an earlier one. */
  #advance(ms: number): number {
    this.#timeMs = Math.max(this.#timeMs, ms);
    return this.#timeMs;
  }

  #segment(): Segment {
    const newest = this.segments.at(-1);
    if (newest !== undefined && !newest.isFull) return newest;
    const keyframe = new Map<Life, Place>();
    const known = new Map<string, KnownProcess>();
    for (const process of this.#processes.values()) {
      if (process.known !== null) known.set(process.name, process.known);
      for (const life of process.alive.values()) if (life.place !== null) keyframe.set(life, life.place);
    }
    if (newest === undefined) this.#fromMs = this.#timeMs;
    else {
      newest.close();
      this.#closedBytes += newest.memoryBytes;
    }
    const segment = new Segment((newest?.before ?? 0) + (newest?.length ?? 0), this.#timeMs, keyframe, known);
    segment.holdKeyframe(newest?.keyframe);
    this.segments.push(segment);
    while (this.segments.length > 1 && this.memoryBytes > this.#bytesMax) this.#dropOldest();
    return this.segments.at(-1) as Segment;
  }

  /** States that are found in the segment are told to the segments after it. */
  #dropOldest(): void {
    const dropped = this.segments.shift() as Segment;
    const oldest = this.segments[0] as Segment;
    this.#closedBytes -= dropped.memoryBytes;
    if (this.segments.length > 1) this.#closedBytes -= oldest.memoryBytes;
    const told = new Map<Life, Place>();
    const moved = (life: Life, place: Place): Place => {
      if (place.kind === "state" || place.segment !== dropped) return place;
      const state: Place = told.get(life) ?? { kind: "state", state: this.stateAt(life, place) };
      told.set(life, state);
      return state;
    };
    for (const { keyframe } of this.segments)
      for (const [life, place] of keyframe) if (place.kind === "step") keyframe.set(life, moved(life, place));
    oldest.holdKeyframe();
    if (this.segments.length > 1) this.#closedBytes += oldest.memoryBytes;
    const heavy: (readonly [Process, Life])[] = [];
    for (const process of this.#processes.values())
      for (const life of process.alive.values()) {
        if (life.place !== null) life.place = moved(life, life.place);
        if (life.contextSegment === dropped) {
          life.toldContext = this.#contextIn(dropped, life.contextStep);
          life.contextSegment = null;
        }
        this.#weigh(process, life);
        if (this.#roomOf(process) < 0) heavy.push([process, life]);
      }
    this.#fromMs = oldest.fromMs;
    this.gaps.forgetBefore(this.#fromMs);
    // T4: their states were part of the segment until now.
    for (const [process, life] of heavy) {
      if (this.#roomOf(process) >= 0) continue;
      this.#gap(process, this.#timeMs);
      this.#end(process, life.actor, this.#timeMs);
    }
  }

  /** T3 */
  #gap(process: Process, toMs: number): void {
    if (process.seenMs > 0) this.gaps.add(process.name, process.seenMs, toMs);
  }

  #takeSnapshot(
    process: Process,
    { begins, ends, actors }: ActorSnapshot,
    { isGap, atMs, hostname }: { readonly isGap: boolean; readonly atMs: number; readonly hostname: string },
  ): void {
    if (begins) {
      const overlapMs = process.seenMs - atMs;
      process.isRepeated = process.known?.lost === "" && overlapMs > 0 && overlapMs <= overlapMsMax;
    }
    if (process.isRepeated) return;
    const timeMs = this.#advance(atMs);
    if (begins) {
      process.listed = new Set();
      process.lostSinceMs = isGap && process.known !== null && process.known.lost === "" ? process.seenMs : null;
    }
    if (process.known === null || process.known.lost !== "" || process.known.hostname !== hostname) {
      process.known = { hostname, lost: "" };
      this.#tellProcess(process, process.known);
      this.gaps.close(process.name, atMs);
    }
    for (const state of actors) {
      const life = this.#takeState(process, state, timeMs);
      if (life !== null) process.listed?.add(life);
    }
    if (!ends || process.listed === null) return;
    for (const life of process.alive.values()) {
      if (process.listed.has(life)) continue;
      this.#movedOn(process, atMs);
      this.#end(process, life.actor, atMs);
    }
    process.listed = null;
    process.lostSinceMs = null;
  }

  /** After lost messages, the actors are not as they were. */
  #movedOn(process: Process, atMs: number): void {
    if (process.lostSinceMs === null) return;
    this.gaps.add(process.name, process.lostSinceMs, atMs);
    process.lostSinceMs = null;
  }

  /** The life that is in this state; null: it is not shown (T4). */
  #takeState(process: Process, state: ActorState, timeMs: number): Life | null {
    let life = process.alive.get(state.actor) ?? null;
    const isSame =
      life !== null &&
      life.machine === state.machine &&
      (life.startedAtMs === 0 || state.startedAtMs === 0 || life.startedAtMs === state.startedAtMs);
    // A repeated snapshot adds nothing, and neither does an old one (T2).
    if (life !== null && isSame && life.place !== null && life.steps >= state.steps) return life;
    this.#movedOn(process, timeMs);
    const encoded = ActorState.encode(state);
    if (life === null || !isSame || encoded.length > this.#roomOf(process)) {
      life = this.#begin(process, state, encoded.length, timeMs);
      if (life === null) return null;
    }
    const segment = this.#segment();
    if (process.alive.get(state.actor) !== life) return null;
    segment.mark({ kind: "state", atMs: timeMs, after: segment.length, life, state: encoded });
    life.place = { kind: "state", state: encoded };
    life.states = StepScan.statesOf(state.states);
    life.sinceMs = state.sinceMs;
    life.steps = state.steps;
    life.stepMs = state.sinceMs;
    life.toldContext = state.context === "" ? null : ActorStep.encode(ActorStep.create({ context: state.context }));
    life.contextSegment = null;
    this.#weigh(process, life);
    return life;
  }

  /** `ms`: its time, within the bounds. */
  #takeStep(process: Process, bytes: Uint8Array, range: Range, ms: number): void {
    const scan = this.#scan;
    scan.scan(bytes, range);
    const { number, atMs, shape } = scan;
    const life = this.#lifeOf(process, scan, bytes, ms);
    if (life === null) return;
    process.listed?.add(life);
    const timeMs = this.#advance(ms);
    if (scan.skipped > 0) this.#gap(process, ms);
    if (life.states !== scan.states) {
      life.states = scan.states;
      life.sinceMs = atMs;
    }
    const segment = this.#segment();
    if (process.alive.get(life.actor) !== life) return;
    const copied = scan.hasContext ? null : this.#contextFor(life, segment);
    if (scan.hasContext || copied !== null) {
      life.toldContext = null;
      life.contextSegment = segment;
      life.contextStep = segment.length;
    }
    const isTrouble = scan.isUnexpected || scan.status === ActorStatus.ACTOR_FAILED;
    const shapeNumber = this.#shapes.numberOf(shape);
    const at = segment.append(
      {
        timeMs,
        atMs,
        sinceMs: life.sinceMs,
        life,
        number,
        shape: shapeNumber ?? ownShape,
        traceHash: scan.traceHash,
        flags: (isTrouble ? Flag.trouble : 0) | (copied === null ? 0 : Flag.copiedContext),
      },
      life.contextSegment === segment ? life.contextStep : noContext,
    );
    if (scan.linkedHashes !== null) segment.link(scan.linkedHashes);
    if (shapeNumber === null) segment.write(Buffer.from(shape, "latin1"));
    for (let own = 0; own < scan.ownOffsets; own += 2) segment.write(bytes, scan.own[own], scan.own[own + 1]);
    if (copied !== null) segment.write(copied);
    life.place = { kind: "step", segment, at };
    life.steps = number;
    life.stepMs = atMs;
    process.seenMs = Math.max(process.seenMs, ms);
    this.#weigh(process, life);
  }

  /** The life that takes the step; null if the step is known already (T2), or its actor is not shown (T4). */
  #lifeOf(process: Process, { actor, number, atMs }: StepScan, bytes: Uint8Array, ms: number): Life | null {
    const known = process.alive.get(actor);
    if (known !== undefined && number > known.steps) return known;
    if (known !== undefined && atMs <= known.stepMs) return null;
    const machine = this.#scan.machineOf(bytes);
    return this.#begin(process, { actor, machine, startedAtMs: number === 1 ? atMs : 0 }, 0, ms);
  }

  /** A new actor, in place of one with its id; null without room for it: its steps are a gap. T3, T4 */
  #begin(
    process: Process,
    { actor, machine, startedAtMs }: Pick<Life, "actor" | "machine" | "startedAtMs">,
    stateBytes: number,
    ms: number,
  ): Life | null {
    this.#end(process, actor, ms);
    const bytes = lifeBytes + actor.length + machine.length + stateBytes;
    if (process.alive.size >= this.#actorsMax || bytes > this.#roomOf(process)) {
      this.#gap(process, ms);
      process.seenMs = Math.max(process.seenMs, ms);
      return null;
    }
    const life = createLife({ process: process.name, actor, machine, startedAtMs });
    process.alive.set(actor, life);
    return life;
  }

  /** Bytes that further actors of the process may take. */
  #roomOf({ bytes }: Process): number {
    return this.#bytesMax / 2 - bytes;
  }

  /** To be called after each change of a live actor. */
  #weigh(process: Process, life: Life): void {
    const { actor, machine, place, states, toldContext } = life;
    const stateBytes = place?.kind === "state" ? place.state.length : 0;
    const texts = actor.length + machine.length + (states?.length ?? 0);
    const bytes = lifeBytes + texts + stateBytes + (toldContext?.length ?? 0);
    process.bytes += bytes - life.bytes;
    this.#liveBytes += bytes - life.bytes;
    life.bytes = bytes;
  }

  /** The actor's context, encoded with its tag, if this segment does not have it yet: it would be lost with the one that does. */
  #contextFor(life: Life, segment: Segment): Uint8Array | null {
    if (life.toldContext !== null) return life.toldContext;
    if (life.contextSegment === null || life.contextSegment === segment) return null;
    return this.#contextIn(life.contextSegment, life.contextStep);
  }

  #contextIn(segment: Segment, at: number): Uint8Array {
    return ActorStep.encode(ActorStep.create({ context: ActorStep.decode(segment.own(at)).context }));
  }

  #end(process: Process, actor: string, atMs: number): void {
    const life = process.alive.get(actor);
    if (life === undefined) return;
    process.alive.delete(actor);
    process.bytes -= life.bytes;
    this.#liveBytes -= life.bytes;
    const segment = this.#segment();
    segment.mark({ kind: "gone", atMs: this.#advance(atMs), after: segment.length, life });
  }

  #lose(process: Process, known: KnownProcess, atMs: number): void {
    for (const actor of process.alive.keys()) this.#end(process, actor, atMs);
    this.gaps.open(process.name, process.seenMs || atMs);
    process.known = known;
    this.#advance(atMs);
    this.#tellProcess(process, known);
  }

  #tellProcess(process: Process, known: KnownProcess): void {
    const segment = this.#segment();
    segment.mark({ kind: "process", atMs: this.#timeMs, after: segment.length, process: process.name, known });
  }
}
