// The time line of a running cluster: what processes have kept, then the live feed, for as long as a page is open.
import test, { type ExecutionContext } from "ava";
import type { CallMethod, UiBackend, UiSink } from "../../edges/ui/backend.ts";
import { timelineLimits } from "../../edges/ui/limits.ts";
import { LiveTimeline } from "../../edges/ui/live-timeline.ts";
import {
  ActorFeed,
  ActorSnapshot,
  ActorStep,
  InspectionService,
  RecordingPart,
  TimelineOverview,
  TimelineOverviewRequest,
  TimelineService,
  TimelineSteps,
  TimelineStepsRequest,
  UiHello,
} from "../../proto/gen/messages.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import { stateOf, stepOf } from "../fixtures/feed-history.ts";
import { until } from "../fixtures/until.ts";

const { Recent, Watch } = InspectionService.methods;
const { Overview, Steps } = TimelineService.methods;
const beginning = Date.now() - 60_000;
const process = "manager-m1";
const actor = "session/n1";

const snapshot = (sequence: number, number: number, atMs: number): ActorFeed =>
  ActorFeed.create({
    process,
    sequence,
    atMs,
    snapshot: ActorSnapshot.create({ begins: true, ends: true, actors: [stateOf(actor, number, beginning)] }),
  });
const step = (sequence: number, number: number, atMs: number): ActorFeed =>
  ActorFeed.create({ process, sequence, atMs, steps: [stepOf(actor, number, atMs)] });

interface Scene {
  readonly timeline: LiveTimeline;
  /** Connections of the time line until now, and those that are closed. */
  readonly connections: { opened: number; closed: number };
  /** A page; the returned function closes it. */
  page(): () => void;
  overview(): Promise<TimelineOverview>;
  /** Numbers of the actor's newest two steps, for a page that has seen one at `seenMs`. */
  newestTwo(seenMs: number): Promise<readonly number[]>;
  /** The sink of the newest Watch. */
  live(): Promise<UiSink>;
  /** Ends the newest Watch. */
  fail(): void;
}

function scene(
  t: ExecutionContext,
  kept: readonly ActorFeed[] | null,
  limits: Partial<Record<keyof typeof timelineLimits, number>> = {},
): Scene {
  const connections = { opened: 0, closed: 0 };
  let sink: UiSink | null = null;
  let fail: () => void = () => undefined;
  const call: CallMethod = async (method, _request, to, { signal }) => {
    if (method === Recent.path) {
      if (kept === null) throw new RpcError(Status.UNIMPLEMENTED, "this manager keeps no recordings");
      for (const feed of kept) void to.write(RecordingPart.encode(RecordingPart.create({ feed })));
      return;
    }
    t.is(method, Watch.path);
    sink = to;
    await new Promise<void>((resolve, reject) => {
      signal.addEventListener("abort", () => resolve());
      fail = () => reject(new RpcError(Status.UNAVAILABLE, "the connection ended"));
    });
  };
  const timeline = new LiveTimeline({
    connect() {
      connections.opened += 1;
      return Promise.resolve({ call, close: () => (connections.closed += 1) });
    },
    limits: { ...timelineLimits, holdMs: 20, lingerMs: 50, beginQuietMs: 50, beginMsMax: 500, ...limits },
  });
  t.teardown(() => timeline.stop());
  const unused: CallMethod = () => Promise.reject(new RpcError(Status.UNIMPLEMENTED, "of the cluster"));
  let newest = timeline.session({ hello: UiHello.create(), backend: { call: unused } });
  let isFirst = true;
  return {
    timeline,
    connections,
    page() {
      if (!isFirst) newest = timeline.session({ hello: UiHello.create(), backend: { call: unused } });
      isFirst = false;
      return () => newest.backend.close?.();
    },
    async overview() {
      let answer = TimelineOverview.create();
      const request = Overview.request.encode(TimelineOverviewRequest.create({ buckets: 1 }));
      const write = (message: Uint8Array): null => {
        answer = Overview.response.decode(message);
        return null;
      };
      await newest.backend.call(Overview.path, request, { write }, { signal: AbortSignal.abort(), traceparent: "" });
      return answer;
    },
    async newestTwo(seenMs) {
      let answer = TimelineSteps.create();
      const request = Steps.request.encode(
        TimelineStepsRequest.create({ process, actor, backward: true, limit: 2, seenMs }),
      );
      const write = (message: Uint8Array): null => {
        answer = Steps.response.decode(message);
        return null;
      };
      await newest.backend.call(Steps.path, request, { write }, { signal: AbortSignal.abort(), traceparent: "" });
      return answer.steps.map((each) => each.step?.number ?? 0);
    },
    async live() {
      await until("the feed is followed", () => sink !== null);
      const found = sink as unknown as UiSink;
      sink = null;
      return found;
    },
    fail: () => fail(),
  };
}

