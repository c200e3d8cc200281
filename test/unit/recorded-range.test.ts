// The range of the log in a recording: what a manager writes of it, and the states that a reader finds at each moment.
import test from "ava";
import fc from "fast-check";
import {
  Annotations,
  Change,
  Kind,
  Node,
  RecordedTransaction,
  RecordingPart,
  Removal,
  Service,
  ServiceSpec,
  StoreObject,
  Task,
  TaskState,
  TaskStatus,
  Transaction,
  User,
} from "../../proto/gen/messages.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import { PartFileError } from "../../runtime/part-file.ts";
import { basePieceBytes, objectOverheadBytes } from "../../runtime/recording/format.ts";
import { openRecording } from "../../runtime/recording/opened.ts";
import { RecordedObjects } from "../../runtime/recording/recorded-objects.ts";
import { encodeRecord } from "../../runtime/store/record.ts";
import { snapshotName } from "../../runtime/store/snapshots.ts";
import { rangeWorld } from "../support/log-ranges.ts";
import { fileOf, headPart, inOrder, sealedParts } from "../support/recordings.ts";

/** Objects that have recorded fields only, so recorded states equal the manager's. */
const task = (at: number, state: TaskState): Task =>
  Task.create({ id: `t${at}`, serviceId: "s", slot: at, status: TaskStatus.create({ state }) });

function opened(parts: readonly RecordedTransaction[], checkpointChanges?: number): RecordedObjects {
  const { objects, fault } = RecordedObjects.open(parts, checkpointChanges === undefined ? {} : { checkpointChanges });
  if (objects === null || fault !== null) throw fault ?? new Error("no objects");
  return objects;
}

const refused = (run: () => unknown): RpcError | null => {
  try {
    run();
    return null;
  } catch (error) {
    if (error instanceof RpcError) return error;
    throw error;
  }
};

type Step =
  | { readonly kind: "task"; readonly at: number; readonly state: TaskState; readonly waitMs: number }
  | { readonly kind: "drop"; readonly at: number; readonly waitMs: number }
  | { readonly kind: "snapshot" };

const steps: fc.Arbitrary<readonly Step[]> = fc.array(
  fc.oneof(
    {
      weight: 6,
      arbitrary: fc.record({
        kind: fc.constant("task" as const),
        at: fc.nat(9),
        state: fc.constantFrom(...Object.values(TaskState)),
        waitMs: fc.nat(3),
      }),
    },
    { weight: 2, arbitrary: fc.record({ kind: fc.constant("drop" as const), at: fc.nat(9), waitMs: fc.nat(3) }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant("snapshot" as const) }) },
  ),
  { minLength: 1, maxLength: 60 },
);

test("in any order of moments, the state of each is the one that the cluster had then", async (t) => {
  const seeks = fc.array(fc.nat(200), { minLength: 1, maxLength: 20 });
  await fc.assert(
    fc.asyncProperty(
      steps,
      seeks,
      fc.nat(60),
      fc.integer({ min: 1, max: 20 }),
      async (changes, moments, from, every) => {
        const { manager, pasts, record, retained, wait } = rangeWorld();
        const { store } = manager;
        /** When each state was written. */
        const states = [{ atMs: 0, version: 0, hash: store.stateHash() }];
        for (const step of changes) {
          if (step.kind === "snapshot") {
            if (store.version > 0) retained.stored.set(snapshotName(store.version), store.snapshot());
            continue;
          }
          await wait(step.waitMs);
          if (step.kind === "task") manager.seed("task", task(step.at, step.state));
          else manager.drop("task", `t${step.at}`);
          if (states.at(-1)?.version !== store.version)
            states.push({ atMs: manager.clock.now(), version: store.version, hash: store.stateHash() });
        }
        const firstMs = states[states.length > 1 ? 1 : 0]?.atMs ?? 0;
        const fromMs = firstMs + from;
        const { missing, transactions } = await record(fromMs);
        t.deepEqual(missing, []);
        const objects = opened(transactions, every);
        for (const moment of moments) {
          const atMs = fromMs + moment;
          const state = states.findLast((each) => each.atMs <= atMs);
          const replica = objects.at(atMs);
          t.is(replica.version, state?.version ?? -1);
          t.is(replica.stateHash(), state?.hash ?? "");
        }
        t.is(objects.toMs, null);
        pasts.stop();
      },
    ),
    { numRuns: 60 },
  );
});

