// The replica: the state that results from applying records, and which records it rejects.
import test from "ava";
import {
  Change,
  ContainerSpec,
  EngineDescription,
  Kind,
  LogRecord,
  Network,
  NetworkAttachment,
  NodeDescription,
  NodePatch,
  NodeStatus,
  NodeStatus_State,
  NodeTLSInfo,
  Receipt,
  Removal,
  TaskState,
  TaskSpec,
  Transaction,
  type Task,
} from "../../proto/gen/messages.ts";
import { FutureRecord, LogBreak } from "../../runtime/store/log-break.ts";
import { encodeRecord } from "../../runtime/store/record.ts";
import { Replica } from "../../runtime/store/replica.ts";
import type { Commit } from "../../runtime/store/store.ts";
import { node, patch, put, replicaOf, service, spec, status, task, Writer } from "./store-kit.ts";

const ids = (tasks: Iterable<Task>) => Array.from(tasks, ({ id }) => id);

test("a created object gets the record's sequence as version and the record's time", (t) => {
  const writer = new Writer();
  writer.write([]);
  writer.write([put({ service: service("s1", "web", 99) })]);
  const meta = replicaOf(writer).get("service", "s1")?.meta;
  t.is(meta?.version?.index, 2);
  t.is(meta?.createdAt?.seconds, 1_001);
  t.is(meta?.updatedAt?.seconds, 1_001);
});

test("a patch changes version and update time, and keeps the creation time", (t) => {
  const writer = new Writer();
  writer.write([put({ task: task("t1") }), put({ task: task("t2") })]);
  writer.write([put({ task: task("t3") })]);
  writer.write([1, 2, 3].map((at) => patch({ id: `t${at}`, status: status(TaskState.PENDING) })));
  const replica = replicaOf(writer);
  for (const [id, createdAt] of [
    ["t1", 1_000],
    ["t2", 1_000],
    ["t3", 1_001],
  ] as const) {
    const stored = replica.get("task", id);
    t.is(stored?.status?.state, TaskState.PENDING);
    t.is(stored?.meta?.version?.index, 3);
    t.is(stored?.meta?.createdAt?.seconds, createdAt);
    t.is(stored?.meta?.updatedAt?.seconds, 1_002);
  }
});

test("a patch replaces only the fields that it carries", (t) => {
  const writer = new Writer();
  writer.write([put({ task: task("t1") }), put({ node: node("n1") })]);
  writer.write([
    patch({ id: "t1", nodeId: "n1" }),
    Change.create({ node: NodePatch.create({ id: "n1", description: NodeDescription.create({ hostname: "Alpha" }) }) }),
  ]);
  const replica = replicaOf(writer);
  t.like(replica.get("task", "t1"), { nodeId: "n1", desiredState: TaskState.RUNNING, slot: 1, serviceId: "web" });
  t.is(replica.get("task", "t1")?.spec?.container?.image, "nginx");
  t.is(replica.get("node", "n1")?.status?.state, NodeStatus_State.READY);
  t.is(replica.byName("node", "ALPHA")?.id, "n1");
});

test("tasks of one transaction share the spec that it carries once", (t) => {
  const writer = new Writer();
  writer.write([put({ task: task("t1", { spec: null }) }, 1), put({ task: task("t2", { spec: null }) }, 1)], {
    specs: [spec],
  });
  writer.write([put({ task: task("t3") })]);
  const replica = replicaOf(writer);
  t.is(replica.get("task", "t1")?.spec?.container?.image, "nginx");
  t.is(replica.get("task", "t1")?.spec, replica.get("task", "t2")?.spec);
  t.is(replica.get("task", "t3")?.spec, replica.get("task", "t1")?.spec);
});

