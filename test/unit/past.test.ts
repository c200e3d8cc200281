import test from "ava";
import fc from "fast-check";
import { Pasts } from "../../actors/history/pasts.ts";
import { replayTo } from "../../actors/history/replay.ts";
import { rebuildsWaitingMax, Turns } from "../../actors/history/turns.ts";
import { UsageError } from "../../lib/user-error.ts";
import { parseMoment } from "../../cli/moment.ts";
import { Node, NodeSpec, Task, TaskState, TaskStatus } from "../../proto/gen/messages.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import type { Log, LogReader } from "../../runtime/ports/index.ts";
import { SimClock } from "../../runtime/sim/clock.ts";
import { Replica } from "../../runtime/store/replica.ts";
import { snapshotName } from "../../runtime/store/snapshots.ts";
import { testManager } from "../support/manager.ts";
import { retainedOf } from "../support/retained.ts";

function world() {
  const manager = testManager();
  const retained = retainedOf(manager);
  const { clock, telemetry } = manager.env;
  const parts = { log: retained.log, blobs: retained.blobs, clock, telemetry };
  const turns = new Turns(rebuildsWaitingMax);
  const pasts = new Pasts(parts, turns);
  /** Advances the clock until it is settled. */
  const settled = async <Value>(promise: Promise<Value>): Promise<Value | RpcError> => {
    let outcome: { value: Value | RpcError } | null = null;
    promise.then(
      (value) => (outcome = { value }),
      (error: unknown) => (outcome = { value: error as RpcError }),
    );
    await manager.clock.run({ until: () => outcome !== null });
    if (outcome === null) throw new Error("never settled");
    return (outcome as { value: Value | RpcError }).value;
  };
  return { manager, retained, turns, pasts, settled, at: (version: number) => settled(pasts.at(version)) };
}

/** One change of the state. */
type Step =
  | { readonly kind: "task"; readonly at: number; readonly state: TaskState }
  | { readonly kind: "node"; readonly at: number; readonly drained: boolean }
  | { readonly kind: "drop"; readonly at: number }
  | { readonly kind: "snapshot" };

const steps: fc.Arbitrary<readonly Step[]> = fc.array(
  fc.oneof(
    {
      weight: 6,
      arbitrary: fc.record({
        kind: fc.constant("task" as const),
        at: fc.nat(5),
        state: fc.constantFrom(...Object.values(TaskState)),
      }),
    },
    { weight: 2, arbitrary: fc.record({ kind: fc.constant("node" as const), at: fc.nat(2), drained: fc.boolean() }) },
    { weight: 2, arbitrary: fc.record({ kind: fc.constant("drop" as const), at: fc.nat(5) }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant("snapshot" as const) }) },
  ),
  { minLength: 1, maxLength: 40 },
);

test("the state rebuilt at any version equals the state at that time, wherever snapshots and the purge are", async (t) => {
  const asked = fc.array(fc.nat(60), { minLength: 1, maxLength: 12 });
  await fc.assert(
    fc.asyncProperty(steps, asked, fc.nat(5), async (changes, versions, purgedTo) => {
      const { manager, retained, at, pasts } = world();
      const hashes = new Map<number, string>([[0, manager.store.stateHash()]]);
      const snapshots: number[] = [];
      for (const step of changes) {
        if (step.kind === "task") {
          const status = TaskStatus.create({ state: step.state });
          manager.seed("task", Task.create({ id: `t${step.at}`, serviceId: "s", slot: step.at, status }));
        } else if (step.kind === "node") {
          manager.seed(
            "node",
            Node.create({ id: `n${step.at}`, spec: NodeSpec.create({ availability: step.drained ? 2 : 0 }) }),
          );
        } else if (step.kind === "drop") manager.drop("task", `t${step.at}`);
        else if (manager.store.version > 0) {
          retained.stored.set(snapshotName(manager.store.version), manager.store.snapshot());
          snapshots.push(manager.store.version);
        }
        hashes.set(manager.store.version, manager.store.stateHash());
      }
      // As the writer of snapshots does it: everything before some retained one is purged.
      const base = snapshots[purgedTo];
      if (base !== undefined) {
        retained.first = base + 1;
        for (const sequence of snapshots) if (sequence < base) retained.stored.delete(snapshotName(sequence));
      }
      for (const version of versions) {
        const found = await at(version);
        if (version > manager.store.version || version < (base ?? 0)) {
          // A future version is rejected earlier; nobody waits for it forever.
          t.true(found instanceof RpcError, `version ${version}`);
        } else {
          t.false(found instanceof RpcError, `version ${version}: ${found instanceof RpcError ? found.message : ""}`);
          t.is((found as Replica).stateHash(), hashes.get(version) ?? "");
          t.is((found as Replica).version, version);
        }
        t.true(pasts.size <= 2);
      }
      pasts.stop();
    }),
    { numRuns: 60 },
  );
});