test("checkpoints change nothing but the time to a moment, and commits are the ones up to it", async (t) => {
  const { manager, record } = rangeWorld();
  const hashes = [""];
  for (let at = 0; at < 400; at += 1) {
    manager.seed("task", task(at % 40, TaskState.RUNNING), task(40 + (at % 7), TaskState.FAILED));
    hashes.push(manager.store.stateHash());
  }
  const { transactions } = await record(0);
  const [many, one] = [opened(transactions, 3), opened(transactions, 1e9)];
  for (const version of [400, 1, 399, 200, 201, 17, 16, 350]) {
    t.is(many.atVersion(version).stateHash(), hashes[version] ?? "");
    t.is(one.atVersion(version).stateHash(), hashes[version] ?? "");
    t.is(many.atVersion(version).writer, "manager1", "a checkpoint does not know it");
  }
  const last = Number.MAX_SAFE_INTEGER;
  for (const objects of [many, one]) {
    const commits = objects.commitsUpTo(last, 5);
    t.deepEqual(
      commits.map(({ commit }) => [commit.version, commit.changes.length]),
      [
        [398, 2],
        [399, 2],
        [400, 2],
      ],
    );
    t.is(commits[0]?.commit.changes[0]?.old?.id, "t37", "with the objects before");
    t.is(objects.commitsUpTo(last, 10_000).length, 400);
    t.is(objects.at(last).stateHash(), hashes[400] ?? "");
  }
});

test("users, and values that users write, are not in the bytes; the rest is found again", async (t) => {
  const { manager, record, wait } = rangeWorld();
  const secret = "canary-9a0e";
  const service = (name: string): Service =>
    Service.create({
      id: "s1",
      spec: ServiceSpec.create({ annotations: Annotations.create({ name, labels: { note: secret } }) }),
    });
  manager.seed("user", User.create({ id: secret }));
  manager.seed("service", service("web"));
  await wait(1_000);
  const fromMs = manager.clock.now();
  await wait(1_000);
  manager.seed("user", User.create({ id: secret, disabled: true }));
  manager.seed("service", service("shop"));
  manager.drop("user", secret);
  const { parts, transactions } = await record(fromMs);
  t.false(parts.some((part) => Buffer.from(RecordingPart.encode(part)).includes(secret)));
  const objects = opened(transactions);
  t.is(objects.at(fromMs).byName("service", "web")?.id, "s1");
  t.is(objects.at(manager.clock.now()).byName("service", "shop")?.id, "s1");
  t.is(objects.at(fromMs).count("user"), 0);
});

test("LR1: a part that the log no longer has is named, and no moment of it is shown", async (t) => {
  const { manager, record, retained, wait } = rangeWorld();
  await wait(10_000);
  manager.seed("node", Node.create({ id: "n1" }));
  await wait(10_000);
  manager.seed("node", Node.create({ id: "n2" }));
  retained.stored.set(snapshotName(2), manager.store.snapshot());
  const keptMs = manager.clock.now();
  retained.first = 3;
  await wait(10_000);
  manager.seed("node", Node.create({ id: "n3" }));
  const { missing, transactions } = await record(keptMs - 5_000);
  const kept = new Date(keptMs).toISOString();
  t.deepEqual(missing, [`the cluster's objects before ${kept}: the log has nothing older (version 2)`]);
  const objects = opened(transactions);
  t.is(objects.at(keptMs).count("node"), 2);
  const early = refused(() => objects.at(keptMs - 1));
  t.is(early?.code, Status.OUT_OF_RANGE);
  t.regex(early?.message ?? "", new RegExp(`has the cluster's objects from ${kept} on, not of `));
  t.is(refused(() => objects.atVersion(1))?.code, Status.OUT_OF_RANGE);
  t.is(refused(() => objects.atVersion(4))?.code, Status.OUT_OF_RANGE);
});

test("LR2: above its limit the range ends, which is named, and later moments are not shown", async (t) => {
  const { manager, record, wait } = rangeWorld();
  manager.seed("node", Node.create({ id: "n0" }));
  const fromMs = manager.clock.now();
  for (let at = 1; at <= 20; at += 1) {
    await wait(1_000);
    manager.seed("node", Node.create({ id: `n${at}` }));
  }
  const { missing, transactions } = await record(fromMs, { bytesMax: 12 * objectOverheadBytes });
  const objects = opened(transactions);
  const endMs = objects.toMs ?? 0;
  const versions = objects.transactions;
  t.true(versions >= 2 && versions < 10, `${versions}`);
  t.deepEqual(missing, [
    `the cluster's objects after ${new Date(endMs).toISOString()} (version ${1 + versions} of 21): the range of the log exceeds 0 MiB; use a shorter --since`,
  ]);
  t.is(objects.at(endMs).count("node"), 1 + versions);
  t.is(refused(() => objects.at(endMs + 1))?.code, Status.OUT_OF_RANGE);

  const none = await record(fromMs, { bytesMax: objectOverheadBytes });
  t.deepEqual(none.transactions, []);
  t.deepEqual(none.missing, ["the cluster's objects: their state alone exceeds 0 MiB"]);
});

