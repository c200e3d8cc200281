/**
 * The past of the feed: every step of every actor, and the actors as they were at any moment. Feeds are appended; the oldest
 * segment is dropped when the memory is used up. Steps stay encoded, and what many share is kept once (`shapes.ts`): a million
 * steps are a few large buffers, not a million objects.
 *
 * T1: steps are numbered from 1 without gaps, in the order of their times as far as `holdMs` allows; a number never changes.
 * T2: a step that is appended twice counts once, so recordings and a live feed may overlap.
 * T3: steps that are not known leave a gap, never a silent hole: a sequence number is missing, the feed says that it dropped some,
 *     or a snapshot shows actors that have moved on.
 */
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

export interface TimelineIndexOptions {
  /** Memory in bytes, above which the oldest steps are dropped. */
  readonly bytesMax: number;
  /**
   * Milliseconds for which steps wait for earlier ones of other processes. 0 for a file, whose steps are sorted.
   */
  readonly holdMs: number;
  /** True for a recorded file. */
  readonly isRecording: boolean;
}

/** Milliseconds by which a recording may overlap with a live feed; an older snapshot is that of a clock that was set back. */
const overlapMsMax = 60_000;

interface Process {
  readonly name: string;
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
  #closedBytes = 0;
  #timeMs = 0;
  #fromMs = 0;

  constructor({ bytesMax, holdMs, isRecording }: TimelineIndexOptions) {
    this.#bytesMax = bytesMax;
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
    return this.#closedBytes + open + this.#shapes.memoryBytes + this.spans.memoryBytes;
  }

  append(feed: ActorFeed): void {
    this.appendEncoded(ActorFeed.encode(feed));
  }