test("tasks are found by service, slot, node and their references, through every change", (t) => {
  const writer = new Writer();
  writer.write([
    put({ task: task("a1") }),
    put({ task: task("a2") }),
    put({ task: task("b1", { slot: 2 }) }),
    put({ task: task("x1", { serviceId: "other", spec: TaskSpec.create({ container: ContainerSpec.create({}) }) }) }),
  ]);
  writer.write([patch({ id: "a2", nodeId: "n1" }), patch({ id: "x1", nodeId: "n1" })]);
  const replica = replicaOf(writer);
  t.deepEqual(ids(replica.tasksByService("web")).sort(), ["a1", "a2", "b1"]);
  t.deepEqual(ids(replica.tasksBySlot("web", 1)), ["a1", "a2"]);
  t.deepEqual(ids(replica.tasksBySlot("web", 9)), []);
  t.deepEqual(ids(replica.tasksByNode("n1")), ["a2", "x1"]);
  t.deepEqual(ids(replica.tasksReferencing("secret1")), ["a1", "a2", "b1"]);
  replica.apply(3, writer.write([Change.create({ remove: Removal.create({ kind: Kind.KIND_TASK, id: "a2" }) })]));
  t.deepEqual(ids(replica.tasksBySlot("web", 1)), ["a1"]);
  t.deepEqual(ids(replica.tasksByNode("n1")), ["x1"]);
  t.deepEqual(ids(replica.tasksReferencing("secret1")), ["a1", "b1"]);
  t.is(replica.count("task"), 3);
});

test("names are found without regard to case, follow a rename, and end with their object", (t) => {
  const writer = new Writer();
  writer.write([put({ service: service("s1", "Web") })]);
  const replica = replicaOf(writer);
  t.is(replica.byName("service", "wEB")?.id, "s1");
  replica.apply(2, writer.write([put({ service: service("s1", "api") })]));
  t.is(replica.byName("service", "web"), undefined);
  t.is(replica.byName("service", "api")?.id, "s1");
  replica.apply(3, writer.write([Change.create({ remove: Removal.create({ kind: Kind.KIND_SERVICE, id: "s1" }) })]));
  t.is(replica.byName("service", "api"), undefined);
});

test("a task without a name is found by the one that SwarmKit computes for it", (t) => {
  const writer = new Writer();
  writer.write([put({ task: task("t1", { slot: 3 }) }), put({ task: task("t2", { slot: 0, nodeId: "n9" }) })]);
  const replica = replicaOf(writer);
  t.is(replica.byName("task", "web.3.t1")?.id, "t1");
  t.is(replica.byName("task", "Web.n9.t2")?.id, "t2");
  t.is(replica.byName("task", "web.4.t1"), undefined);
});

test("watchers get each transaction once, with old and new objects, after the state has changed", (t) => {
  const writer = new Writer();
  const replica = new Replica();
  const commits: Commit[] = [];
  const watching = replica.watch((commit) => {
    t.is(replica.version, commit.version);
    commits.push(commit);
  });
  replica.apply(1, writer.write([put({ service: service("s1", "web") }), put({ task: task("t1") })]));
  replica.apply(2, writer.write([patch({ id: "t1", desiredState: TaskState.SHUTDOWN })]));
  replica.apply(3, writer.write([Change.create({ remove: Removal.create({ kind: Kind.KIND_TASK, id: "t1" }) })]));
  watching.unsubscribe();
  replica.apply(4, writer.write([]));
  t.deepEqual(
    commits.map(({ version, time, changes }) => [
      version,
      time,
      changes.map(({ table, action }) => `${action} ${table}`),
    ]),
    [
      [1, 1_000_500, ["create service", "create task"]],
      [2, 1_001_500, ["update task"]],
      [3, 1_002_500, ["remove task"]],
    ],
  );
  const update = commits[1]?.changes[0];
  t.is((update?.old as Task | undefined)?.desiredState, TaskState.RUNNING);
  t.is((update?.object as Task | undefined)?.desiredState, TaskState.SHUTDOWN);
  t.is(commits[0]?.changes[0]?.old, null);
});

test("an object once returned never changes", (t) => {
  const writer = new Writer();
  writer.write([put({ task: task("t1") })]);
  const replica = replicaOf(writer);
  const held = replica.get("task", "t1");
  replica.apply(2, writer.write([patch({ id: "t1", nodeId: "n1", status: status(TaskState.ASSIGNED, "assigned") })]));
  t.is(held?.nodeId, "");
  t.is(held?.status?.state, TaskState.NEW);
  t.is(held?.meta?.version?.index, 1);
});