test("a log that does not answer, is shortened or damaged ends the range with the reason", async (t) => {
  const silent = rangeWorld();
  silent.manager.seed("node", Node.create({ id: "n1" }));
  silent.retained.isUp = false;
  const unread = await silent.record(0);
  t.deepEqual(unread.transactions, []);
  t.deepEqual(unread.missing, ["the cluster's objects: the log does not answer: try again"]);

  const damaged = rangeWorld();
  for (let at = 0; at < 5; at += 1) damaged.manager.seed("node", Node.create({ id: `n${at}` }));
  damaged.retained.records[2] = damaged.retained.records[1] as Uint8Array;
  const broken = await damaged.record(0);
  t.regex(broken.missing[0] ?? "", /\(version 2 of 5\): the log cannot be read further$/);
  t.is(opened(broken.transactions).transactions, 2);

  const short = rangeWorld();
  for (let at = 0; at < 500; at += 1) short.manager.seed("node", Node.create({ id: `n${at}` }));
  const reading = short.begin(0);
  await short.wait(3);
  reading.stream.buffered = 1e9;
  await short.wait(1_000);
  short.retained.first = 500;
  reading.stream.buffered = 0;
  await short.wait(10_000);
  t.regex(reading.outcome.missing?.[0] ?? "", /the log was just shortened; try again$/);
});

test("a foreign message in the log is a version without changes", async (t) => {
  const { manager, record, retained } = rangeWorld();
  manager.seed("node", Node.create({ id: "n1" }));
  retained.records.push(Buffer.from("not a record"));
  manager.seed("node", Node.create({ id: "n2" }));
  const { missing, transactions } = await record(0, { store: { version: 3 } });
  t.deepEqual(missing, []);
  const objects = opened(transactions);
  t.deepEqual(
    [0, 1, 2, 3].map((version) => objects.atVersion(version).count("node")),
    [0, 1, 1, 2],
  );
  t.is(objects.atVersion(2).version, 2);
});

test("a client that does not read stops the reading; one that leaves ends it", async (t) => {
  const { begin, manager, wait } = rangeWorld();
  for (let at = 0; at < 3_000; at += 1) manager.seed("node", Node.create({ id: `n${at}` }));
  const slow = begin(0);
  while (slow.stream.messages.length < 10) await wait(1);
  slow.stream.buffered = 1e9;
  const before = slow.stream.messages.length;
  await wait(5_000);
  t.true(slow.stream.messages.length <= before + 1, `${before} parts, then ${slow.stream.messages.length}`);
  t.true(before < 1_000);
  slow.stream.buffered = 0;
  await wait(5_000);
  t.is(slow.stream.messages.length, 3_002);
  const gone = begin(0);
  gone.stream.buffered = 1e9;
  await wait(1_000);
  gone.leave();
  await wait(1_000);
  t.deepEqual(gone.outcome.missing, []);
  t.true(gone.stream.messages.length < 5);
});

test("a large base comes in pieces", async (t) => {
  const { manager, record } = rangeWorld();
  const names = Array.from({ length: 4_000 }, (_, at) => `${at}-`.padEnd(500, "x"));
  manager.seed("node", ...names.map((id) => Node.create({ id })));
  const { transactions } = await record(manager.clock.now());
  const pieces = transactions.filter(({ base }) => base);
  t.true(pieces.length >= 2);
  t.true(pieces.every(({ record: { length } }) => length <= basePieceBytes));
  t.is(opened(transactions).at(manager.clock.now()).count("node"), 4_000);
});

/** A base without objects, three records, and the end. */
async function rangeOfThree(): Promise<readonly RecordedTransaction[]> {
  const { manager, record } = rangeWorld();
  manager.seed("node", Node.create({ id: "n0" }));
  for (let at = 1; at <= 2; at += 1) manager.seed("node", Node.create({ id: `n${at}` }));
  return (await record(0)).transactions;
}

