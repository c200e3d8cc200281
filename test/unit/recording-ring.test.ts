// The ring of a process's last minutes: what it keeps, where it begins, and what it leaves out.
import { syncBuiltinESMExports } from "node:module";
import zlib from "node:zlib";
import test from "ava";
import {
  ActorFeed,
  ActorSnapshot,
  ActorState,
  ActorStatus,
  ActorStep,
  RecordedLine,
  RecordedSpan,
  RecordingPart,
  TimelineAtRequest,
  TimelineOverviewRequest,
} from "../../proto/gen/messages.ts";
import { recordSpan, recordingLogger, type FinishedSpan } from "../../runtime/recording/recorded-log.ts";
import { RecordingRing } from "../../runtime/recording/ring.ts";
import { actorsAt, overview } from "../../runtime/recording/timeline.ts";
import { TimelineIndex } from "../../runtime/recording/timeline-index.ts";
import { madeFeeds, stateOf, stepOf } from "../fixtures/feed-history.ts";
import { quietLog } from "../support/page-client.ts";

const fromMs = 1_700_000_000_000;

const partsOf = (ring: RecordingRing, sinceMs = 0): readonly RecordingPart[] =>
  Array.from(ring.parts(sinceMs), (part) => RecordingPart.decode(part));

function indexOf(feeds: Iterable<ActorFeed>): TimelineIndex {
  const index = new TimelineIndex({ bytesMax: 2 ** 28, holdMs: 0, isRecording: true });
  for (const feed of feeds) index.append(feed);
  return index;
}

const encodedStep = (step: ActorStep): string => Buffer.from(ActorStep.encode(step)).toString("latin1");

const feedsIn = (parts: readonly RecordingPart[]): ActorFeed[] =>
  parts.flatMap(({ feed }) => (feed === null ? [] : [feed]));

const actorsOf = (index: TimelineIndex, atMs: number) =>
  [...actorsAt(index, TimelineAtRequest.create({ atMs }))]
    .flatMap(({ snapshot }) => snapshot?.actors ?? [])
    .toSorted((a, b) => (a.actor < b.actor ? -1 : 1))
    .map((state) => ActorState.decode(ActorState.encode(state)));

test("a full ring begins with the states that its dropped steps led to, and nothing is missing after them", (t) => {
  const ring = new RecordingRing(64 * 1024);
  const all = [...madeFeeds({ processes: 1, actors: 1_200, steps: 20_000, fromMs, toMs: fromMs + 200_000 })];
  for (const feed of all) ring.onFeed(feed);
  t.true(ring.bytes < 64 * 1024 + 256 * 1024, `${ring.bytes} bytes`);
  const kept = feedsIn(partsOf(ring));
  t.true(kept.length < all.length / 2, `${kept.length} of ${all.length}`);
  t.deepEqual(
    kept.slice(0, 4).map(({ snapshot }) => [snapshot?.begins, snapshot?.ends, snapshot?.actors.length]),
    [
      [true, false, 500],
      [false, false, 500],
      [false, true, 200],
      [undefined, undefined, undefined],
    ],
  );
  const sequences = kept.map(({ sequence }) => sequence);
  t.deepEqual(
    sequences,
    sequences.map((_, at) => (sequences[0] ?? 0) + at),
  );
  const [whole, rest] = [indexOf(all), indexOf(kept)];
  t.true(rest.fromMs > fromMs);
  for (const moment of [rest.fromMs, Math.floor((rest.fromMs + rest.toMs) / 2), rest.toMs])
    t.deepEqual(actorsOf(rest, moment), actorsOf(whole, moment));
  t.deepEqual(rest.gaps.within(0, Number.MAX_SAFE_INTEGER), []);
});

test("the states that a ring begins with are read in parts that fit a message on the bus, without a gap", (t) => {
  const ring = new RecordingRing(1);
  const large = JSON.stringify({ text: "x".repeat(6_000) });
  const count = 400;
  const snapshot = (at: number): ActorSnapshot =>
    ActorSnapshot.create({
      begins: at === 0,
      ends: at === count - 1,
      actors: [{ ...stateOf(`session/n${at}`, 1, fromMs), context: large }],
    });
  const sent = Array.from({ length: count }, (_, at) =>
    ActorFeed.create({ process: "manager-m1", sequence: at + 1, atMs: fromMs + at, snapshot: snapshot(at) }),
  );
  for (const feed of sent) ring.onFeed(feed);
  const read = partsOf(ring);
  t.true(Math.max(...read.map((part) => RecordingPart.encode(part).length)) < 700_000);
  const rest = indexOf(feedsIn(read));
  t.deepEqual(overview(rest, TimelineOverviewRequest.create({ buckets: 1 })).gaps, []);
  t.is(actorsOf(rest, fromMs + count - 1).length, count);
  const sequences = feedsIn(read).map(({ sequence }) => sequence);
  t.true(sequences.length > 2);
  t.is(sequences.at(-1), count);
});

