import test from "ava";
import {
  createWatch,
  watchBufferBytesMax,
  watchersBufferBytesMax,
  type WatchOptions,
} from "../../actors/watch/watch.ts";
import { Fanout } from "../../actors/watch/fanout.ts";
import { RecentCommits } from "../../actors/watch/recent.ts";
import { watchEntriesMax, watchFilter } from "../../machines/watch/filter.ts";
import { watchTimes } from "../../machines/watch/watch.machine.ts";
import {
  Annotations,
  CreateSecretRequest,
  Extension,
  Resource,
  SecretSpec,
  SelectBy,
  Session,
  Task,
  TaskState,
  TaskStatus,
  Version,
  WatchMessage,
  WatchRequest,
  WatchRequest_WatchEntry,
} from "../../proto/gen/messages.ts";
import { Status } from "../../runtime/ports/rpc.ts";
import { snapshotName } from "../../runtime/store/snapshots.ts";
import { createdService, spec, updateOf, workerNode, world } from "../support/control.ts";
import { call, collectedStream, refusalOf, testManager, type CollectedStream } from "../support/manager.ts";
import { retainedOf, TestLog } from "../support/retained.ts";

function watching(kind: string, fields: Partial<WatchRequest_WatchEntry> = {}): WatchRequest {
  return WatchRequest.create({ entries: [WatchRequest_WatchEntry.create({ kind, action: 7, ...fields } as never)] });
}

function resuming(kind: string, index: number, includeOldObject = false): WatchRequest {
  return WatchRequest.patch(watching(kind), { resumeFrom: Version.create({ index }), includeOldObject });
}

/** A manager with Watch; `open` starts a stream. */
function watched(options: WatchOptions = {}) {
  const manager = testManager();
  const retained = retainedOf(manager);
  const watch = createWatch(manager.env, retained, options);
  const open = (request: WatchRequest, signal?: AbortSignal, buffered = 0): CollectedStream<WatchMessage> => {
    const stream = collectedStream<WatchMessage>();
    stream.buffered = buffered;
    watch.handlers.Watch(request, stream, call({}, signal));
    return stream;
  };
  const { clock } = manager;
  const runs = (ms: number) => clock.run({ untilMs: clock.now() + ms });
  return { ...manager, retained, watch, open, runs };
}

function task(id: string, state: number, fields: Partial<Task> = {}): Task {
  return Task.create({
    id,
    status: TaskStatus.create({ state: state as TaskState }),
    desiredState: TaskState.RUNNING,
    ...fields,
  });
}

function versions(stream: CollectedStream<WatchMessage>): readonly (number | undefined)[] {
  return stream.messages.map(({ version }) => version?.index);
}

function bytesOf(stream: CollectedStream<WatchMessage>): readonly string[] {
  return stream.messages.map((message) => Buffer.from(WatchMessage.encode(message)).toString("base64"));
}

test("a watch begins with an empty message and then sends each transaction with its version", async (t) => {
  const { control, env, store, seed, manager } = world();
  const watch = createWatch(env, retainedOf(manager)).handlers;
  const stream = collectedStream<WatchMessage>();
  const gone = new AbortController();
  watch.Watch(WatchRequest.patch(watching("service"), { includeOldObject: true }), stream, call({}, gone.signal));
  t.deepEqual(
    stream.messages.map(({ events, version }) => [events.length, version]),
    [[0, null]],
  );
  const service = await createdService(control, spec("web"));
  seed("node", workerNode("n1"));
  await control.UpdateService(updateOf(service, { spec: spec("web", 2) }), call());
  t.is(stream.messages.length, 3);
  const last = stream.messages[2];
  t.is(last?.version?.index, store.version);
  t.is(last?.events[0]?.object?.service?.spec?.replicated?.replicas, 2);
  t.is(last?.events[0]?.oldObject?.service?.spec?.replicated?.replicas, 1);
  gone.abort();
  await createdService(control, spec("db"));
  t.is(stream.messages.length, 3);
});

