// Snapshots: the whole state to bytes and back, and their effect on watchers.
import test from "ava";
import fc from "fast-check";
import { Change, Kind, Receipt, Removal, TaskState } from "../../proto/gen/messages.ts";
import { LogBreak } from "../../runtime/store/log-break.ts";
import { Replica } from "../../runtime/store/replica.ts";
import { joinDelimited, splitDelimited } from "../../runtime/store/record.ts";
import { parseSnapshotName, snapshotName } from "../../runtime/store/snapshots.ts";
import { SnapshotError } from "../../runtime/store/snapshot.ts";
import { network, node, patch, put, replicaOf, service, status, task, Writer } from "./store-kit.ts";

function filled() {
  const writer = new Writer();
  writer.write([
    put({ service: service("s1", "web") }),
    put({ network: network("w1", "net") }),
    put({ node: node("n1") }),
  ]);
  writer.write(
    Array.from({ length: 2_500 }, (_, at) => put({ task: task(`t${at}`, { slot: at, spec: null }) }, 1)),
    { specs: [task("").spec as never] },
  );
  writer.write([patch({ id: "t7", nodeId: "n1", status: status(TaskState.RUNNING) })], {
    receipts: [Receipt.create({ proposalId: "p1", skipped: 2 })],
  });
  return { writer, replica: replicaOf(writer) };
}

test("a replica that loads a snapshot equals the one that wrote it", (t) => {
  const { replica } = filled();
  const loaded = new Replica();
  loaded.load(replica.snapshot());
  t.is(loaded.version, 3);
  t.is(loaded.epoch, replica.epoch);
  t.deepEqual([...loaded.checksum], [...replica.checksum]);
  t.is(loaded.stateHash(), replica.stateHash());
  t.deepEqual(
    Array.from(loaded.all("task"), ({ id }) => id),
    Array.from(replica.all("task"), ({ id }) => id),
  );
  t.is(loaded.byName("service", "WEB")?.id, "s1");
  t.deepEqual(
    Array.from(loaded.tasksByNode("n1"), ({ id }) => id),
    ["t7"],
  );
  t.deepEqual(loaded.receipt("p1"), { version: 3, skipped: 2 });
  t.is(loaded.get("task", "t1")?.spec, loaded.get("task", "t2499")?.spec);
});

test("it continues with the following records, as the other does", (t) => {
  const { writer, replica } = filled();
  const loaded = new Replica();
  loaded.load(replica.snapshot());
  const next = writer.write([
    patch({ id: "t8", desiredState: TaskState.SHUTDOWN }),
    Change.create({ remove: Removal.create({ kind: Kind.KIND_TASK, id: "t7" }) }),
  ]);
  replica.apply(4, next);
  loaded.apply(4, next);
  t.is(loaded.stateHash(), replica.stateHash());
  t.deepEqual([...loaded.tasksByNode("n1")], []);
});

test("an empty state has a snapshot too", (t) => {
  const loaded = new Replica();
  loaded.load(new Replica().snapshot());
  t.is(loaded.version, 0);
  t.is(loaded.stateHash(), new Replica().stateHash());
});

test("a capture stays unchanged while further records are applied", (t) => {
  const { writer, replica } = filled();
  const hash = replica.stateHash();
  const capture = replica.capture();
  replica.apply(4, writer.write([patch({ id: "t8", desiredState: TaskState.SHUTDOWN })]));
  t.not(replica.stateHash(), hash);
  t.is(capture.version, 3);
  t.is(capture.tables.flatMap(({ objects }) => objects).length, 2_503);
});

test("a truncated or altered snapshot is rejected and changes nothing", (t) => {
  const { replica } = filled();
  const bytes = replica.snapshot();
  const loaded = new Replica();
  t.throws(() => loaded.load(bytes.slice(0, bytes.length - 1)), { instanceOf: SnapshotError });
  t.throws(() => loaded.load(new Uint8Array(0)), { instanceOf: SnapshotError });
  const parts = splitDelimited(bytes) ?? [];
  t.throws(() => loaded.load(joinDelimited(parts.slice(0, -1))), { instanceOf: SnapshotError, message: /objects/ });
  t.throws(() => loaded.load(joinDelimited(parts.slice(1))), { instanceOf: SnapshotError, message: /header/ });
  const altered = bytes.slice();
  const at = Buffer.from(altered).lastIndexOf("t2499");
  altered[at] = "u".charCodeAt(0);
  t.throws(() => loaded.load(altered), { instanceOf: SnapshotError, message: /hash/ });
  t.is(loaded.version, 0);
  t.is(loaded.count("task"), 0);
});

test("an older snapshot is never loaded", (t) => {
  const { writer, replica } = filled();
  const bytes = replica.snapshot();
  replica.apply(4, writer.write([]));
  t.throws(() => replica.load(bytes), { instanceOf: LogBreak });
});

test("watchers of a replica that jumps to a snapshot see exactly the difference", (t) => {
  const { writer, replica } = filled();
  const behind = new Replica();
  for (const [at, record] of writer.records.entries()) behind.apply(at + 1, record);
  replica.apply(
    4,
    writer.write([
      Change.create({ remove: Removal.create({ kind: Kind.KIND_TASK, id: "t1" }) }),
      put({ service: service("s2", "api") }),
    ]),
  );
  replica.apply(5, writer.write([patch({ id: "t2", desiredState: TaskState.SHUTDOWN })]));
  const seen: string[] = [];
  behind.watch(({ version, changes }) => {
    for (const { table, action, object } of changes) seen.push(`${version} ${action} ${table} ${object.id}`);
  });
  behind.load(replica.snapshot());
  t.deepEqual(seen.sort(), ["5 create service s2", "5 remove task t1", "5 update task t2"]);
});

test("delimited messages are read back unchanged, or not at all when cut", (t) => {
  fc.assert(
    fc.property(fc.array(fc.uint8Array({ maxLength: 300 })), (messages) => {
      const joined = joinDelimited(messages);
      t.deepEqual(
        splitDelimited(joined)?.map((message) => [...message]),
        messages.map((message) => [...message]),
      );
      if ((messages.at(-1)?.length ?? 0) > 0) t.is(splitDelimited(joined.subarray(0, -1)), null);
    }),
    { numRuns: 50 },
  );
});

test("a snapshot's name has its sequence, and other blobs are not snapshots", (t) => {
  t.is(parseSnapshotName(snapshotName(1234)), 1234);
  t.is(parseSnapshotName("snapshot-"), null);
  t.is(parseSnapshotName("backup-7"), null);
});