test("steps given one by one are kept like messages, in the order of their numbers", (t) => {
  const ring = new RecordingRing();
  const [snapshot, ...rest] = madeFeeds({ processes: 1, actors: 20, steps: 5_000, fromMs, toMs: fromMs + 10_000 });
  ring.onFeed(snapshot as ActorFeed);
  const steps = rest.flatMap((feed) => feed.steps);
  for (const step of steps) ring.onStep(step);
  t.true(ring.bytes > 0);
  const kept = feedsIn(partsOf(ring));
  t.true(kept.length > 100 && kept.length < 300, `${kept.length} messages for 10 s`);
  t.deepEqual(
    kept.map(({ process, hostname, sequence }) => [process, hostname, sequence]),
    kept.map((_, at) => ["manager-m0", "host-manager-m0", at + 1] as const),
  );
  t.deepEqual(kept.flatMap((feed) => feed.steps).map(encodedStep), steps.map(encodedStep));
  for (const { atMs, steps: few } of kept.slice(1)) t.is(atMs, few.at(-1)?.atMs ?? 0);
  t.deepEqual(partsOf(ring), partsOf(ring), "a read changes nothing");
});

test("an actor that ends and a later one with its id are in different messages", (t) => {
  const ring = new RecordingRing();
  ring.onFeed(ActorFeed.create({ process: "manager-m0", sequence: 7 }));
  ring.onStep(stepOf("task/t1", 5, fromMs));
  ring.onStep(ActorStep.patch(stepOf("task/t1", 6, fromMs), { status: ActorStatus.ACTOR_DONE }));
  ring.onStep(stepOf("task/t2", 1, fromMs));
  ring.onStep(stepOf("task/t1", 1, fromMs));
  t.deepEqual(
    feedsIn(partsOf(ring)).map(({ sequence, steps, ended }) => [sequence, steps.map(({ number }) => number), ended]),
    [
      [7, [], []],
      [8, [5, 6, 1], ["task/t1"]],
      [9, [1], []],
    ],
  );
});

test("RR3: a step that cannot be kept is a gap in the numbers, and the ring goes on", (t) => {
  const ring = new RecordingRing();
  ring.onFeed(ActorFeed.create({ process: "manager-m0", sequence: 1 }));
  ring.onStep(stepOf("task/t1", 1, fromMs));
  t.notThrows(() => ring.onStep(ActorStep.patch(stepOf("task/t1", 2, fromMs), { timers: [null as never] })));
  ring.onStep(stepOf("task/t1", 3, fromMs));
  ring.onMissing();
  ring.onStep(stepOf("task/t1", 5, fromMs));
  const kept = feedsIn(partsOf(ring)).map(({ sequence, steps }) => [sequence, ...steps.map(({ number }) => number)]);
  t.deepEqual(kept, [[1], [3, 3], [5, 5]]);
});

test("a read from a moment on begins with the states of that moment", (t) => {
  const ring = new RecordingRing();
  const all = [...madeFeeds({ processes: 1, actors: 5, steps: 1_000, fromMs, toMs: fromMs + 10_000 })];
  for (const feed of all) ring.onFeed(feed);
  const encoded = (feeds: readonly ActorFeed[]): readonly string[] =>
    feeds.map((feed) => Buffer.from(ActorFeed.encode(feed)).toString("base64"));
  t.deepEqual(encoded(feedsIn(partsOf(ring))), encoded(all), "everything, when nothing is dropped");
  const kept = feedsIn(partsOf(ring, fromMs + 9_000));
  const steps = kept.flatMap((feed) => feed.steps);
  t.true(steps.length >= 100 && steps.length <= 110, `${steps.length} steps`);
  t.deepEqual(actorsOf(indexOf(kept), fromMs + 9_500), actorsOf(indexOf(all), fromMs + 9_500));
  const quiet = feedsIn(partsOf(ring, fromMs + 60_000));
  t.is(quiet.length, 1, "the states, although nothing has happened since");
  t.is(quiet[0]?.snapshot?.actors.length, 5);
  t.deepEqual(partsOf(new RecordingRing()), []);
});

