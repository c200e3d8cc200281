// Which snapshots a replica that follows the log starts from.
import test from "ava";
import { startFollowing } from "../../runtime/store/follow.ts";
import { MarkKeeper } from "../../runtime/store/log-mark.ts";
import { Replica } from "../../runtime/store/replica.ts";
import { snapshotName } from "../../runtime/store/snapshots.ts";
import { testManager } from "../support/manager.ts";
import { TestLog } from "../support/retained.ts";
import { memoryMark } from "../support/mark.ts";
import { put, replicaOf, service, Writer } from "./store-kit.ts";

/** A writer whose records after the third belong to a branch. */
function written(branch: string, records: number): Writer {
  const writer = new Writer();
  for (let at = 1; at <= records; at += 1) {
    const name = at <= 3 ? `s${at}` : `${branch}${at}`;
    writer.write([put({ service: service(name, name) })]);
  }
  return writer;
}

/** Follows `log` from nothing, with a snapshot of each of the writers. */
async function followed(log: Writer, snapshots: readonly Writer[], first = 1, seen: Writer | null = null) {
  const { env, clock } = testManager();
  const kept = new TestLog(log.records, env.clock);
  kept.first = first;
  for (const writer of snapshots) kept.stored.set(snapshotName(writer.records.length), replicaOf(writer).snapshot());
  const replica = new Replica();
  const broken: string[] = [];
  const marked = seen === null ? null : memoryMark(replicaOf(seen));
  const mark =
    marked === null ? undefined : new MarkKeeper({ replica, disk: marked, clock: env.clock, telemetry: env.telemetry });
  const follower = startFollowing({
    log: kept.log,
    blobs: kept.blobs,
    replica,
    clock: env.clock,
    telemetry: env.telemetry,
    mark,
    onBroken: (error) => broken.push(error.message),
  });
  await clock.run({
    until: () =>
      broken.length > 0 || (snapshots.length > 0 && kept.stored.size === 0) || replica.version === log.records.length,
  });
  follower.stop();
  const services = Array.from(replica.all("service"), ({ id }) => id).sort();
  mark?.stop();
  return { broken, services, snapshots: [...kept.stored.keys()] };
}

test("F6: a log that lacks records seen by the manager is rejected before any of it is applied", async (t) => {
  const lost = await followed(written("kept", 5), [], 1, written("kept", 8));
  t.regex(
    lost.broken.join(),
    /it ends at record 5, written at .*, but this manager has seen record 8, written at .* by manager m1: 3 records are missing/,
  );
  t.deepEqual(lost.services, []);
  const other = await followed(written("grown", 9), [written("grown", 4)], 1, written("kept", 8));
  t.regex(other.broken.join(), /has seen record 8.* in its place the log has one written at/);
  t.deepEqual(other.services, []);
});

test("F6: a log that has the records seen by the manager is followed, also if their position was purged", async (t) => {
  t.is((await followed(written("kept", 8), [], 1, written("kept", 8))).services.length, 8);
  t.is((await followed(written("kept", 8), [written("kept", 6)], 7, written("kept", 3))).services.length, 8);
});

test("F5: a snapshot of records that the log has lost is skipped and deleted", async (t) => {
  const log = written("kept", 8);
  const told = await followed(log, [written("s", 2), written("lost", 5)]);
  t.deepEqual(told.broken, []);
  t.deepEqual(told.services, ["kept4", "kept5", "kept6", "kept7", "kept8", "s1", "s2", "s3"]);
  t.deepEqual(told.snapshots, ["snapshot-2"]);
});

test("F5: a snapshot of the log is loaded, whether its own last record is still there or only the next", async (t) => {
  const log = written("kept", 8);
  for (const first of [1, 5, 6]) {
    const told = await followed(log, [written("kept", 5)], first);
    t.deepEqual([told.broken, told.services.length, told.snapshots], [[], 8, ["snapshot-5"]]);
  }
});

test("F5: if the log starts after a snapshot, its first record's predecessor decides", async (t) => {
  const told = await followed(written("kept", 8), [written("lost", 5)], 6);
  t.deepEqual([told.broken, told.services, told.snapshots], [[], [], []]);
});

test("F5: while snapshots are unavailable, only a log that starts at the replica's next record is followed", async (t) => {
  for (const [first, version] of [
    [1, 8],
    [3, 0],
  ] as const) {
    const { env, clock } = testManager();
    const kept = new TestLog(written("kept", 8).records, env.clock);
    kept.first = first;
    let asked = 0;
    const list = (): Promise<never> => {
      asked += 1;
      return Promise.reject(new Error("the blobs could not be listed"));
    };
    const replica = new Replica();
    const broken: string[] = [];
    const follower = startFollowing({
      log: kept.log,
      blobs: { ...kept.blobs, list },
      replica,
      clock: env.clock,
      telemetry: env.telemetry,
      onBroken: (error) => broken.push(error.message),
    });
    await clock.run({ untilMs: clock.now() + 60_000 });
    follower.stop();
    t.deepEqual([broken, replica.version], [[], version], `first ${first}`);
    t.true(asked >= 3, "the snapshots were requested more than once");
  }
});