test("a watch with selectors gets objects that match or matched, and never a secret's data", async (t) => {
  const { control, env, seed, manager } = world();
  const watch = createWatch(env, retainedOf(manager)).handlers;
  const tasks = collectedStream<WatchMessage>();
  watch.Watch(
    watching("task", {
      filters: [SelectBy.create({ nodeId: "n1" }), SelectBy.create({ desiredState: TaskState.RUNNING })],
    }),
    tasks,
    call(),
  );
  const wanted = (desiredState: TaskState, nodeId: string) => Task.create({ id: "t1", nodeId, desiredState });
  seed("task", wanted(TaskState.RUNNING, ""));
  t.is(tasks.messages.length, 1);
  seed("task", wanted(TaskState.RUNNING, "n1"));
  seed("task", wanted(TaskState.SHUTDOWN, "n1"));
  seed("task", wanted(TaskState.REMOVE, "n1"));
  t.is(tasks.messages.length, 3);
  const secrets = collectedStream<WatchMessage>();
  watch.Watch(WatchRequest.patch(watching("secret"), { includeOldObject: true }), secrets, call());
  const data = new TextEncoder().encode("CANARY-4711");
  const secretSpec = SecretSpec.create({ annotations: Annotations.create({ name: "pw" }), data });
  await control.CreateSecret(CreateSecretRequest.create({ spec: secretSpec }), call());
  t.is(secrets.messages[1]?.events[0]?.object?.secret?.spec?.annotations?.name, "pw");
  const replayed = collectedStream<WatchMessage>();
  watch.Watch(resuming("secret", 0, true), replayed, call());
  t.is(replayed.messages.length, 2);
  for (const stream of [secrets, replayed])
    for (const message of stream.messages)
      t.false(Buffer.from(WatchMessage.encode(message)).includes("CANARY"), "a secret's data is in a message");
});

test("a meaningless watch is rejected", async (t) => {
  const { open } = watched();
  const refusal = (request: WatchRequest) => refusalOf(() => open(request));
  t.like(await refusal(WatchRequest.create({})), {
    code: Status.INVALID_ARGUMENT,
    message: "no kind of object specified",
  });
  t.is((await refusal(watching("")))?.message, "no kind of object specified");
  t.regex((await refusal(watching("servise")))?.message ?? "", /unknown kind 'servise'/);
  const entry = WatchRequest_WatchEntry.create({ kind: "task", action: 7 as never });
  const many = WatchRequest.create({ entries: Array.from({ length: watchEntriesMax + 1 }, () => entry) });
  t.regex((await refusal(many))?.message ?? "", /too many entries: 1001, limit 1000/);
});

test("kinds registered by an extension are watched by name, all of their resources by 'resource'", async (t) => {
  const { open, seed, drop } = watched();
  const kind = "backup";
  t.regex((await refusalOf(() => open(watching(kind))))?.message ?? "", /or a kind registered by an extension/);
  seed("extension", Extension.create({ id: "x1", annotations: Annotations.create({ name: kind }) }));
  t.regex((await refusalOf(() => open(watching("Backup"))))?.message ?? "", /unknown kind 'Backup'/);
  const own = open(watching(kind));
  const all = open(watching("resource"));
  const one = open(watching("resource", { filters: [SelectBy.create({ kind })] }));
  const schedules = open(watching("muster.schedule"));
  seed("resource", Resource.create({ id: "r1", kind }), Resource.create({ id: "r2", kind: "muster.schedule" }));
  drop("resource", "r1");
  const ids = (stream: CollectedStream<WatchMessage>) =>
    stream.messages.flatMap(({ events }) => events.map(({ action, object }) => `${object?.resource?.id} ${action}`));
  t.deepEqual(ids(own), ["r1 1", "r1 4"]);
  t.deepEqual(ids(one), ["r1 1", "r1 4"]);
  t.deepEqual(ids(all), ["r1 1", "r2 1", "r1 4"]);
  t.deepEqual(ids(schedules), ["r2 1"]);
});

test("Muster's own records cannot be watched", (t) => {
  const { open, seed } = watched();
  const entries = ["node", "service", "task", "resource", "cluster"].flatMap((kind) => watching(kind).entries);
  const stream = open(WatchRequest.create({ entries }));
  seed("session", Session.create({ id: "n1" }));
  t.is(stream.messages.length, 1);
});

