/** Answers the methods of the Timeline service from an index. */
import { traceHashOf } from "../../proto/feed-scan.ts";
import { encodedSnapshotFeed } from "../../proto/feed-state.ts";
import {
  ActorFeed,
  TimelineOverview,
  TimelineService,
  TimelineStep,
  TimelineSteps,
  type RecordedSpan,
  type TimelineAtRequest,
  type TimelineOverviewRequest,
  type TimelineStepsRequest,
} from "../../proto/gen/messages.ts";
import { RpcError, Status } from "../ports/rpc.ts";
import { Flag, type KnownProcess, type Life, type Place, type Segment } from "./segment.ts";
import { isoTime } from "./iso-time.ts";
import type { TimelineIndex } from "./timeline-index.ts";

/** Buckets of an overview: one for each pixel of a wide screen. */
const bucketsMax = 4_000;
/** Steps of one answer. */
const stepsMax = 5_000;
/** Bytes after which an answer has no further steps, below gRPC's usual limit of 4 MiB; the caller asks for what follows. */
const stepsBytesMax = 3 * 1024 * 1024;
/** Actors of one message of a snapshot: about 150 KiB. */
const actorsPerMessage = 500;

/** INVALID_ARGUMENT for a number of buckets outside of its range. */
export function overview(index: TimelineIndex, request: TimelineOverviewRequest): TimelineOverview {
  const { buckets } = request;
  if (buckets < 1 || buckets > bucketsMax)
    throw new RpcError(Status.INVALID_ARGUMENT, `invalid number of buckets ${buckets}: expected 1 to ${bucketsMax}`);
  const fromMs = Math.max(request.fromMs, index.fromMs);
  const toMs = request.toMs === 0 ? index.toMs : Math.min(request.toMs, index.toMs);
  const steps = new Uint32Array(buckets);
  const troubles = new Uint32Array(buckets);
  const scale = buckets / Math.max(1, toMs - fromMs + 1);
  for (const segment of index.segments) {
    const { timeMs, flags } = segment;
    for (let at = fromMs === index.fromMs ? 0 : segment.stepsUntil(fromMs - 1); at < segment.length; at += 1) {
      const ms = timeMs[at] as number;
      if (ms > toMs) break;
      const bucket = Math.floor((ms - fromMs) * scale);
      steps[bucket] = (steps[bucket] as number) + 1;
      if (((flags[at] as number) & Flag.trouble) !== 0) troubles[bucket] = (troubles[bucket] as number) + 1;
    }
  }
  return TimelineOverview.create({
    fromMs: index.fromMs,
    toMs: index.toMs,
    steps: Array.from(steps),
    troubles: Array.from(troubles),
    gaps: index.gaps.within(fromMs, toMs),
    stepsTotal: index.stepsTotal,
    isRecording: index.isRecording,
    processes: index.processes,
  });
}

interface Moment {
  readonly segment: Segment;
  /** Number of the segment's steps that count. */
  readonly steps: number;
  readonly atMs: number;
}

function momentOf(index: TimelineIndex, { atMs, index: step }: TimelineAtRequest): Moment {
  const { segments, fromMs, toMs } = index;
  const outside = (what: string, known: string): RpcError =>
    new RpcError(Status.OUT_OF_RANGE, `${what} is outside of the recorded time (${known})`);
  const oldest = segments[0];
  if (oldest === undefined) throw new RpcError(Status.OUT_OF_RANGE, "nothing is recorded yet");
  if (step > 0) {
    const segment = segments.findLast(({ before }) => before < step);
    if (segment === undefined || step - segment.before > segment.length) {
      const known = `steps ${oldest.before + 1} to ${oldest.before + index.stepsTotal}`;
      throw outside(`step ${step}`, known);
    }
    const steps = step - segment.before;
    return { segment, steps, atMs: segment.timeMs[steps - 1] as number };
  }
  if (atMs < fromMs || atMs > toMs) {
    throw outside(isoTime(atMs), `${isoTime(fromMs)} to ${isoTime(toMs)}`);
  }
  const segment = segments.findLast((each) => each.fromMs <= atMs) ?? oldest;
  return { segment, steps: segment.stepsUntil(atMs), atMs };
}

interface Known {
  readonly processes: Map<string, KnownProcess>;
  readonly places: Map<Life, Place>;
}

function knownAt({ segment, steps, atMs }: Moment): Known {
  const places = new Map(segment.keyframe);
  const processes = new Map(segment.processes);
  /** The newest step of each actor. */
  const newest = new Map<Life, number>();
  let step = 0;
  const upTo = (end: number): void => {
    for (; step < end; step += 1) newest.set(segment.lives[step] as Life, step);
  };
  for (const mark of segment.marks) {
    if (mark.after > steps || mark.atMs > atMs) break;
    upTo(mark.after);
    if (mark.kind === "process") {
      processes.set(mark.process, mark.known);
      continue;
    }
    newest.delete(mark.life);
    if (mark.kind === "gone") places.delete(mark.life);
    else places.set(mark.life, { kind: "state", state: mark.state });
  }
  upTo(steps);
  for (const [life, at] of newest) places.set(life, { kind: "step", segment, at });
  return { processes, places };
}