test("a damaged snapshot is skipped in favour of the previous one", async (t) => {
  const { manager, retained, at } = world();
  const hashes: string[] = [""];
  for (let version = 1; version <= 30; version += 1) {
    manager.seed("task", Task.create({ id: `t${version % 7}`, slot: version }));
    hashes.push(manager.store.stateHash());
    if (version % 10 === 0) retained.stored.set(snapshotName(version), manager.store.snapshot());
  }
  retained.stored.set(snapshotName(20), (retained.stored.get(snapshotName(20)) as Uint8Array).subarray(0, 20));
  retained.first = 11;
  t.is(((await at(25)) as Replica).stateHash(), hashes[25] ?? "");
});

test("a snapshot that is listed but cannot be read is skipped in favour of the log or the previous one", async (t) => {
  for (const first of [1, 11]) {
    const { manager, retained, at } = world();
    const hashes: string[] = [""];
    for (let version = 1; version <= 30; version += 1) {
      manager.seed("task", Task.create({ id: `t${version % 7}`, slot: version }));
      hashes.push(manager.store.stateHash());
      if (version === 20 || version === first - 1) retained.stored.set(snapshotName(version), manager.store.snapshot());
    }
    retained.first = first;
    const { get } = retained.blobs;
    // As an object store does whose value lost a chunk.
    retained.blobs.get = (name) => (name === snapshotName(20) ? Promise.resolve(null) : get(name));
    t.is(((await at(25)) as Replica).stateHash(), hashes[25] ?? "");
  }
});

test("states are cached for a while, advanced rather than rebuilt, and then dropped", async (t) => {
  const { manager, retained, at, pasts } = world();
  for (let version = 1; version <= 40; version += 1) manager.seed("task", Task.create({ id: "t", slot: version }));
  const reads: number[] = [];
  const { read } = retained.log;
  retained.log.read = (from, reader) => {
    reads.push(from);
    return read(from, reader);
  };
  const ten = await at(10);
  t.is(await at(10), ten, "the same");
  t.deepEqual(reads, [1]);
  t.is(await at(30), ten, "taken further");
  t.deepEqual(reads, [1, 11]);
  await at(5);
  await at(20);
  t.is(pasts.size, 2);
  manager.clock.advance(60_000);
  t.is(pasts.size, 0);
});

test("one read of the past runs at a time; beyond a number of waiting ones, the next is rejected", async (t) => {
  const { manager, settled, pasts, turns } = world();
  for (let version = 1; version <= 40; version += 1) manager.seed("task", Task.create({ id: "t", slot: version }));
  const gone = new AbortController();
  const first = pasts.at(1);
  const given = pasts.at(2, gone.signal);
  gone.abort();
  const more = Array.from({ length: rebuildsWaitingMax - 1 }, (_, at) => pasts.at(at + 3));
  const refused = await settled(pasts.at(39));
  t.like(refused, { code: Status.RESOURCE_EXHAUSTED });
  t.is(((await settled(first)) as Replica).version >= 1, true);
  t.like(await settled(given), { code: Status.CANCELLED });
  for (const one of more) t.false((await settled(one)) instanceof RpcError);
  t.is(turns.size, 0);
});

test("a log that does not answer makes nobody wait forever", async (t) => {
  const { manager, retained, at } = world();
  manager.seed("task", Task.create({ id: "t" }));
  retained.isUp = false;
  t.like(await at(1), { code: Status.UNAVAILABLE });
});

const now = Date.UTC(2026, 0, 1, 12);

test("any text is a moment, or rejected as a usage error", (t) => {
  const alphabet = fc.constantFrom(...Array.from("0123456789-:.TZ+ hmsnµu eE/\0é"));
  const texts = fc.oneof(
    fc.string(),
    fc.string({ unit: alphabet, maxLength: 40 }),
    fc.tuple(fc.nat(9_999), fc.nat(99), fc.nat(99), fc.nat(99), fc.nat(99)).map(([year, month, day, hour, minute]) => {
      const two = (value: number): string => String(value).padStart(2, "0");
      return `${String(year).padStart(4, "0")}-${two(month)}-${two(day)}T${two(hour)}:${two(minute)}Z`;
    }),
  );
  fc.assert(
    fc.property(texts, (text) => {
      try {
        const moment = parseMoment(text, now, "at");
        if ("version" in moment) return Number.isSafeInteger(moment.version) && moment.version >= 0;
        const { seconds, nanos } = moment.time;
        return Number.isSafeInteger(seconds) && Number.isInteger(nanos) && nanos >= 0 && nanos < 1e9;
      } catch (error) {
        return error instanceof UsageError;
      }
    }),
    { numRuns: 3_000 },
  );
  t.pass();
});

