/** The scheduler's decisions on their way into the log, and the work that it does not repeat. */
import test from "ava";
import { assemble, type BatchLimits } from "../../machines/ledger/batch.ts";
import { NodeSet } from "../../machines/scheduling/node-set.ts";
import { Backlog } from "../../machines/scheduling/place.ts";
import {
  Annotations,
  Change,
  Node,
  Operation,
  Placement,
  ProposeRequest,
  ProposeRequest_Mode,
  TaskPatch,
  TaskState,
  Volume,
  VolumeAttachment,
  VolumeInfo,
  VolumeSpec,
  VolumeSpec_VolumeAvailability,
  type TaskStatus,
  Transaction,
} from "../../proto/gen/messages.ts";
import { changeFramingBytes } from "../../runtime/store/record.ts";
import { LogBreak } from "../../runtime/store/log-break.ts";

import { Staging } from "../../runtime/store/staging.ts";
import { MultiIndex } from "../../runtime/store/multi-index.ts";
import { containerSpec, pendingTask, pendingTasks, readyNode } from "../support/scheduling.ts";
import { node, patch, put, replicaOf, status, task, Writer } from "./store-kit.ts";

const limits: BatchLimits = { bytesMax: 100_000, changesMax: 100, changeFramingBytes };
const ids = ["t1", "t2", "t3", "t4"];
const waiting = ids.map((id) => put({ task: task(id, { status: status(TaskState.PENDING) }) }));
const assigned = status(TaskState.ASSIGNED, "scheduler assigned task to node");
const assignment = (id: string, to: TaskStatus, fields: Partial<TaskPatch> = {}): Operation =>
  Operation.create({ task: TaskPatch.create({ id, nodeId: "n1", status: to, ...fields }) });

function written(operations: readonly Operation[], before: readonly Change[], mode: ProposeRequest_Mode) {
  const writer = new Writer();
  writer.write(before);
  const request = ProposeRequest.create({ id: "p1", operations, mode });
  const batch = assemble(new Staging(replicaOf(writer)), [{ request, from: 0, skipped: 0 }], limits);
  const { changes } = Transaction.decode(batch.changes.encoded());
  if (changes.length > 0) writer.write(changes, { statuses: batch.statuses } as Partial<Transaction>);
  return { batch, changes, replica: replicaOf(writer), bytes: writer.records.at(-1)?.length ?? 0 };
}

test("assignments of one round carry their status once, and the replica shows it on each", (t) => {
  const before = [put({ node: node("n1") }), ...waiting];
  const each = ProposeRequest_Mode.EACH;
  const shared = written(
    ids.map((id) => assignment(id, assigned)),
    before,
    each,
  );
  t.deepEqual(
    shared.changes.map((change) => [change.status, change.task?.status?.message ?? null]),
    [
      [0, assigned.message],
      [1, null],
      [1, null],
      [1, null],
    ],
  );
  t.deepEqual(shared.batch.statuses, [assigned]);
  const copies = written(
    ids.map((id) => assignment(id, status(TaskState.ASSIGNED, assigned.message))),
    before,
    each,
  );
  t.deepEqual(
    copies.changes.map((change) => change.status),
    [0, 0, 0, 0],
  );
  t.is(shared.replica.stateHash(), copies.replica.stateHash());
  t.true(shared.bytes < copies.bytes);
  t.is(shared.replica.get("task", "t4")?.status?.message, assigned.message);
});

test("two alternating statuses are each at their own place", (t) => {
  const other = status(TaskState.ASSIGNED, "confirmed");
  const turns = [assigned, assigned, other, other];
  const { changes, replica } = written(
    ids.map((id, at) => assignment(id, turns[at] ?? other)),
    [put({ node: node("n1") }), ...waiting],
    ProposeRequest_Mode.ATOMIC,
  );
  t.deepEqual(
    changes.map((change) => change.status),
    [0, 1, 0, 2],
  );
  t.deepEqual(
    ids.map((id) => replica.get("task", id)?.status?.message),
    turns.map(({ message }) => message),
  );
});

test("a patch that names a status which the transaction does not have breaks the log", (t) => {
  const writer = new Writer();
  writer.write([put({ task: task("t1") })]);
  writer.write([Change.create({ task: patch({ id: "t1", nodeId: "n1" }).task, status: 1 })]);
  const error = t.throws(() => replicaOf(writer), { instanceOf: LogBreak });
  t.regex(error?.message ?? "", /names a status/);
});