test("a stopping manager ends its watches, and accepts no more", async (t) => {
  const { open, watch } = watched();
  const stream = open(watching("node"));
  t.is(watch.size(), 1);
  watch.stop();
  t.is(stream.ended?.code, Status.UNAVAILABLE);
  t.is(watch.size(), 0);
  t.is((await refusalOf(() => open(watching("node"))))?.code, Status.UNAVAILABLE);
});

test("a watcher that does not read is cut off, and can resume from its last version", (t) => {
  const { open, seed, watch, clock } = watched();
  const stream = open(watching("node"));
  seed("node", workerNode("n1"));
  stream.buffered = watchBufferBytesMax + 1;
  seed("node", workerNode("n2"));
  t.is(stream.ended?.code, Status.RESOURCE_EXHAUSTED);
  seed("node", workerNode("n3"));
  clock.advance(1);
  t.deepEqual([versions(stream), watch.size()], [[undefined, 1], 0]);
  t.deepEqual(versions(open(resuming("node", 1))), [undefined, 2, 3]);
});

test("if many watchers are slow, they are cut off, the furthest behind first", (t) => {
  const { open, seed, clock } = watched();
  const entries = ["node", "task", "service"].flatMap((kind) => watching(kind).entries);
  // Each has another question, so none of their queues is shared.
  const streams = Array.from({ length: 40 }, (_, at) =>
    open(
      WatchRequest.create({
        entries: [...entries, ...watching("node", { filters: [SelectBy.create({ id: `${at}` })] }).entries],
      }),
    ),
  );
  for (const stream of streams.slice(0, 20)) stream.buffered = watchBufferBytesMax - 1;
  clock.advance(1_000);
  seed("node", workerNode("n1"));
  const cut = streams.filter(({ ended }) => ended?.code === Status.RESOURCE_EXHAUSTED);
  t.true(cut.length > 0 && cut.length <= 20);
  t.true((20 - cut.length) * watchBufferBytesMax <= watchersBufferBytesMax);
  t.true(streams.slice(20).every(({ ended }) => ended === undefined));
});

test("a message queued for many watchers of one question counts once: they queue the same bytes", (t) => {
  const { open, seed, clock } = watched();
  const streams = Array.from({ length: 100 }, () => open(watching("node")));
  for (const stream of streams) stream.buffered = watchBufferBytesMax - 1;
  clock.advance(1_000);
  seed("node", workerNode("n1"));
  t.true(streams.every(({ ended }) => ended === undefined));
});

test("a resumed watch gets the same as a live one, from memory and from the log, with old objects", async (t) => {
  for (const recentBytesMax of [undefined, 0]) {
    const { open, seed, runs, store } = watched(recentBytesMax === undefined ? {} : { recentBytesMax });
    const ask = (index: number) =>
      WatchRequest.patch(resuming("task", index, true), {
        entries: [...watching("task").entries, ...watching("node").entries],
      });
    seed("node", workerNode("n1"));
    const live = open(ask(store.version));
    for (let at = 0; at < 10; at += 1) seed("task", task("t1", at * 64), task(`u${at}`, TaskState.NEW));
    seed("service", { id: "s1" } as never);
    seed("node", workerNode("n1", { status: null }));
    const resumed = open(ask(1));
    await runs(100);
    t.is(live.messages.length, 12);
    t.deepEqual(bytesOf(resumed), bytesOf(live));
    // And both continue together.
    seed("task", task("t1", TaskState.RUNNING));
    t.is(resumed.messages.length, 13);
    t.deepEqual(bytesOf(resumed), bytesOf(live));
    t.is(resumed.ended, undefined);
  }
});