test("a receipt records a proposal's outcome, and the oldest is dropped first", (t) => {
  const writer = new Writer();
  const replica = new Replica({ receiptsMax: 2 });
  for (let at = 1; at <= 3; at += 1) {
    replica.apply(at, writer.write([], { receipts: [Receipt.create({ proposalId: `p${at}`, skipped: at })] }));
  }
  t.is(replica.receipt("p1"), undefined);
  t.deepEqual(replica.receipt("p3"), { version: 3, skipped: 3 });
});

const refuses = test.macro((t, check: RegExp, broken: (writer: Writer) => [number, Uint8Array]) => {
  const writer = new Writer();
  writer.epoch = 5;
  writer.write([put({ task: task("t1") })]);
  const replica = replicaOf(writer);
  const [sequence, record] = broken(writer);
  const error = t.throws(() => replica.apply(sequence, record), { instanceOf: LogBreak });
  t.regex(error?.check ?? "", check);
  t.is(error?.sequence, sequence);
  t.is(replica.version, 1);
});

test("a record out of sequence is rejected", refuses, /S1/, (writer) => [3, writer.write([])]);

test("S6: messages that are not records are skipped when the next record follows the one before them", (t) => {
  const writer = new Writer();
  writer.write([put({ service: service("s1", "web") })]);
  const replica = replicaOf(writer);
  const told: number[] = [];
  replica.watch(({ changes, version }) => t.is(told.push(version) > 2 ? changes.length : 0, version === 4 ? 1 : 0));
  const { checksum } = replica;
  t.like(replica.apply(2, Uint8Array.of(255, 255, 255)), { isForeign: true, version: 2, changes: [], writer: "m1" });
  const forged = encodeRecord(Transaction.create({ id: "forged" }));
  forged[forged.length - 1] = (forged.at(-1) ?? 0) ^ 1;
  t.true(replica.apply(3, forged).isForeign);
  t.deepEqual([replica.version, replica.recordSequence, replica.foreignMessages], [3, 1, 2]);
  t.deepEqual(replica.checksum, checksum, "the predecessor of the next record");
  const loaded = new Replica();
  loaded.load(replica.snapshot());
  t.deepEqual([loaded.version, loaded.recordSequence], [3, 1]);
  const next = writer.write([put({ service: service("s2", "api") })]);
  for (const each of [replica, loaded]) {
    t.false(each.apply(4, next).isForeign);
    t.deepEqual([each.version, each.recordSequence], [4, 4]);
  }
  t.deepEqual(told, [2, 3, 4]);
});

test("S6: the next record distinguishes a damaged record of ours from a stranger's message", (t) => {
  const writer = new Writer();
  writer.write([put({ service: service("s1", "web") })]);
  const replica = replicaOf(writer);
  const damaged = writer.write([put({ service: service("s2", "api") })]);
  const next = writer.write([put({ service: service("s3", "db") })]);
  damaged[20] = (damaged[20] ?? 0) ^ 1;
  t.true(replica.apply(2, damaged).isForeign, "nothing distinguishes them yet");
  const error = t.throws(() => replica.apply(3, next), { instanceOf: LogBreak });
  t.is(error?.sequence, 2);
  t.regex(error?.check ?? "", /record 2 cannot be read, and record 3 names the original/);
  t.is(replica.version, 2);
});

test("S7: a transaction with an unknown kind of change is not applied in part, and its writer is named", (t) => {
  const writer = new Writer();
  const engine = EngineDescription.create({ engineVersion: "9.9.9" });
  writer.write([put({ node: node("m1", { description: NodeDescription.create({ hostname: "alpha", engine }) }) })]);
  const replica = replicaOf(writer);
  for (const unknown of [Change.create({}), Change.create({ remove: Removal.create({ kind: 99 as Kind, id: "x" }) })]) {
    const record = writer.encode([put({ service: service("s1", "web") }), unknown]);
    const error = t.throws(() => replica.apply(2, record), { instanceOf: FutureRecord });
    t.regex(
      error?.message ?? "",
      /record 2: .* kind that this version .* does not support; written by manager alpha \(m1\), version 9\.9\.9/,
    );
    t.deepEqual([replica.version, replica.count("service")], [1, 0]);
  }
});