test("a task is not assigned with a volume that was removed or may no longer be used", (t) => {
  const spec = { annotations: Annotations.create({ name: "v" }) };
  const volume = Volume.create({
    id: "v",
    spec: VolumeSpec.create(spec),
    volumeInfo: VolumeInfo.create({ volumeId: "csi-v" }),
  });
  const drained = VolumeSpec.create({ ...spec, availability: VolumeSpec_VolumeAvailability.DRAIN });
  const volumes = [VolumeAttachment.create({ id: "v", source: "v", target: "/m" })];
  const before = [put({ node: node("n1") }), ...waiting];
  for (const [stored, changes] of [
    [[volume], 1],
    [[Volume.patch(volume, { spec: drained })], 0],
    [[], 0],
  ] as const) {
    const { batch } = written(
      [assignment("t1", assigned, { volumes })],
      [...before, ...stored.map((each) => put({ volume: each }))],
      ProposeRequest_Mode.EACH,
    );
    t.is(batch.changes.length, changes);
  }
});

const roundLimits = { operationsMax: 1_000, replacementsMax: 1_000, judgementsMax: 1_000 };
const picky = containerSpec({ placement: Placement.create({ constraints: ["node.labels.zone==a"] }) });

test("another task of a group that no node accepts gets the reason without asking a node", (t) => {
  const set = new NodeSet();
  for (let at = 0; at < 3; at += 1) set.put(readyNode(`n${at}`));
  const backlog = new Backlog(set);
  backlog.follow(pendingTask("a", { spec: picky }));
  backlog.round(0, roundLimits);
  t.true(backlog.follow(pendingTask("b", { spec: picky })));
  const { explanations } = backlog.round(0, { ...roundLimits, judgementsMax: 0 });
  t.deepEqual(
    explanations.map(({ task: { id }, text }) => [id, text]),
    [["b", "no suitable node (scheduling constraints not satisfied on 3 nodes)"]],
  );
});

test("a change of a node wakes nobody unless it may help", (t) => {
  const set = new NodeSet();
  const first = readyNode("n0");
  set.put(first);
  const backlog = new Backlog(set);
  backlog.follow(pendingTask("a", { spec: picky }));
  backlog.round(0, roundLimits);
  t.false(backlog.isAwake);
  set.put(Node.patch(first, { certificate: null }));
  t.false(backlog.isAwake, "a certificate does not matter to the scheduler");
  set.put(readyNode("n1"));
  t.true(backlog.isAwake);
  backlog.round(0, roundLimits);
  set.remove("n1");
  t.true(backlog.isAwake, "its statement about that node is wrong now");
});

test("a group interrupted by a limit continues as if nothing had happened", (t) => {
  const place = (operationsMax: number): string[] => {
    const set = new NodeSet();
    for (let at = 0; at < 5; at += 1) set.put(readyNode(`n${at}`));
    const backlog = new Backlog(set);
    for (const each of pendingTasks(23)) backlog.follow(each);
    for (const each of pendingTasks(7, { serviceId: "other" }, "o")) backlog.follow(each);
    const placed: string[] = [];
    for (let hasMore = true; hasMore;) {
      const round = backlog.round(0, { ...roundLimits, operationsMax });
      for (const { task: each, nodeId } of round.assignments) placed.push(`${each.id} ${nodeId}`);
      hasMore = round.hasMore;
    }
    return placed;
  };
  t.is(place(1_000).length, 30);
  t.deepEqual(place(4), place(1_000));
});

test("tasks without a service are placed as evenly as those of one, each by its own requirements", (t) => {
  const set = new NodeSet();
  set.put(readyNode("n0"));
  set.put(readyNode("n1", { labels: { zone: "a" } }));
  const backlog = new Backlog(set);
  for (let at = 0; at < 6; at += 1) {
    const spec = at % 3 === 0 ? picky : at % 3 === 1 ? containerSpec() : null;
    backlog.follow(pendingTask(`t${at}`, { serviceId: "", specVersion: null, spec }));
  }
  const { assignments } = backlog.round(0, roundLimits);
  t.deepEqual(Object.fromEntries(assignments.map(({ task: each, nodeId }) => [each.id, nodeId])), {
    t0: "n1",
    t1: "n0",
    t2: "n0",
    t3: "n1",
    t4: "n0",
    t5: "n1",
  });
});

test("an index keeps the order of many ids, whatever its internal structure", (t) => {
  const index = new MultiIndex<string>();
  const many = Array.from({ length: 300 }, (_, at) => `id${at}`);
  for (const [at, id] of many.entries()) {
    index.add("key", id);
    if (at === 2) index.delete("key", "id1");
  }
  index.delete("key", "id200");
  const left = many.filter((id) => id !== "id1" && id !== "id200");
  t.deepEqual([...index.ids("key")], left);
  for (const id of left) index.delete("key", id);
  t.is(index.size, 0);
  t.is(index.first("key"), undefined);
});