test("a resumed watch starts from a snapshot where the log is purged, and names the oldest version where it cannot", async (t) => {
  const { open, seed, runs, retained, store } = watched({ recentBytesMax: 0 });
  for (let at = 1; at <= 20; at += 1) {
    seed("task", task("t1", at));
    if (at % 8 === 0) retained.stored.set(snapshotName(at), store.snapshot());
  }
  retained.first = 9;
  const resumed = open(resuming("task", 11, true));
  const tooOld = open(resuming("task", 7));
  await runs(1_000);
  t.deepEqual(versions(resumed), [undefined, 12, 13, 14, 15, 16, 17, 18, 19, 20]);
  t.is(resumed.messages[1]?.events[0]?.oldObject?.task?.status?.state, 11 as TaskState);
  t.deepEqual(versions(tooOld), []);
  t.is(tooOld.ended?.code, Status.OUT_OF_RANGE);
  t.regex(tooOld.ended?.message ?? "", /^requested index is unavailable due to compaction.*\(oldest: 8\)/);
});

test("a watch that resumes ahead of its manager waits for it, and is rejected if the log has no such version", async (t) => {
  const { open, seed, store, runs, retained, records } = watched();
  seed("task", task("t1", 1));
  const future = open(resuming("task", 99));
  await runs(10);
  t.is(future.ended?.code, Status.OUT_OF_RANGE);
  t.regex(future.ended?.message ?? "", /^versions are out of order: version 99/);
  t.deepEqual(versions(future), []);
  // The log is ahead of this replica.
  Object.assign(retained.log, { bounds: () => Promise.resolve({ first: 1, last: 3 }) });
  const ahead = open(resuming("task", 3));
  await runs(1_000);
  t.deepEqual([versions(ahead), ahead.ended], [[], undefined]);
  for (const state of [2, 3, 4]) seed("task", task("t1", state));
  t.deepEqual(versions(ahead), [undefined, 4]);
  const never = open(resuming("task", store.version + 1));
  Object.assign(retained.log, { bounds: () => Promise.resolve({ first: 1, last: records.length + 5 }) });
  await runs(watchTimes.behindMs + 10);
  t.is(never.ended?.code, Status.OUT_OF_RANGE);
});

test("a watch of a manager that does not catch up, or cannot read its log, is sent elsewhere", async (t) => {
  const { open, seed, runs, retained } = watched({ recentBytesMax: 0 });
  for (let at = 1; at <= 5; at += 1) seed("task", task("t1", at));
  Object.assign(retained.log, { bounds: () => Promise.resolve({ first: 1, last: 9 }) });
  const ahead = open(resuming("task", 9));
  await runs(watchTimes.behindMs + 10);
  t.is(ahead.ended?.code, Status.UNAVAILABLE);
  Object.assign(retained.log, { bounds: () => Promise.resolve(null) });
  const resumed = open(resuming("task", 2));
  await runs(10_000);
  t.is(resumed.ended?.code, Status.UNAVAILABLE);
});

test("a replay waits for a watcher that reads slowly, and cuts off one that does not read at all", async (t) => {
  for (const recentBytesMax of [undefined, 0]) {
    const { open, seed, runs, watch } = watched(recentBytesMax === undefined ? {} : { recentBytesMax });
    for (let at = 1; at <= 50; at += 1) seed("task", task("t1", at));
    const slow = open(resuming("task", 1), undefined, 5 * 1024 * 1024);
    await runs(1_000);
    const early = slow.messages.length;
    t.true(early < 5, `${early} messages`);
    slow.buffered = 0;
    await runs(1_000);
    t.is(slow.messages.length, 50);
    const stuck = open(resuming("task", 1), undefined, 5 * 1024 * 1024);
    await runs(watchTimes.stallMs + 1_000);
    t.is(stuck.ended?.code, Status.RESOURCE_EXHAUSTED, String(recentBytesMax));
    t.is(watch.size(), 1);
  }
});

test("many concurrent replays share the queue limit, and all finish", async (t) => {
  const { open, seed, runs, watch } = watched();
  for (let at = 1; at <= 50; at += 1) seed("task", task("t1", at));
  const half = 512 * 1024;
  // Alone it has more capacity.
  const alone = open(resuming("task", 1), undefined, half);
  t.is(alone.messages.length, 50);
  const streams = Array.from({ length: 1_000 }, () => open(resuming("task", 1), undefined, 4 * half));
  for (const stream of streams) stream.buffered = half;
  await runs(100);
  t.true(streams.every(({ messages }) => messages.length < 5));
  for (const stream of streams) stream.buffered = 0;
  await runs(1_000);
  t.true(streams.every(({ messages, ended }) => messages.length === 50 && ended === undefined));
  t.is(watch.size(), 1_001);
});