test("F5: a gap in the log is closed by a snapshot, however long the snapshots are unavailable", async (t) => {
  const { env, clock } = testManager();
  const log = written("kept", 8);
  const kept = new TestLog(log.records, env.clock);
  const snapshot = written("kept", 6);
  let isUp = false;
  const replica = new Replica();
  const broken: string[] = [];
  const follower = startFollowing({
    log: {
      ...kept.log,
      read: (from, reader) => {
        const onRecord = (sequence: number, data: Uint8Array): void =>
          sequence === 5 ? reader.onGap(6) : reader.onRecord(sequence, data);
        return kept.log.read(from, { ...reader, onRecord });
      },
    },
    blobs: { ...kept.blobs, list: () => (isUp ? kept.blobs.list() : Promise.reject(new Error("no answer"))) },
    replica,
    clock: env.clock,
    telemetry: env.telemetry,
    onBroken: (error) => broken.push(error.message),
  });
  await clock.run({ untilMs: clock.now() + 60_000 });
  t.deepEqual([broken, replica.version], [[], 4]);
  kept.stored.set(snapshotName(6), replicaOf(snapshot).snapshot());
  isUp = true;
  await clock.run({ untilMs: clock.now() + 60_000 });
  follower.stop();
  t.deepEqual([broken, replica.version], [[], 8]);
});

/** Follows a log that the test changes, until `until`. */
function following(records: Uint8Array[], seen: Writer | null = null) {
  const { env, clock } = testManager();
  const kept = new TestLog(records, env.clock);
  const replica = new Replica();
  const broken: string[] = [];
  const disk = seen === null ? null : memoryMark(replicaOf(seen));
  const follower = startFollowing({
    log: kept.log,
    blobs: kept.blobs,
    replica,
    clock: env.clock,
    telemetry: env.telemetry,
    mark: disk === null ? undefined : new MarkKeeper({ replica, disk, clock: env.clock, telemetry: env.telemetry }),
    onBroken: (error) => broken.push(error.message),
  });
  const run = async (ms: number): Promise<void> => void (await clock.run({ untilMs: clock.now() + ms }));
  const begun = async (): Promise<void> => void (await clock.run({ until: () => replica.version > 0 }));
  return { kept, replica, follower, broken, run, begun };
}

test("F4: a replica that has applied another record than the log has stops when it is told that it has caught up", async (t) => {
  const ahead = written("lost", 5);
  const { kept, replica, broken, run } = following([...ahead.records]);
  await run(100);
  t.is(replica.version, 5);
  t.deepEqual(broken, []);
  // The log lost its end, and another leader has written there.
  kept.records.splice(0, Infinity, ...written("kept", 5).records);
  for (const reading of kept.readings) reading.onCaughtUp(5);
  await run(100);
  t.regex(broken[0] ?? "", /a different record than the one that was applied/);
});

test("F6: a log that loses records seen by the manager while it is read is never reached", async (t) => {
  for (const [after, expected] of [
    [written("kept", 5), /it ends at record 5, .* has seen record 8/],
    [written("grown", 9), /has seen record 8.* in its place the log has one written at/],
  ] as const) {
    const { kept, replica, broken, follower, run, begun } = following(written("kept", 8).records, written("kept", 8));
    let isReached = false;
    follower.onCaughtUp(() => (isReached = true));
    void follower.caughtUp().then(() => (isReached = true));
    await begun();
    t.true(replica.version < 3);
    kept.records.splice(0, Infinity, ...after.records);
    await run(1);
    for (const reading of kept.readings) reading.onCaughtUp(kept.records.length);
    await run(20_000);
    t.regex(broken.join(), expected);
    t.is(broken.length, 1);
    t.true(replica.version < 8);
    t.false(isReached);
  }
});

test("F6: a stale answer about the log's end does not end the manager", async (t) => {
  const whole = written("kept", 8);
  const { kept, replica, broken, follower, run, begun } = following([...whole.records], whole);
  let isReached = false;
  void follower.caughtUp().then(() => (isReached = true));
  await begun();
  for (const reading of kept.readings) reading.onCaughtUp(replica.version);
  t.false(follower.isCaughtUp());
  await run(10_000);
  t.deepEqual([broken, replica.version, isReached], [[], 8, true]);
});

test("F1: a replica that was away for longer than the history continues from a snapshot", async (t) => {
  const whole = written("kept", 9);
  const { follower, kept, replica, broken, run } = following(whole.records.slice(0, 2));
  let times = 0;
  follower.onCaughtUp(() => (times += 1));
  await run(100);
  t.is(replica.version, 2);
  for (const reading of kept.readings) reading.onCaughtUp(2);
  t.deepEqual([times, follower.isCaughtUp()], [1, true]);
  kept.first = 6;
  kept.records.push(...whole.records.slice(2));
  const upTo = new Writer();
  upTo.records.push(...whole.records.slice(0, 7));
  kept.stored.set(snapshotName(7), replicaOf(upTo).snapshot());
  await run(2_000);
  t.is(replica.version, 9);
  t.deepEqual(broken, []);
  t.deepEqual([times, follower.isCaughtUp()], [1, false], "until it has reached the end again");
  for (const reading of kept.readings) reading.onCaughtUp(9);
  t.deepEqual([times, follower.isCaughtUp()], [2, true]);
});

test("a reader that waits for the end of a log which ends before its applied records stops instead of waiting forever", async (t) => {
  const { kept, replica, broken, follower, run } = following([...written("kept", 5).records]);
  await run(100);
  t.is(replica.version, 5);
  kept.records.length = 3;
  void follower.caughtUp();
  await run(10_000);
  t.regex(broken[0] ?? "", /this manager has applied record 5/);
});
