// Which snapshots a replica that follows the log begins with.
import test from "ava";
import { startFollowing } from "../../runtime/store/follow.ts";
import { Replica } from "../../runtime/store/replica.ts";
import { snapshotName } from "../../runtime/store/snapshots.ts";
import { testManager } from "../support/manager.ts";
import { TestLog } from "../support/retained.ts";
import { put, replicaOf, service, Writer } from "./store-kit.ts";

/** A writer whose records after the third are the branch's own. */
function written(branch: string, records: number): Writer {
  const writer = new Writer();
  for (let at = 1; at <= records; at += 1) {
    const name = at <= 3 ? `s${at}` : `${branch}${at}`;
    writer.write([put({ service: service(name, name) })]);
  }
  return writer;
}

/** Follows `log` from nothing, with a snapshot of each of the writers. */
async function followed(log: Writer, snapshots: readonly Writer[], first = 1) {
  const { env, clock } = testManager();
  const kept = new TestLog(log.records, env.clock);
  kept.first = first;
  for (const writer of snapshots) kept.stored.set(snapshotName(writer.records.length), replicaOf(writer).snapshot());
  const replica = new Replica();
  const broken: string[] = [];
  const follower = startFollowing({
    log: kept.log,
    blobs: kept.blobs,
    replica,
    clock: env.clock,
    telemetry: env.telemetry,
    onBroken: (error) => broken.push(error.message),
  });
  await clock.run({
    until: () => broken.length > 0 || kept.stored.size === 0 || replica.version === log.records.length,
  });
  follower.stop();
  const services = Array.from(replica.all("service"), ({ id }) => id).sort();
  return { broken, services, snapshots: [...kept.stored.keys()] };
}

test("F5: a snapshot of records that the log has lost is passed over, and is gone for everybody", async (t) => {
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

test("F5: where the log begins behind a snapshot, what its first record names as its predecessor tells", async (t) => {
  const told = await followed(written("kept", 8), [written("lost", 5)], 6);
  t.deepEqual([told.broken, told.services, told.snapshots], [[], [], []]);
});