test("a record that names another predecessor is rejected", refuses, /R2/, (writer) => [
  2,
  writer.encode([], { previous: new Uint8Array(32) }),
]);
test("a record of an older epoch is rejected", refuses, /S3/, (writer) => [2, writer.encode([], { epoch: 4 })]);
test("a patch of a missing object is rejected", refuses, /S4/, (writer) => [2, writer.encode([patch({ id: "gone" })])]);
test("a removal of a missing object is rejected", refuses, /S4/, (writer) => [
  2,
  writer.encode([Change.create({ remove: Removal.create({ kind: Kind.KIND_NODE, id: "gone" }) })]),
]);
test("a task that names a missing spec is rejected", refuses, /S4/, (writer) => [
  2,
  writer.encode([put({ task: task("t2", { spec: null }) }, 1)]),
]);

test("replicas of the same records have the same hash, and those of different states different ones", (t) => {
  const writer = new Writer();
  writer.write([put({ task: task("t1") }), put({ node: node("n1") })]);
  const [one, two] = [replicaOf(writer), replicaOf(writer)];
  t.is(one.stateHash(), two.stateHash());
  one.apply(
    2,
    writer.write([
      Change.create({
        node: NodePatch.create({ id: "n1", status: NodeStatus.create({ state: NodeStatus_State.DOWN }) }),
      }),
    ]),
  );
  t.not(one.stateHash(), two.stateHash());
});

test("nodes of one kind share one description of their engine, and one copy of a network that they are in", (t) => {
  const description = (hostname: string) =>
    NodeDescription.create({
      hostname,
      engine: EngineDescription.create({ engineVersion: "20.10", labels: { b: "1", a: "2" } }),
      tlsInfo: NodeTLSInfo.create({ trustRoot: Uint8Array.of(1, 2, 3) }),
    });
  const attachments = [
    NetworkAttachment.create({ network: Network.create({ id: "ingress" }), addresses: ["10.0.0.2"] }),
  ];
  const writer = new Writer();
  writer.write([put({ node: node("n1") }), put({ node: node("n2", { description: description("two") }) })]);
  writer.write([Change.create({ node: NodePatch.create({ id: "n1", description: description("one"), attachments }) })]);
  writer.write([Change.create({ node: NodePatch.create({ id: "n2", attachments }) })]);
  const replica = replicaOf(writer);
  const loaded = new Replica();
  loaded.load(replica.snapshot());
  t.is(loaded.stateHash(), replica.stateHash());
  for (const each of [replica, loaded]) {
    const [one, two] = [each.get("node", "n1"), each.get("node", "n2")];
    t.deepEqual(
      NodeDescription.encode(one?.description as NodeDescription),
      NodeDescription.encode(description("one")),
    );
    t.deepEqual(two?.attachments, attachments);
    t.is(one?.description?.engine, two?.description?.engine);
    t.is(one?.description?.tlsInfo, two?.description?.tlsInfo);
    t.is(one?.attachments[0]?.network, two?.attachments[0]?.network);
  }
});

test("the replica's objects do not keep the record's bytes alive", (t) => {
  const writer = new Writer();
  const filler = put({ service: service("s1", "x".repeat(100_000)) });
  writer.write([
    filler,
    put({
      secret: {
        id: "k",
        meta: null,
        spec: { annotations: null, data: Uint8Array.of(1, 2, 3), templating: null, driver: null },
        internal: false,
      },
    }),
  ]);
  const data = replicaOf(writer).get("secret", "k")?.spec?.data;
  t.deepEqual([...(data ?? [])], [1, 2, 3]);
  t.true((data?.buffer.byteLength ?? Infinity) < 100_000);
  t.true(Transaction.decode(LogRecord.decode(writer.records[0] as Uint8Array).transaction).changes.length === 2);
});
