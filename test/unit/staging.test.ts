// An append sees its own earlier changes, and discards those of rejected proposals.
import test from "ava";
import fc from "fast-check";
import { assemble } from "../../machines/ledger/batch.ts";
import { ProposeRequest, ProposeRequest_Mode, TaskState, type Operation } from "../../proto/gen/messages.ts";
import { Receipts } from "../../runtime/store/receipts.ts";
import { Staging } from "../../runtime/store/staging.ts";
import { node, patchOperation, put, replicaOf, service, task, update, Writer } from "./store-kit.ts";

const limits = { bytesMax: 1e6, changesMax: 1_000, changeFramingBytes: 8 };

function proposed(id: string, mode: ProposeRequest_Mode, ...operations: readonly Operation[]) {
  return { request: ProposeRequest.create({ id, mode, operations }), from: 0, skipped: 0 };
}

test("a rejected proposal leaves no trace for the next one, nor in the append", (t) => {
  const writer = new Writer();
  writer.write([put({ service: service("web", "web") }), put({ task: task("t1") })]);
  const { ATOMIC, EACH } = ProposeRequest_Mode;
  const stop = patchOperation({ id: "t1", desiredState: TaskState.SHUTDOWN });
  const batch = assemble(
    new Staging(replicaOf(writer)),
    [proposed("p1", ATOMIC, stop, update({ service: service("web", "web", 7) })), proposed("p2", EACH, stop)],
    limits,
  );
  t.deepEqual(
    batch.settlements.map((settled) => (settled.kind === "done" ? settled.skipped : settled.kind)),
    ["refused", 0],
    "the second stops the task, since the first has not",
  );
  t.is(batch.changes.length, 1);
});

test("a task assigned to a node is that node's, and no longer unassigned", (t) => {
  const writer = new Writer();
  writer.write([put({ node: node("n1") }), put({ node: node("n2") }), put({ task: task("t1", { nodeId: "n1" }) })]);
  writer.write([put({ task: task("t1", { nodeId: "n2" }) })]);
  const replica = replicaOf(writer);
  const idsOn = (nodeId: string): readonly string[] => Array.from(replica.tasksByNode(nodeId), ({ id }) => id);
  t.deepEqual([idsOn("n1"), idsOn("n2")], [[], ["t1"]]);
});

test("as many proposals are remembered as fit, the newest of them", (t) => {
  const receipts = new Receipts(3);
  for (const id of ["a", "b", "c", "d"]) receipts.add(id, { version: 1, skipped: 0 });
  t.deepEqual(
    ["a", "b", "c", "d"].map((id) => receipts.find(id) !== undefined),
    [false, true, true, true],
  );
});

test("the receipts are those of the newest proposals, in the order of their first mention, also after a snapshot", (t) => {
  const ids = fc.array(fc.integer({ min: 0, max: 8 }).map((number) => `p${number}`));
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 5 }), ids, ids, (max, early, late) => {
      const receipts = new Receipts(max);
      const addAll = (added: readonly string[]): string[] => {
        const expected: string[] = [];
        for (const [version, id] of added.entries()) {
          receipts.add(id, { version, skipped: 0 });
          if (!expected.includes(id)) expected.push(id);
          if (expected.length > max) expected.shift();
        }
        return expected;
      };
      addAll(early);
      receipts.clear();
      const expected = addAll(late);
      t.deepEqual(
        receipts.toMessages().map(({ proposalId }) => proposalId),
        expected,
      );
      for (const id of expected) t.is(receipts.find(id)?.version, late.lastIndexOf(id));
    }),
  );
});

test("forgetting a receipt costs the same with many as with few", (t) => {
  const ids = Array.from({ length: 40_000 }, (_, at) => `proposal-${at}`);
  const timed = (max: number): number => {
    const receipts = new Receipts(max);
    const began = performance.now();
    for (const [version, id] of ids.entries()) receipts.add(id, { version, skipped: 0 });
    return performance.now() - began;
  };
  const rounds = Array.from({ length: 4 }, () => ({ few: timed(20), many: timed(10_000) }));
  const few = Math.min(...rounds.map((round) => round.few));
  const many = Math.min(...rounds.map((round) => round.many));
  t.true(many < 15 * few, `${many} ms with many, ${few} ms with few`);
});