  /** Of an ActorFeed. Throws on malformed bytes. */
  appendEncoded(bytes: Uint8Array): void {
    const feed = scanFeed(bytes);
    const process = this.#processOf(feed.process);
    const order = (ms: number, apply: () => void): void => {
      process.itemMs = Math.max(process.itemMs, ms);
      this.#held.add(process.itemMs, apply);
    };
    const { sequence, atMs, hostname, snapshot, droppedSteps, lost } = feed;
    const first = snapshot === null ? null : ActorSnapshot.decode(bytes.subarray(snapshot.from, snapshot.to));
    if (snapshot !== null || droppedSteps > 0 || process.sequence + 1 !== sequence) {
      const isGap = process.sequence + 1 !== sequence;
      order(process.itemMs, () => {
        if (droppedSteps > 0 || (isGap && first?.begins !== true)) this.#gap(process, atMs);
        if (first !== null) this.#takeSnapshot(process, first, { isGap, atMs, hostname });
      });
    }
    process.sequence = sequence;
    for (const range of feed.steps) order(timeOfStep(bytes, range), () => this.#takeStep(process, bytes, range));
    order(atMs, () => {
      for (const actor of feed.ended) this.#end(process, actor, atMs);
      if (lost !== "") this.#lose(process, { hostname, lost }, atMs);
      process.seenMs = Math.max(process.seenMs, atMs);
      this.#advance(atMs);
    });
    this.#held.release();
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

  /** An actor's state at a place. */
  stateAt(life: Life, place: Place): ActorState {
    if (place.kind === "state") return ActorState.decode(place.state);
    const { segment, at } = place;
    const step = ActorStep.decode(this.#encodedStep(segment, at));
    const context = segment.context[at] as number;
    return ActorState.create({
      actor: life.actor,
      machine: life.machine,
      states: step.states,
      status: step.status,
      startedAtMs: life.startedAtMs,
      sinceMs: segment.sinceMs[at] as number,
      context:
        context === noContext ? "" : context === at ? step.context : ActorStep.decode(segment.own(context)).context,
      timers: step.timers,
      steps: step.number,
      event: step.event,
    });
  }

  #encodedStep(segment: Segment, at: number): Uint8Array {
    const life = segment.lives[at] as Life;
    return Buffer.concat([
      encodedIdentity(life.actor, life.machine, segment.number[at] as number, segment.atMs[at] as number),
      this.#shapes.bytesOf(segment.shape[at] as number) ?? new Uint8Array(),
      segment.own(at),
    ]);
  }

  #processOf(name: string): Process {
    let process = this.#processes.get(name);
    if (process === undefined) {
      process = {
        name,
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
    this.segments.push(segment);
    while (this.segments.length > 1 && this.memoryBytes > this.#bytesMax) this.#dropOldest();
    return segment;
  }

  /** States that are found in the segment are told to the segments after it. */
  #dropOldest(): void {
    const dropped = this.segments.shift() as Segment;
    this.#closedBytes -= dropped.memoryBytes;
    const told = new Map<Life, Place>();
    const moved = (life: Life, place: Place): Place => {
      if (place.kind === "state" || place.segment !== dropped) return place;
      const state: Place = told.get(life) ?? { kind: "state", state: ActorState.encode(this.stateAt(life, place)) };
      told.set(life, state);
      return state;
    };
    for (const { keyframe } of this.segments)
      for (const [life, place] of keyframe) if (place.kind === "step") keyframe.set(life, moved(life, place));
    for (const { alive } of this.#processes.values())
      for (const life of alive.values()) {
        if (life.place !== null) life.place = moved(life, life.place);
        if (life.contextSegment !== dropped) continue;
        life.toldContext = this.#contextIn(dropped, life.contextStep);
        life.contextSegment = null;
      }
    this.#fromMs = (this.segments[0] as Segment).fromMs;
    this.gaps.forgetBefore(this.#fromMs);
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
      process.listed?.add(life);
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

  #takeState(process: Process, state: ActorState, timeMs: number): Life {
    let life = process.alive.get(state.actor);
    const isSame =
      life !== undefined &&
      life.machine === state.machine &&
      (life.startedAtMs === 0 || state.startedAtMs === 0 || life.startedAtMs === state.startedAtMs);
    // A repeated snapshot adds nothing, and neither does an old one (T2).
    if (life !== undefined && isSame && life.place !== null && life.steps >= state.steps) return life;
    this.#movedOn(process, timeMs);
    if (life === undefined || !isSame) {
      const { actor, machine, startedAtMs } = state;
      life = createLife({ process: process.name, actor, machine, startedAtMs });
      process.alive.set(actor, life);
    }
    const encoded = ActorState.encode(state);
    const segment = this.#segment();
    segment.mark({ kind: "state", atMs: timeMs, after: segment.length, life, state: encoded });
    life.place = { kind: "state", state: encoded };
    life.states = StepScan.statesOf(state.states);
    life.sinceMs = state.sinceMs;
    life.steps = state.steps;
    life.stepMs = state.sinceMs;
    life.toldContext = state.context === "" ? null : ActorStep.encode(ActorStep.create({ context: state.context }));
    life.contextSegment = null;
    return life;
  }

  #takeStep(process: Process, bytes: Uint8Array, range: Range): void {
    const scan = this.#scan;
    scan.scan(bytes, range);
    const { number, atMs, shape } = scan;
    const life = this.#lifeOf(process, scan, bytes);
    if (life === null) return;
    process.listed?.add(life);
    const timeMs = this.#advance(atMs);
    if (scan.skipped > 0) this.#gap(process, atMs);
    if (life.states !== scan.states) {
      life.states = scan.states;
      life.sinceMs = atMs;
    }
    const segment = this.#segment();
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
    if (shapeNumber === null) segment.write(Buffer.from(shape, "latin1"));
    for (let own = 0; own < scan.ownOffsets; own += 2) segment.write(bytes, scan.own[own], scan.own[own + 1]);
    if (copied !== null) segment.write(copied);
    life.place = { kind: "step", segment, at };
    life.steps = number;
    life.stepMs = atMs;
    process.seenMs = Math.max(process.seenMs, atMs);
  }

  /** The life that takes the step; null if the step is known already (T2). */
  #lifeOf(process: Process, { actor, number, atMs }: StepScan, bytes: Uint8Array): Life | null {
    const known = process.alive.get(actor);
    if (known !== undefined && number > known.steps) return known;
    if (known !== undefined && atMs <= known.stepMs) return null;
    const machine = this.#scan.machineOf(bytes);
    const life = createLife({ process: process.name, actor, machine, startedAtMs: number === 1 ? atMs : 0 });
    process.alive.set(actor, life);
    return life;
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
