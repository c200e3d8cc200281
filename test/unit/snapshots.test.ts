import test from "ava";
import fc from "fast-check";
import type { LogSpace } from "../../runtime/ports/index.ts";
import { Replica } from "../../runtime/store/replica.ts";
import {
  firstRecordToKeep,
  parseSnapshotName,
  shedHistory,
  snapshotDefaults,
  snapshotName,
  snapshotsToKeep,
  startSnapshotWriter,
  type SnapshotOptions,
} from "../../runtime/store/snapshots.ts";

import { testManager } from "../support/manager.ts";
import { TestLog } from "../support/retained.ts";
import { put, service, Writer } from "./store-kit.ts";

const options = { ...snapshotDefaults, snapshotsKept: 2, historyRecordsKept: 1_000 };

test("N3: however often snapshots are written, the whole history can be rebuilt from a handful of them", (t) => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 1, max: 400 }), { minLength: 1, maxLength: 200 }), (gaps) => {
      let newest = 0;
      let stored: number[] = [];
      let firstRecord = 1;
      for (const gap of gaps) {
        newest += gap;
        stored = snapshotsToKeep([...stored, newest], newest, options);
        const oldest = stored.at(-1) as number;
        t.is(stored[0], newest);
        firstRecord = Math.max(firstRecord, firstRecordToKeep(stored, newest, options));
        const wanted = Math.max(0, newest - options.historyRecordsKept);
        const bases = [0, ...stored].filter((base) => base >= firstRecord - 1);
        t.true(
          bases.some((base) => base <= wanted),
          "it reaches back far enough",
        );
        t.true(bases.includes(oldest), "every retained snapshot is followed by the records");
        t.true(stored.length <= 8, `${stored.length} are kept`);
        // The length of a replay: a step, plus the distance between snapshots.
        for (const [at, sequence] of stored.entries()) {
          const older = stored[at + 1];
          if (older !== undefined) t.true(sequence - older <= 250 + 400, `${older} and ${sequence}`);
        }
      }
    }),
  );
});

test("no snapshot that is ahead of the log is kept, and without any there is none to keep", (t) => {
  t.deepEqual(snapshotsToKeep([9_000, 100, 200], 300, options), [200, 100]);
  t.deepEqual(snapshotsToKeep([], 300, options), []);
});

test("the newest few are kept besides the steps", (t) => {
  const all = Array.from({ length: 30 }, (_, at) => (at + 1) * 100);
  t.deepEqual(snapshotsToKeep(all, 3_000, options), [3_000, 2_900, 2_600, 2_300, 2_000]);
});

/** A log of records of 100 bytes, and blobs, announced to the writer through a clock that stands still. */
function stored(sequences: readonly number[], last: number, space: LogSpace) {
  const names = new Set(sequences.map(snapshotName));
  let first = 1;
  const log = {
    bytes: () => Promise.resolve((last - first + 1) * 100),
    space: () => space,
    purgeBefore: (sequence: number) => {
      first = Math.max(first, sequence);
      return Promise.resolve();
    },
  };
  const blobs = {
    list: () => Promise.resolve([...names]),
    remove: (name: string) => Promise.resolve(void names.delete(name)),
  };
  return {
    shed: (more: Partial<SnapshotOptions> = {}) =>
      shedHistory({ log, blobs, options: { ...options, ...more }, version: last, isStopped: () => false }),
    kept: () => [...names].map((name) => parseSnapshotName(name)).toSorted((a, b) => (a ?? 0) - (b ?? 0)),
    first: () => first,
  };
}

test("N4: history beyond its byte limit is purged, oldest first, and only as far as a snapshot covers it", async (t) => {
  const side = stored([100, 300, 500, 900], 1_000, "ample");
  await side.shed({ historyBytesKept: 100_000 });
  t.deepEqual([side.kept(), side.first()], [[100, 300, 500, 900], 1]);
  await side.shed({ historyBytesKept: 69_999 });
  t.deepEqual([side.kept(), side.first()], [[500, 900], 501]);
  await side.shed({ historyBytesKept: 1 });
  t.deepEqual([side.kept(), side.first()], [[500, 900], 501], "the newest few stay");
});

test("N4: if space is short, everything covered by the newest snapshot is purged, and without a snapshot nothing is", async (t) => {
  for (const space of ["scarce", "full"] as const) {
    const side = stored([100, 300, 900, 2_000], 1_000, space);
    await side.shed();
    t.deepEqual([side.kept(), side.first()], [[900, 2_000], 901], "one that is ahead of the log does not count");
    const bare = stored([], 1_000, space);
    await bare.shed();
    t.is(bare.first(), 1);
  }
});

test("a snapshot is written after this many records, and not before", async (t) => {
  const { env, clock } = testManager();
  const source = new Writer();
  const kept = new TestLog(source.records, env.clock);
  const replica = new Replica();
  const { blobs, log } = kept;
  const writer = startSnapshotWriter({ ...env, log, blobs, replica, options: { ...options, everyRecords: 5 } });
  const write = async (count: number): Promise<readonly string[]> => {
    for (let at = 0; at < count; at += 1) {
      const version = replica.version + 1;
      replica.apply(version, source.write([put({ service: service(`s${version}`, `s${version}`) })]));
    }
    await clock.run({ untilMs: clock.now() + 1_000 });
    return [...kept.stored.keys()];
  };
  t.deepEqual(await write(4), []);
  t.deepEqual(await write(2), [snapshotName(5)]);
  t.deepEqual(await write(3), [snapshotName(5)]);
  t.deepEqual(await write(3), [snapshotName(5), snapshotName(10)]);
  writer.stop();
});

test("N5: a leader replaces the lost snapshots of a log that was purged, and writes none while one reaches its first record", async (t) => {
  const { env, clock } = testManager();
  const source = new Writer();
  const kept = new TestLog(source.records, env.clock);
  const replica = new Replica();
  for (let version = 1; version <= 8; version += 1)
    replica.apply(version, source.write([put({ service: service(`s${version}`, `s${version}`) })]));
  const { blobs, log } = kept;
  const writer = startSnapshotWriter({ ...env, log, blobs, replica, options });
  const pass = async (): Promise<readonly string[]> => {
    await clock.run({ untilMs: clock.now() + 60_000 });
    return [...kept.stored.keys()];
  };
  t.deepEqual(await pass(), [], "the log begins at its first record");
  kept.first = 5;
  kept.stored.set(snapshotName(4), replica.snapshot());
  t.deepEqual(await pass(), [snapshotName(4)]);
  kept.first = 6;
  t.deepEqual(await pass(), [snapshotName(4), snapshotName(8)]);
  kept.stored.clear();
  kept.isUp = false;
  t.deepEqual(await pass(), [], "nothing is known while the log does not answer");
  kept.isUp = true;
  t.deepEqual(await pass(), [snapshotName(8)]);
  writer.stop();
});
