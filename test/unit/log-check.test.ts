// Findings of a check of a broken log, and the log after its repair.
import test from "ava";
import { startFollowing } from "../../runtime/store/follow.ts";
import { checkLog, repairLog } from "../../runtime/store/log-check.ts";
import { Replica } from "../../runtime/store/replica.ts";
import { snapshotName } from "../../runtime/store/snapshots.ts";
import { testManager } from "../support/manager.ts";
import { TestLog } from "../support/retained.ts";
import { put, replicaOf, service, Writer } from "./store-kit.ts";

function worldOf(records: number, snapshotsAt: readonly number[] = []) {
  const { clock, env } = testManager();
  const writer = new Writer();
  const stored: [number, Uint8Array][] = [];
  for (let at = 1; at <= records; at += 1) {
    writer.write([put({ service: service(`s${at}`, `s${at}`) })]);
    if (snapshotsAt.includes(at)) stored.push([at, replicaOf(writer).snapshot()]);
  }
  const kept = new TestLog(writer.records, env.clock);
  for (const [at, bytes] of stored) kept.stored.set(snapshotName(at), bytes);
  const { blobs, log } = kept;
  const settle = async <Value>(work: Promise<Value>): Promise<Value> => {
    let isDone = false;
    const done = work.finally(() => (isDone = true));
    await clock.run({ until: () => isDone, untilMs: clock.now() + 60_000 });
    return done;
  };
  const parts = { blobs, log, clock: env.clock };
  return { env, kept, parts, settle, writer, clock };
}

const damage = (record: Uint8Array | undefined): void => {
  if (record !== undefined) record[20] = (record[20] ?? 0) ^ 1;
};

test("an intact log is reported as such, including others' messages in it", async (t) => {
  const { parts, settle, writer } = worldOf(3, [2]);
  writer.records.push(Uint8Array.of(1, 2, 3) as Uint8Array<ArrayBuffer>);
  writer.write([put({ service: service("s5", "s5") })]);
  const { report, replica } = await settle(checkLog(parts));
  t.deepEqual(report, {
    first: 1,
    last: 5,
    foreign: [4],
    broken: null,
    badSnapshots: [],
    base: 0,
    reached: 5,
    isFuture: false,
  });
  t.is(replica?.count("service"), 4);
});

test("a damaged record is named, and a later snapshot leads to the end", async (t) => {
  const { parts, settle, writer } = worldOf(8, [2, 6]);
  damage(writer.records[3]);
  const { report } = await settle(checkLog(parts));
  t.like(report, { broken: { sequence: 4 }, base: 6, reached: 8, badSnapshots: [] });
  t.regex(report.broken?.what ?? "", /record 4 cannot be read/);
});

test("C2: a repaired log keeps the reachable state, no number is reused, and managers follow it", async (t) => {
  const { clock, env, kept, parts, settle, writer } = worldOf(8, [2]);
  damage(writer.records[5]);
  kept.stored.set(snapshotName(7), Uint8Array.of(9));
  const checked = await settle(checkLog(parts));
  t.like(checked.report, { broken: { sequence: 6 }, base: 0, reached: 5, badSnapshots: [{ sequence: 7 }] });
  const order: string[] = [];
  await settle(repairLog(parts, checked, () => Promise.resolve(void order.push(`copied from ${kept.first}`))));
  t.deepEqual(order, ["copied from 1"], "C3: before anything is dropped");
  t.is(kept.first, 9);
  t.deepEqual([...kept.stored.keys()].sort(), ["snapshot-2", "snapshot-8"]);
  const replica = new Replica();
  const broken: string[] = [];
  const follower = startFollowing({
    ...parts,
    replica,
    telemetry: env.telemetry,
    onBroken: (error) => broken.push(error.message),
  });
  await clock.run({ until: () => replica.version === 8, untilMs: clock.now() + 10_000 });
  t.deepEqual([replica.version, replica.recordSequence, replica.count("service"), broken.length], [8, 5, 5, 0]);
  follower.stop();
  t.like((await settle(checkLog(parts))).report, { broken: null, reached: 5, base: 8 });
});

test("without a beginning there is nothing to keep", async (t) => {
  const { kept, parts, settle } = worldOf(4);
  kept.first = 3;
  const checked = await settle(checkLog(parts));
  t.like(checked.report, { broken: { sequence: 3 }, reached: 0 });
  await t.throwsAsync(settle(repairLog(parts, checked, () => Promise.resolve())), { message: /no state to keep/ });
});
