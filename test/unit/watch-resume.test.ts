/**
 * Watchers that lose their manager repeatedly, and resume at another one from their last version: each must finally have
 * received the same as one that was never interrupted.
 */
import test from "ava";
import fc from "fast-check";
import { createWatch, type Watch } from "../../actors/watch/watch.ts";
import {
  SelectBy,
  Task,
  Version,
  WatchMessage,
  WatchRequest,
  WatchRequest_WatchEntry,
  type TaskState,
} from "../../proto/gen/messages.ts";
import { Host } from "../../runtime/host.ts";
import { Status } from "../../runtime/ports/rpc.ts";
import { Replica } from "../../runtime/store/replica.ts";
import { snapshotName } from "../../runtime/store/snapshots.ts";
import { call, collectedStream, testManager, type CollectedStream, type TestManager } from "../support/manager.ts";
import { retainedOf, type TestLog } from "../support/retained.ts";

const managerCount = 3;
const nodes = ["n1", "n2", "n3"];

const questions = [
  [{ kind: "task", action: 7, filters: [] }],
  [{ kind: "task", action: 7, filters: [SelectBy.create({ nodeId: "n1" })] }],
  [
    { kind: "task", action: 5, filters: [SelectBy.create({ idPrefix: "t1" })] },
    { kind: "task", action: 2, filters: [SelectBy.create({ nodeId: "n2" })] },
  ],
].map((entries) => entries.map((entry) => WatchRequest_WatchEntry.create(entry as never)));

function requestFor(question: number, from: number): WatchRequest {
  return WatchRequest.create({
    entries: questions[question] ?? [],
    resumeFrom: Version.create({ index: from }),
    includeOldObject: true,
  });
}

type Told = readonly [version: number, bytes: string];

function toldOf(message: WatchMessage): Told {
  return [message.version?.index ?? 0, Buffer.from(WatchMessage.encode(message)).toString("latin1")];
}

/** A manager that lags behind the log, with a small memory of it. */
class Follower {
  readonly #leader: TestManager;
  readonly #retained: TestLog;
  #store = new Replica();
  #watch: Watch;

  constructor(leader: TestManager, retained: TestLog) {
    this.#leader = leader;
    this.#retained = retained;
    this.#watch = this.#start();
  }

  get version(): number {
    return this.#store.version;
  }

  #start(): Watch {
    const { env, clock } = this.#leader;
    const host = new Host({
      clock,
      telemetry: env.telemetry,
      onCrash: (id, error) => {
        throw new Error(`actor ${id} crashed`, { cause: error });
      },
    });
    return createWatch({ ...env, host, store: this.#store }, this.#retained, { recentBytesMax: 8_000 });
  }

  /** Reads up to this many records; where they are purged, the newest snapshot. */
  follow(count: number): void {
    for (let at = 0; at < count && this.version < this.#leader.records.length; at += 1) {
      const next = this.version + 1;
      if (next < this.#retained.first) {
        const bytes = [...this.#retained.stored.values()].at(-1);
        if (bytes !== undefined) this.#store.load(bytes);
      } else this.#store.apply(next, this.#leader.records[next - 1] as Uint8Array);
    }
  }

  restart(): void {
    this.#watch.stop();
    this.#store = new Replica();
    this.#watch = this.#start();
  }

  open(request: WatchRequest, stream: CollectedStream<WatchMessage>, signal: AbortSignal): void {
    this.#watch.handlers.Watch(request, stream, call({}, signal));
  }

  stop(): void {
    this.#watch.stop();
  }
}

class Watcher {
  readonly question: number;
  readonly got: Told[] = [];
  /** Why it cannot continue; null while it can. */
  compactedAt: { readonly position: number; readonly first: number } | null = null;
  #stream: CollectedStream<WatchMessage> | null = null;
  #taken = 0;
  #buffered = 0;
  #gone = new AbortController();

  constructor(question: number) {
    this.question = question;
  }

  get position(): number {
    return this.got.at(-1)?.[0] ?? 0;
  }

  /** Reads what arrived; false when its stream has ended. */
  read(): boolean {
    const stream = this.#stream;
    if (stream === null) return false;
    for (const message of stream.messages.slice(this.#taken)) {
      this.#taken += 1;
      if (this.#taken === 1) {
        if (message.events.length > 0 || message.version !== null) throw new Error("the first message is not empty");
      } else this.got.push(toldOf(message));
    }
    if (stream.ended === undefined) return true;
    if (stream.ended?.code === Status.OUT_OF_RANGE && /compaction/.test(stream.ended.message)) {
      const first = Number(/oldest: (\d+)/.exec(stream.ended.message)?.[1]);
      this.compactedAt ??= { position: this.position, first };
    }
    this.#stream = null;
    return false;
  }

  drop(): void {
    this.#gone.abort();
    this.read();
    this.#stream = null;
  }

  connect(follower: Follower): void {
    this.drop();
    if (this.compactedAt !== null) return;
    this.#gone = new AbortController();
    this.#stream = collectedStream<WatchMessage>();
    this.#stream.buffered = this.#buffered;
    this.#taken = 0;
    follower.open(requestFor(this.question, this.position), this.#stream, this.#gone.signal);
  }

  /** Makes it read nothing for a while, on this stream and the next. */
  clog(bytes: number): void {
    this.#buffered = bytes;
    if (this.#stream !== null) this.#stream.buffered = bytes;
  }
}

type Step =
  | { readonly kind: "write"; readonly task: number; readonly node: number; readonly count: number }
  | { readonly kind: "remove"; readonly task: number }
  | { readonly kind: "follow"; readonly manager: number; readonly count: number }
  | { readonly kind: "restart"; readonly manager: number }
  | { readonly kind: "drop" | "clog" | "unclog"; readonly watcher: number }
  | { readonly kind: "connect"; readonly watcher: number; readonly manager: number }
  | { readonly kind: "snapshot" | "purge" }
  | { readonly kind: "pass"; readonly ms: number };

const watcherCount = 4;
const manager = fc.nat(managerCount - 1);
const watcher = fc.nat(watcherCount - 1);
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant("write" as const),
      task: fc.nat(12),
      node: fc.nat(3),
      count: fc.integer({ min: 1, max: 4 }),
    }),
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant("remove" as const), task: fc.nat(12) }) },
  { weight: 5, arbitrary: fc.record({ kind: fc.constant("follow" as const), manager, count: fc.nat(20) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("restart" as const), manager }) },
  {
    weight: 2,
    arbitrary: fc.record({ kind: fc.constantFrom("drop" as const, "clog" as const, "unclog" as const), watcher }),
  },
  { weight: 6, arbitrary: fc.record({ kind: fc.constant("connect" as const), watcher, manager }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constantFrom("snapshot" as const, "purge" as const) }) },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant("pass" as const), ms: fc.nat(50) }) },
);