test("a live watcher is notified when the replica loads a snapshot in place of records", async (t) => {
  const { open, seed, store, runs, records, retained, clock } = watched();
  seed("task", task("t1", 1));
  const other = testManager();
  for (const record of records) other.store.apply(other.store.version + 1, record);
  for (let at = 2; at <= 6; at += 1) other.seed("task", task("t1", at));
  const live = open(watching("task"));
  store.load(other.store.snapshot());
  t.is(live.ended?.code, Status.OUT_OF_RANGE);
  // The records between are still available where the log has them.
  Object.assign(retained.log, new TestLog([...records, ...other.records], clock).log);
  const again = open(resuming("task", 1));
  await runs(100);
  seed("task", task("t1", 7));
  t.deepEqual(versions(again), [undefined, 2, 3, 4, 5, 6, 7]);
});

test("callers that leave while they wait leave nothing behind", async (t) => {
  const { open, seed, runs, watch, retained, env } = watched({ recentBytesMax: 0 });
  for (let at = 1; at <= 50; at += 1) seed("task", task("t1", at));
  const gone = new AbortController();
  const before = [...env.host.ids()].length;
  open(watching("task"), gone.signal);
  open(resuming("task", 1), gone.signal);
  open(resuming("task", 50), gone.signal);
  open(resuming("task", 1), gone.signal, 5 * 1024 * 1024);
  await runs(3);
  gone.abort();
  await runs(2_000);
  t.deepEqual([watch.size(), retained.readings.size, [...env.host.ids()].length], [0, 0, before]);
});

test("equal questions are answered with one message, and equal answers too", (t) => {
  const { store, seed } = testManager();
  const fanout = new Fanout();
  const filters = (kind: string, ...by: readonly SelectBy[]) => {
    const outcome = watchFilter(WatchRequest_WatchEntry.create({ kind, action: 7 as never, filters: by }), () => false);
    if (outcome.kind === "refused") throw new Error(outcome.refusal.message);
    return [outcome.filter];
  };
  const got = new Map<string, WatchMessage[]>();
  const listen = (name: string, key: string, asked: ReturnType<typeof filters>, includesOld = false) => {
    const messages: WatchMessage[] = [];
    got.set(name, messages);
    fanout.add({ question: { key, filters: asked, includesOld }, tell: (message) => void messages.push(message) });
  };
  listen("a", "tasks", filters("task"));
  listen("b", "tasks", filters("task"));
  listen("c", "of n1", filters("task", SelectBy.create({ nodeId: "n1" })));
  listen("d", "with old", filters("task"), true);
  listen("e", "of n2", filters("task", SelectBy.create({ nodeId: "n2" })));
  store.watch((commit) => void fanout.tell(commit));
  seed("task", task("t1", 1, { nodeId: "n1" }));
  const [a, b, c, d, e] = [...got.values()].map((messages) => messages[0]);
  t.true(a === b && a === c);
  t.true(d !== undefined && d !== a);
  t.is(e, undefined);
  t.deepEqual([fanout.size, fanout.audiences], [5, 4]);
});

test("memory of recent commits is bounded, and reports what it no longer covers", (t) => {
  const recent = new RecentCommits(10, 5_000);
  const { store, seed } = testManager();
  const commits: Parameters<RecentCommits["push"]>[0][] = [];
  store.watch((commit) => void commits.push(commit));
  for (let at = 1; at <= 3_000; at += 1) seed("task", task("t1", at % 64));
  for (const commit of commits) recent.push({ ...commit, version: commit.version + 10 });
  t.is(recent.version, 3_010);
  t.is(recent.size, 6);
  t.deepEqual(
    [recent.covers(3_003), recent.covers(3_004), recent.covers(3_010), recent.covers(3_011)],
    [false, true, true, false],
  );
  t.is(recent.next(3_004)?.version, 3_005);
  t.is(recent.next(3_010), undefined);
});