test("log lines and spans are kept among the steps, with the process's name, and without secrets", (t) => {
  const ring = new RecordingRing();
  let now = fromMs;
  const log = recordingLogger(quietLog, ring, () => (now += 1_000));
  const secret = "SWMKEY-1-canary";
  log.info({ taskId: "t1", error: secret, token: secret, message: secret, name: `a ${secret}` }, "task started");
  log.debug({ taskId: "t2" }, "not recorded");
  for (const feed of madeFeeds({ processes: 1, actors: 1, steps: 10, fromMs, toMs: fromMs + 10 })) ring.onFeed(feed);
  log.warn({ node: "n1", count: 3, data: { secret } }, "node is silent");
  const span = {
    name: "task create",
    startTime: [fromMs / 1_000, 5e8],
    endTime: [fromMs / 1_000 + 1, 0],
    attributes: { "muster.task.id": "t1", "http.url": secret, "rpc.grpc.status_code": 2 },
    status: { code: 2 },
    spanContext: () => ({ traceId: "a".repeat(32), spanId: "b".repeat(16) }),
  } as const;
  recordSpan(span, ring);
  const parts = partsOf(ring);
  t.deepEqual(
    parts.flatMap(({ line }) => (line === null ? [] : [line])),
    [
      { atMs: fromMs + 1_000, level: "info", text: "task started", fields: '{"taskId":"t1"}' },
      { atMs: fromMs + 2_000, level: "warn", text: "node is silent", fields: '{"node":"n1","count":3}' },
    ].map((line) => RecordedLine.create({ ...line, process: "manager-m0" })),
  );
  t.deepEqual(
    parts.at(-1)?.span,
    RecordedSpan.create({
      process: "manager-m0",
      traceId: "a".repeat(32),
      spanId: "b".repeat(16),
      name: "task create",
      startMs: fromMs + 500,
      endMs: fromMs + 1_000,
      attributes: '{"muster.task.id":"t1","rpc.grpc.status_code":2}',
      failed: true,
    }),
  );
  t.false(JSON.stringify(parts).includes("canary"));
  t.is(partsOf(ring, fromMs + 1_500).flatMap(({ line }) => line ?? []).length, 1, "older lines are left out");
});

test("RR3: a line that cannot be kept is dropped, and neither a log call nor a span's end fails", (t) => {
  const ring = new RecordingRing();
  const log = recordingLogger(quietLog, ring, () => fromMs);
  const broken = {
    get name(): string {
      throw new Error("a getter fails");
    },
  };
  t.notThrows(() => log.info(broken, "not recorded"));
  t.notThrows(() => log.warn({}, undefined as unknown as string));
  t.notThrows(() => recordSpan(undefined as unknown as FinishedSpan, ring));
  t.notThrows(() => ring.addSpan(broken as unknown as RecordedSpan));
  log.info({ node: "n1" }, "recorded");
  t.deepEqual(
    partsOf(ring).map(({ line }) => line?.text),
    ["recorded"],
  );
});

test.serial("RR3: a piece that cannot be compressed is dropped, and the ring goes on", (t) => {
  const compress = zlib.zstdCompressSync;
  const restore = (): void => {
    zlib.zstdCompressSync = compress;
    syncBuiltinESMExports();
  };
  t.teardown(restore);
  zlib.zstdCompressSync = () => {
    throw new RangeError("out of memory");
  };
  syncBuiltinESMExports();
  const ring = new RecordingRing();
  const add = (atMs: number): void => ring.addLine({ atMs, level: "info", text: "x".repeat(1_000), fields: "" });
  t.notThrows(() => Array.from({ length: 300 }, (_, at) => add(at)));
  t.true(ring.bytes < 50_000, `${ring.bytes} bytes`);
  restore();
  for (let at = 300; at < 1_000; at += 1) add(at);
  const times = partsOf(ring).map(({ line }) => line?.atMs ?? 0);
  t.true((times[0] ?? 0) > 200);
  t.is(times.at(-1), 999);
});