const changedByte = (whole: RecordedTransaction | undefined): Uint8Array =>
  (whole?.record ?? new Uint8Array()).map((byte, at) => (at === 6 ? byte ^ 1 : byte));

const part = (fields: Partial<RecordedTransaction>): RecordedTransaction => RecordedTransaction.create(fields);

test("OB1: a range that was changed or made up is refused, and --force shows what is before the fault", async (t) => {
  const range = await rangeOfThree();
  const [base, first, second, third, end] = range;
  const bad: Readonly<
    Record<string, { readonly parts: readonly unknown[]; readonly says: RegExp; readonly kept: number }>
  > = {
    "without a base": { parts: [first, second], says: /begins without a state/, kept: -1 },
    "a base of other bytes": {
      parts: [part({ base: true, record: Buffer.from("nonsense") }), first],
      says: /range of the log cannot be read: /,
      kept: -1,
    },
    "a base of another version": {
      parts: [RecordedTransaction.patch(base as RecordedTransaction, { version: 7 }), first],
      says: /pieces are not all of version 0/,
      kept: -1,
    },
    "a record left out": {
      parts: [base, first, third],
      says: /breaks at record 3: sequence does not follow 1/,
      kept: 1,
    },
    "a record twice": { parts: [base, first, first], says: /breaks at record 1: /, kept: 1 },
    "a record of another chain": {
      parts: [base, first, part({ version: 2, record: changedByte(second) })],
      says: /breaks at record 2: it is not a record/,
      kept: 1,
    },
    "a record that does not follow": { parts: [base, second], says: /sequence does not follow 0/, kept: 0 },
    "a base after records": { parts: [base, first, base], says: /out of order/, kept: 1 },
    "a record after the end": {
      parts: [base, first, part({ version: 1, end: true }), second],
      says: /out of order/,
      kept: 1,
    },
    "another end": { parts: [base, first, end], says: /ends at version 3, but its last record is 1/, kept: 1 },
  };
  for (const [name, { kept, parts, says }] of Object.entries(bad)) {
    const transactions = parts as readonly RecordedTransaction[];
    const file = await fileOf(
      sealedParts([headPart(), ...transactions.map((transaction) => RecordingPart.create({ transaction }))], null),
    );
    const error = await t.throwsAsync(
      openRecording(inOrder([file]), { isForced: false }),
      {
        instanceOf: PartFileError,
        message: says,
      },
      name,
    );
    t.is((error as PartFileError | undefined)?.fault, "damaged", name);
    const forced = await openRecording(inOrder([file]), { isForced: true });
    t.regex(forced.fault?.message ?? "", says, name);
    t.is(forced.objects?.transactions ?? -1, kept, name);
    if (kept < 0) continue;
    t.is(forced.objects?.atVersion(kept).count("node"), kept, name);
    t.true(
      refused(() => forced.objects?.at(Number.MAX_SAFE_INTEGER)) !== null || name === "a record after the end",
      name,
    );
  }
});

test("a transaction that does not fit its state leaves nothing of itself behind", async (t) => {
  const [base] = await rangeOfThree();
  const changes = [
    Change.create({ put: StoreObject.create({ node: Node.create({ id: "half" }) }) }),
    Change.create({ remove: Removal.create({ kind: Kind.KIND_NODE, id: "absent" }) }),
  ];
  const record = encodeRecord(Transaction.create({ epoch: 1, changes }));
  const { fault, objects } = RecordedObjects.open([base as RecordedTransaction, part({ version: 1, record })]);
  t.regex(fault?.message ?? "", /a removal of the node absent, which does not exist/);
  t.is(objects?.atVersion(0).count("node"), 0);
});

test("more than the limit is refused before it is applied", async (t) => {
  const range = await rangeOfThree();
  const { fault } = RecordedObjects.open(range, { rangeBytesMax: 3 * objectOverheadBytes });
  t.is(fault?.message, "its range of the log exceeds the limit of 0 MiB");
  const many = range[0] as RecordedTransaction;
  t.regex(RecordedObjects.open([many], { rangeBytesMax: 10 }).fault?.message ?? "", /exceeds the limit/);
});

test("a recording of an earlier version has no objects, and opens", async (t) => {
  const file = await fileOf(sealedParts([headPart()], null));
  const { fault, objects } = await openRecording(inOrder([file]), { isForced: false });
  t.is(objects, null);
  t.is(fault, null);
});
