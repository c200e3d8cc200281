/** proto/list-writer.ts: lists written message by message equal the encoding of the message that contains them. */
import test from "ava";
import { Change, TaskPatch, Transaction } from "../../proto/gen/messages.ts";
import { ListWriter } from "../../proto/list-writer.ts";

/** Transaction.changes. */
const changesField = 6;

/** Bodies of 0 to some thousand bytes: lengths of one, two and three bytes, and more than the writer's initial buffer. */
const changes = [0, 1, 60, 127, 128, 129, 5_000, 20_000, 3].map((length) =>
  Change.create({ task: TaskPatch.create({ id: "i".repeat(length) }) }),
);

test("a list written message by message equals the encoding of the whole message", (t) => {
  const list = new ListWriter(Change, changesField);
  for (const change of changes) t.is(list.add(change), Change.encode(change).length);
  t.is(list.length, changes.length);
  t.deepEqual(list.encoded(), Transaction.encode(Transaction.create({ changes })));
});

test("everything added since a mark is discarded", (t) => {
  const list = new ListWriter(Change, changesField);
  list.add(changes[2] as Change);
  const mark = list.mark();
  for (const change of changes) list.add(change);
  list.truncate(mark);
  t.is(list.length, 1);
  list.add(changes[4] as Change);
  const kept = [changes[2] as Change, changes[4] as Change];
  t.deepEqual(list.encoded(), Transaction.encode(Transaction.create({ changes: kept })));
});

test("encoded data stays unchanged when the list continues", (t) => {
  const list = new ListWriter(Change, changesField);
  t.is(list.encoded().length, 0);
  list.add(changes[1] as Change);
  const first = list.encoded();
  const before = Uint8Array.from(first);
  list.truncate({ length: 0, bytes: 0 });
  list.add(changes[3] as Change);
  t.deepEqual(Uint8Array.from(first), before);
});