async function play(steps: readonly Step[]): Promise<void> {
  const leader = testManager();
  const retained = retainedOf(leader);
  const wholeWatch = createWatch(leader.env, retained);
  const whole = questions.map((_, question) => {
    const stream = collectedStream<WatchMessage>();
    wholeWatch.handlers.Watch(requestFor(question, 0), stream, call());
    return stream;
  });
  const followers = Array.from({ length: managerCount }, () => new Follower(leader, retained));
  const watchers = Array.from({ length: watcherCount }, (_, at) => new Watcher(at % questions.length));
  const pass = (ms: number) => leader.clock.run({ untilMs: leader.clock.now() + ms });
  for (const each of steps) {
    switch (each.kind) {
      case "write": {
        const tasks = Array.from({ length: each.count }, (_, at) =>
          Task.create({
            id: `t${each.task + at}`,
            nodeId: nodes[each.node] ?? "",
            desiredState: (leader.store.version * 64) as TaskState,
          }),
        );
        leader.seed("task", ...tasks);
        break;
      }
      case "remove":
        leader.drop("task", `t${each.task}`);
        break;
      case "follow":
        followers[each.manager]?.follow(each.count);
        break;
      case "restart":
        followers[each.manager]?.restart();
        break;
      case "drop":
        watchers[each.watcher]?.drop();
        break;
      case "clog":
        watchers[each.watcher]?.clog(5 * 1024 * 1024);
        break;
      case "unclog":
        watchers[each.watcher]?.clog(0);
        break;
      case "connect":
        watchers[each.watcher]?.connect(followers[each.manager] as Follower);
        break;
      case "snapshot":
        if (leader.store.version > 0) retained.stored.set(snapshotName(leader.store.version), leader.store.snapshot());
        break;
      case "purge": {
        // As the snapshot writer does: keeps the two newest, and the log after the older of them.
        const kept = [...retained.stored.keys()].slice(-2);
        for (const name of retained.stored.keys()) if (!kept.includes(name)) retained.stored.delete(name);
        if (kept[0] !== undefined) retained.first = Math.max(retained.first, Number(kept[0].slice(9)) + 1);
        break;
      }
      case "pass":
        await pass(each.ms);
        break;
    }
  }
  // Everybody catches up, and whoever lost its stream reconnects until it has everything.
  for (const follower of followers) follower.follow(Number.POSITIVE_INFINITY);
  for (const each of watchers) each.clog(0);
  for (let round = 0; round < 12; round += 1) {
    await pass(300);
    for (const [at, each] of watchers.entries())
      if (!each.read()) each.connect(followers[(at + round) % managerCount] as Follower);
  }
  await pass(2_000);
  for (const each of watchers) {
    each.read();
    const wanted = (whole[each.question]?.messages.slice(1) ?? []).map(toldOf);
    const { compactedAt, got } = each;
    if (compactedAt !== null && compactedAt.position >= compactedAt.first)
      throw new Error(`rejected at ${compactedAt.position} although ${compactedAt.first} is retained`);
    const expected = compactedAt === null ? wanted : wanted.slice(0, got.length);
    if (JSON.stringify(got) !== JSON.stringify(expected)) {
      const versions = (list: readonly Told[]): string => list.map(([version]) => version).join(" ");
      throw new Error(`question ${each.question}: got ${versions(got)}, wanted ${versions(expected)}`);
    }
  }
  for (const each of [...followers, wholeWatch]) each.stop();
}

test("a watcher that resumes elsewhere from its last version gets each change once and in order", async (t) => {
  t.timeout(60_000);
  // A manager that jumps by a snapshot to the very next version, whose order of changes the snapshot does not have.
  const jump: Step[] = [
    { kind: "write", task: 12, node: 0, count: 1 },
    { kind: "follow", manager: 0, count: 1 },
    { kind: "connect", watcher: 0, manager: 0 },
    { kind: "pass", ms: 5 },
    { kind: "write", task: 11, node: 0, count: 2 },
    { kind: "snapshot" },
    { kind: "purge" },
  ];
  await fc.assert(fc.asyncProperty(fc.array(step, { minLength: 10, maxLength: 80 }), play), {
    numRuns: 150,
    examples: [[jump]],
  });
  t.pass();
});