const send = (sink: UiSink, feed: ActorFeed): void => void sink.write(ActorFeed.encode(feed));

test("LT2: steps that processes have kept are read when the live feed has begun, and may overlap with it", async (t) => {
  const kept = [snapshot(1, 1, beginning), step(2, 2, beginning + 1_000)];
  const { page, overview, live } = scene(t, kept);
  page();
  const sink = await live();
  t.is((await overview()).stepsTotal, 0);
  // This step is taken before what is kept is read.
  kept.push(step(3, 3, beginning + 2_000));
  send(sink, snapshot(1, 2, beginning + 1_500));
  await until("the kept steps were read", async () => (await overview()).stepsTotal === 2);
  t.like(await overview(), { fromMs: beginning, isRecording: false, processes: [process], gaps: [] });
  send(sink, step(2, 4, beginning + 4_000));
  await until("the live step has waited for others", async () => (await overview()).stepsTotal === 3);
  t.like(await overview(), { toMs: beginning + 4_000, gaps: [] });
});

test("a manager that keeps nothing has a time line from now on", async (t) => {
  const { page, overview, live } = scene(t, null);
  page();
  const sink = await live();
  t.like(await overview(), { fromMs: 0, toMs: 0, stepsTotal: 0 });
  send(sink, snapshot(1, 1, beginning));
  send(sink, step(2, 2, beginning + 1_000));
  await until("the step is known", async () => (await overview()).stepsTotal === 1);
});

test("LT1: while the feed is away there is a gap, and it is followed again", async (t) => {
  const { page, overview, live, fail, connections } = scene(t, null);
  page();
  send(await live(), snapshot(1, 1, beginning));
  await until("the process is known", async () => (await overview()).processes.length === 1);
  fail();
  const sink = await live();
  t.deepEqual(connections, { opened: 2, closed: 1 });
  const [open] = (await overview()).gaps;
  t.is(open?.process, process);
  send(sink, snapshot(1, 5, Date.now()));
  await until("the process is known again", async () => (await overview()).toMs > beginning);
  const { gaps } = await overview();
  t.is(gaps.length, 1);
  t.is(gaps[0]?.process, process);
});

test("with the last page the index goes, after a while; a page that is loaded again finds it", async (t) => {
  const { page, overview, live, connections } = scene(t, [snapshot(1, 1, beginning), step(2, 2, beginning + 1_000)]);
  const close = page();
  await live();
  close();
  const again = page();
  await until("the kept step is known", async () => (await overview()).stepsTotal === 1);
  t.is(connections.opened, 1);
  again();
  await until("the feed is closed", () => connections.closed === 1);
  t.is((await overview()).stepsTotal, 0);
  page();
  await live();
  t.is(connections.opened, 2);
});

test("no more is read of what is kept than the limit", async (t) => {
  const many = Array.from({ length: 1_000 }, (_, at) => step(at + 2, at + 2, beginning + at));
  const { page, overview, live } = scene(t, [snapshot(1, 1, beginning), ...many], { recentBytesMax: 20_000 });
  page();
  await live();
  await until("the kept steps were read", async () => (await overview()).stepsTotal > 0);
  const { stepsTotal } = await overview();
  t.true(stepsTotal > 10 && stepsTotal < 500, `${stepsTotal} steps`);
});

test("a question of a page that has seen a step waits until it is in its order, or for some time", async (t) => {
  const { page, newestTwo, live } = scene(t, null, { holdMs: 300, seenMsMax: 900 });
  page();
  const sink = await live();
  const now = Date.now();
  send(sink, snapshot(1, 1, now));
  send(sink, step(2, 2, now + 1));
  send(sink, step(3, 3, now + 2));
  t.deepEqual(await newestTwo(now + 2), [2, 3]);
  send(sink, step(4, 4, now + 10));
  t.deepEqual(await newestTwo(0), [2, 3], "the newest one waits for those of others");
  t.deepEqual(await newestTwo(now + 10), [3, 4]);
  const asked = newestTwo(now + 20);
  // The page's own feed may be ahead.
  send(sink, step(5, 5, now + 20));
  t.deepEqual(await asked, [4, 5]);
  send(sink, ActorFeed.patch(snapshot(1, 1, now + 30), { process: "node-n1" }));
  t.deepEqual(await newestTwo(now + 30), [4, 5]);
  send(sink, step(6, 6, now + 25));
  t.deepEqual(await newestTwo(now + 25), [5, 6], "although later times are known");
  t.deepEqual(await newestTwo(now + 500), [5, 6], "such a step never comes");
});