/** The actors of every process at a moment, as encoded feeds. OUT_OF_RANGE outside of the known range. */
function* encodedActorsAt(index: TimelineIndex, request: TimelineAtRequest): Generator<Uint8Array> {
  const moment = momentOf(index, request);
  const { processes, places } = knownAt(moment);
  const byProcess = new Map<string, [Life, Place][]>();
  for (const entry of places) {
    const list = byProcess.get(entry[0].process);
    if (list === undefined) byProcess.set(entry[0].process, [entry]);
    else list.push(entry);
  }
  for (const [process, { hostname, lost }] of processes) {
    const message = { process, hostname, atMs: moment.atMs };
    if (lost !== "") {
      yield ActorFeed.encode(ActorFeed.create({ ...message, sequence: 1, lost }));
      continue;
    }
    const actors = byProcess.get(process) ?? [];
    let sequence = 0;
    do {
      const from = sequence * actorsPerMessage;
      const part = actors.slice(from, from + actorsPerMessage).map(([life, place]) => index.stateAt(life, place));
      const ends = from + actorsPerMessage >= actors.length;
      sequence += 1;
      const feed = ActorFeed.encode(ActorFeed.create({ ...message, sequence }));
      yield encodedSnapshotFeed(feed, { begins: from === 0, ends, actors: part });
    } while (sequence * actorsPerMessage < actors.length);
  }
}

/** The actors of every process at a moment. OUT_OF_RANGE outside of the known range. */
export function* actorsAt(index: TimelineIndex, request: TimelineAtRequest): Generator<ActorFeed> {
  for (const feed of encodedActorsAt(index, request)) yield ActorFeed.decode(feed);
}

/** Positions of the steps in question, from the request's moment on, or backward from it. */
function* positions(index: TimelineIndex, request: TimelineStepsRequest): Generator<readonly [Segment, number]> {
  const { backward, atMs, index: step, process, actor, traceId } = request;
  const traceHash = traceHashOf(traceId);
  // Here, because most steps are of others, and handing each out costs more than this.
  const isWanted = (segment: Segment, at: number): boolean => {
    if (traceId !== "" && !segment.isOfTrace(at, traceHash)) return false;
    const life = segment.lives[at] as Life;
    return (actor === "" || life.actor === actor) && (process === "" || life.process === process);
  };
  const { segments } = index;
  // Without a moment, from the first, or backward from the last.
  const isWhole = step === 0 && atMs === 0;
  if (backward) {
    for (const segment of segments.toReversed()) {
      const isBelow = step > 0 ? step - 1 - segment.before : segment.stepsUntil(atMs);
      const end = isWhole ? segment.length : Math.min(segment.length, isBelow);
      for (let at = end - 1; at >= 0; at -= 1) if (isWanted(segment, at)) yield [segment, at];
    }
    return;
  }
  for (const segment of segments) {
    const from = isWhole ? 0 : step > 0 ? Math.max(0, step - segment.before) : segment.stepsUntil(atMs - 1);
    for (let at = from; at < segment.length; at += 1) if (isWanted(segment, at)) yield [segment, at];
  }
}

/** INVALID_ARGUMENT for a limit outside of its range. */
export function stepsOf(index: TimelineIndex, request: TimelineStepsRequest): TimelineSteps {
  const { traceId, limit, backward } = request;
  if (limit < 1 || limit > stepsMax)
    throw new RpcError(Status.INVALID_ARGUMENT, `invalid limit ${limit}: expected 1 to ${stepsMax}`);
  const found: TimelineStep[] = [];
  let bytes = 0;
  for (const [segment, at] of positions(index, request)) {
    const step = index.stepAt(segment, at);
    if (traceId !== "" && step.traceId !== traceId && !step.linkedTraceIds.includes(traceId)) continue;
    const spans: RecordedSpan[] = [];
    const span = step.spanId === "" ? null : index.spans.find(step.spanId);
    if (span !== null) spans.push(span);
    const entry = TimelineStep.create({
      index: segment.before + at + 1,
      process: (segment.lives[at] as Life).process,
      step,
      spans,
    });
    bytes += TimelineStep.encode(entry).length;
    if (bytes > stepsBytesMax && found.length > 0) break;
    found.push(entry);
    if (found.length === limit) break;
  }
  if (backward) found.reverse();
  return TimelineSteps.create({ steps: found });
}

/** By gRPC path: each answers an encoded request with encoded messages. They throw RpcError, and on malformed requests. */
export function timelineMethods(
  index: TimelineIndex,
): ReadonlyMap<string, (request: Uint8Array) => Iterable<Uint8Array>> {
  const { Overview, At, Steps } = TimelineService.methods;
  return new Map<string, (request: Uint8Array) => Iterable<Uint8Array>>([
    [Overview.path, (bytes) => [Overview.response.encode(overview(index, Overview.request.decode(bytes)))]],
    [At.path, (bytes) => encodedActorsAt(index, At.request.decode(bytes))],
    [Steps.path, (bytes) => [Steps.response.encode(stepsOf(index, Steps.request.decode(bytes)))]],
  ]);
}