test("every time is parsed exactly, to the nanosecond", (t) => {
  const times = fc.record({
    ms: fc.integer({ min: 0, max: 4e12 }),
    nanos: fc.nat(999_999_999),
    zone: fc.integer({ min: -14 * 60, max: 14 * 60 }),
  });
  fc.assert(
    fc.property(times, ({ ms, nanos, zone }) => {
      const seconds = Math.floor(ms / 1_000);
      const local = new Date((seconds + zone * 60) * 1_000).toISOString().slice(0, 19);
      const two = (value: number): string => String(value).padStart(2, "0");
      const offset = `${zone < 0 ? "-" : "+"}${two(Math.floor(Math.abs(zone) / 60))}:${two(Math.abs(zone) % 60)}`;
      const moment = parseMoment(`${local}.${String(nanos).padStart(9, "0")}${offset}`, now);
      return "time" in moment && moment.time.seconds === seconds && moment.time.nanos === nanos;
    }),
  );
  for (const wrong of [
    "2026-02-30",
    "2026-02-30T00:00:00Z",
    "2026-13-01",
    "2026-01-01T25:00:00Z",
    "99999999999999999999",
    "1e3",
    "9".repeat(400) + "h",
    "-5m",
    "5m ago",
  ]) {
    t.throws(() => parseMoment(wrong, now), { instanceOf: UsageError }, wrong);
  }
  t.like(parseMoment("2024-02-29", now), { time: { seconds: Date.UTC(2024, 1, 29) / 1_000 } });
  t.like(parseMoment("2026-01-01 11:00Z", now), { time: { seconds: now / 1_000 - 3_600 } });
});

test("a log that delivers everything at once is applied in slices, and the backlog is bounded", async (t) => {
  const { manager, settled } = world();
  const message = "x".repeat(100_000);
  for (let at = 1; at <= 150; at += 1) {
    manager.seed(
      "task",
      Task.create({ id: "t", slot: at, status: TaskStatus.create({ message: `${at} ${message}` }) }),
    );
  }
  let reads = 0;
  let others = 0;
  const ahead = new Set<number | undefined>();
  const replica = new Replica();
  const log = {
    ...retainedOf(manager).log,
    read: (from: number, reader: LogReader, aheadBytes?: number) => {
      reads += 1;
      ahead.add(aheadBytes);
      let isOpen = true;
      manager.clock.setTimeout(() => {
        // As a link with much to read does it, within one turn.
        for (let next = from; isOpen && next <= manager.records.length; next += 1) {
          reader.onRecord(next, manager.records[next - 1] as Uint8Array);
        }
      }, 1);
      return { unsubscribe: () => void (isOpen = false) };
    },
  };
  const other = (): void => {
    others += 1;
    manager.clock.setTimeout(other, 0.1);
  };
  other();
  // Reading ends with the turn; until then further records are skipped.
  t.is(await settled(replayTo({ log, clock: manager.clock }, replica, 150)), "reached");
  t.is(replica.stateHash(), manager.store.stateHash());
  t.true(reads >= 3, `${reads} reads`);
  // A link that can be asked for less delivers less in one turn.
  t.deepEqual([...ahead], [32 * 1024]);
  t.true(others > 2);
});

test("R2: between two slices of records, other work gets as long as a slice took", async (t) => {
  const clock = new SimClock();
  const sliceMs = 7;
  const records = 10;
  let spentMs = 0;
  let version = 0;
  const measured = {
    setTimeout: clock.setTimeout.bind(clock),
    clearTimeout: clock.clearTimeout.bind(clock),
    soon: clock.soon.bind(clock),
    monotonic: () => clock.monotonic() + spentMs,
  } as unknown as SimClock;
  const log = {
    read: (_: number, reader: LogReader) => {
      clock.soon(() => {
        for (let next = 1; next <= records; next += 1) reader.onRecord(next, new Uint8Array(8));
      });
      return { unsubscribe: () => {} };
    },
  } as unknown as Log;
  const taker = {
    get version() {
      return version;
    },
    apply: () => {
      spentMs += sliceMs;
      version += 1;
    },
  };
  const begun = clock.now();
  const replayed = replayTo({ log, clock: measured }, taker, records).then((outcome) => {
    t.is(outcome, "reached");
    t.is(clock.now() - begun, (records - 1) * sliceMs);
  });
  await clock.run({ untilMs: begun + 1_000 });
  await replayed;
  t.plan(2);
});