test("LT4: an agent's clock does not move the time line, a manager's does", async (t) => {
  const { page, overview, live } = scene(t, null);
  page();
  const sink = await live();
  const aheadMs = 3_600_000;
  const now = Date.now() + aheadMs;
  send(sink, snapshot(1, 1, now));
  send(sink, ActorFeed.patch(snapshot(1, 1, now), { process: "node-n1" }));
  send(sink, ActorFeed.patch(step(2, 2, now + 1e11), { process: "node-n1" }));
  await until("the agent's step is known", async () => (await overview()).stepsTotal === 1);
  const { fromMs, toMs } = await overview();
  t.true(toMs >= now && toMs < now + 60_000, `${toMs - now} ms after the present`);
  t.is(fromMs, now);
});

test("LT3: when a step cannot be read once it has waited, the time line begins again", async (t) => {
  const { page, overview, live, connections } = scene(t, null);
  page();
  const sink = await live();
  send(sink, snapshot(1, 1, beginning));
  send(sink, step(2, 2, beginning + 1_000));
  await until("the step is known", async () => (await overview()).stepsTotal === 1);
  // Its time can be read, its end cannot; it waits for the timer.
  const cut = Buffer.concat([ActorStep.encode(stepOf(actor, 3, beginning + 2_000)), Buffer.from([0x07])]);
  const feed = ActorFeed.encode(ActorFeed.create({ process, sequence: 3, atMs: beginning + 2_000 }));
  const stepsTag = (5 << 3) | 2;
  t.true(cut.length < 2 ** 14);
  void sink.write(Buffer.concat([feed, Buffer.from([stepsTag, (cut.length & 0x7f) | 0x80, cut.length >> 7]), cut]));
  const next = await live();
  t.deepEqual(connections, { opened: 2, closed: 1 });
  t.is((await overview()).stepsTotal, 0);
  send(next, snapshot(1, 3, beginning + 3_000));
  send(next, step(2, 4, beginning + 4_000));
  await until("the feed is followed again", async () => (await overview()).stepsTotal === 1);
});

test("a connection that comes after the last page has gone is closed, and leaves a later feed alone", async (t) => {
  const waiting: PromiseWithResolvers<UiBackend>[] = [];
  const methods: string[] = [];
  let closed = 0;
  const backendNamed = (name: string): UiBackend => ({
    call: (method, _request, sink, { signal }) => {
      methods.push(`${name} ${method}`);
      if (method === Recent.path) return Promise.resolve();
      void sink.write(ActorFeed.encode(snapshot(1, 1, beginning)));
      return new Promise((resolve) => signal.addEventListener("abort", () => resolve()));
    },
    close: () => (closed += 1),
  });
  const timeline = new LiveTimeline({
    connect() {
      const connecting = Promise.withResolvers<UiBackend>();
      waiting.push(connecting);
      return connecting.promise;
    },
    limits: { ...timelineLimits, holdMs: 20, lingerMs: 1, beginQuietMs: 50, beginMsMax: 500 },
  });
  t.teardown(() => timeline.stop());
  const unused: CallMethod = () => Promise.reject(new RpcError(Status.UNIMPLEMENTED, "of the cluster"));
  const page = () => timeline.session({ hello: UiHello.create(), backend: { call: unused } }).backend;
  page().close?.();
  // The page that is loaded after the time line was given up; its feed is a second one.
  const second = await until("a second connection", async () => {
    const next = page();
    if (waiting.length === 2) return next;
    next.close?.();
    await new Promise((resolve) => setTimeout(resolve, 10));
    return null;
  });
  waiting[1]?.resolve(backendNamed("second"));
  waiting[0]?.resolve(backendNamed("first"));
  await until("the second feed to be read", () => methods.includes(`second ${Recent.path}`));
  t.is(closed, 1);
  t.deepEqual(methods, [`second ${Watch.path}`, `second ${Recent.path}`]);
  second.close?.();
});
