// Sealing, and the log and snapshots on top of it: nothing readable is stored, and only sealed data is read.
import test from "ava";
import fc from "fast-check";
import { LogRecord, Sealed, Transaction, type DataKey } from "../../proto/gen/messages.ts";
import type { AppendOutcome, Blobs, Log, LogReader } from "../../runtime/ports/index.ts";
import { SimClock } from "../../runtime/sim/clock.ts";
import { SimRandom } from "../../runtime/sim/random.ts";
import { Keyring, newest, type KeyStore } from "../../runtime/store/keyring.ts";
import { decodeRecord, encodeRecord } from "../../runtime/store/record.ts";
import { open, seal, sealKeyBytes, sealOverheadBytes, type SealedFor } from "../../runtime/store/seal.ts";
import { KeyMissing, SealedBlobs } from "../../runtime/store/sealed-blobs.ts";
import { SealedLog } from "../../runtime/store/sealed-log.ts";
import { SnapshotError } from "../../runtime/store/snapshot.ts";

const random = new SimRandom("seal");
const key = { id: "k1", key: random.bytes(sealKeyBytes) };
const here: SealedFor = { purpose: "record", place: "7" };
const text = (bytes: Uint8Array | null): string | null => (bytes === null ? null : new TextDecoder().decode(bytes));
const bytes = (value: string): Uint8Array => new TextEncoder().encode(value);

test("sealed data opens with its key at its place, and nowhere else", (t) => {
  const sealed = seal(key, bytes("canary"), random, here);
  t.is(text(open(key.key, sealed, here)), "canary");
  t.is(open(random.bytes(sealKeyBytes), sealed, here), null, "another key");
  t.is(open(key.key, sealed, { ...here, place: "8" }), null, "another place");
  t.is(open(key.key, sealed, { ...here, purpose: "snapshot" }), null, "for another purpose");
  t.notDeepEqual(seal(key, bytes("canary"), random, here).ciphertext, sealed.ciphertext, "never twice the same");
});

test("changed, truncated or forged data does not open, and nothing throws", (t) => {
  const sealed = seal(key, bytes("a record of some length"), random, here);
  fc.assert(
    fc.property(fc.nat(sealed.ciphertext.length - 1), fc.integer({ min: 1, max: 255 }), (at, mask) => {
      const ciphertext = Uint8Array.from(sealed.ciphertext);
      ciphertext[at] = (ciphertext[at] as number) ^ mask;
      return open(key.key, Sealed.patch(sealed, { ciphertext }), here) === null;
    }),
  );
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 80 }), fc.uint8Array({ maxLength: 40 }), (ciphertext, nonce) => {
      return open(key.key, Sealed.create({ keyId: "k1", nonce, ciphertext }), here) === null;
    }),
  );
  for (let length = 0; length < sealed.ciphertext.length; length += 1)
    t.is(open(key.key, Sealed.patch(sealed, { ciphertext: sealed.ciphertext.subarray(0, length) }), here), null);
});

/** A key store that behaves like a disk; `fails` while that is full. */
function keyStore(): KeyStore & { fails: boolean } {
  const store = {
    fails: false,
    dataKeys: [] as readonly DataKey[],
    plainThrough: 0,
    update: (change: { readonly dataKeys: readonly DataKey[]; readonly plainThrough: number }) => {
      if (store.fails) throw new Error("no space left on device");
      Object.assign(store, change);
    },
  };
  return store;
}

class MemoryLog implements Log {
  readonly records: Uint8Array[] = [];
  readonly readers = new Map<LogReader, number>();
  readonly ahead: (number | undefined)[] = [];
  readonly recordBytesMax = 1_000_000;
  append(data: Uint8Array, expectedLast: number): Promise<AppendOutcome> {
    if (expectedLast !== this.records.length) return Promise.resolve({ kind: "conflict" });
    this.records.push(data);
    for (const reader of this.readers.keys()) this.#push(reader);
    return Promise.resolve({ kind: "appended", sequence: this.records.length });
  }
  read(fromSequence: number, reader: LogReader, aheadBytes?: number) {
    this.ahead.push(aheadBytes);
    this.readers.set(reader, fromSequence);
    this.#push(reader);
    return { unsubscribe: () => void this.readers.delete(reader) };
  }
  bounds = () => Promise.resolve({ first: 1, last: this.records.length });
  purgeBefore = () => Promise.resolve();
  bytes = () => Promise.resolve(0);
  space = () => "ample" as const;
  #push(reader: LogReader): void {
    for (let next = this.readers.get(reader); next !== undefined && next <= this.records.length;) {
      this.readers.set(reader, next + 1);
      reader.onRecord(next, this.records[next - 1] as Uint8Array);
      next = this.readers.get(reader);
    }
    reader.onCaughtUp(this.records.length);
  }
}

function setUp() {
  const below = new MemoryLog();
  const store = keyStore();
  const keyring = new Keyring(store, random);
  const simulated = new SimClock();
  const log = new SealedLog(below, keyring, random, simulated.forProcess());
  return { below, store, keyring, simulated, log };
}

test("a reader's limit of bytes reaches the log below, and is absent without one", (t) => {
  const { below, log } = setUp();
  const reader: LogReader = { onRecord: () => {}, onCaughtUp: () => {}, onGap: () => {} };
  log.read(1, reader, 32_768);
  log.read(1, reader);
  t.deepEqual(below.ahead, [32_768, undefined]);
});

function collect(log: Log, from = 1) {
  const read: { sequence: number; text: string | null; isBroken: boolean }[] = [];
  const subscription = log.read(from, {
    onRecord: (sequence, data) => {
      const outcome = decodeRecord(data);
      const id = outcome.kind === "decoded" ? outcome.record.transaction.id : null;
      read.push({ sequence, text: id, isBroken: outcome.kind === "broken" });
    },
    onCaughtUp: () => {},
    onGap: () => {},
  });
  return { read, ids: () => read.map(({ text: id }) => id), subscription };
}

const record = (id: string): Uint8Array => encodeRecord(Transaction.create({ id }));

test("records are stored sealed and read back unchanged by holders of the keys", async (t) => {
  const { below, log, keyring } = setUp();
  t.deepEqual(await log.append(record("canary-1"), 0), { kind: "appended", sequence: 1 });
  t.deepEqual(await log.append(record("canary-2"), 1), { kind: "appended", sequence: 2 });
  t.deepEqual(await log.append(record("canary-3"), 1), { kind: "conflict" });
  for (const stored of below.records) {
    t.false(Buffer.from(stored).includes("canary"));
    t.is(LogRecord.decode(stored).transaction.length, 0);
    t.true(stored.length - record("canary-1").length <= sealOverheadBytes);
  }
  t.deepEqual(collect(log).ids(), ["canary-1", "canary-2"]);
  t.is(keyring.keys.length, 1, "the first append created the first key");
  t.is(log.recordBytesMax, below.recordBytesMax - sealOverheadBytes);
});

test("a key that cannot be saved seals nothing", async (t) => {
  const { below, log, store } = setUp();
  store.fails = true;
  t.like(await log.append(record("one"), 0), { kind: "refused" });
  t.is(below.records.length, 0);
  store.fails = false;
  t.like(await log.append(record("one"), 0), { kind: "appended" });
});

test("reading of an existing unsealed log continues, and it is sealed from then on", async (t) => {
  const { below, log } = setUp();
  below.records.push(record("old-1"), record("old-2"));
  t.like(await log.append(record("new"), 2), { kind: "appended" });
  t.deepEqual(collect(log).ids(), ["old-1", "old-2", "new"]);
  // Somebody who can write to NATS omits the seal.
  below.records.push(record("forged"));
  t.like(collect(log).read[3], { sequence: 4, isBroken: true });
});

test("a record that was moved, changed or replaced is broken", async (t) => {
  const { below, log } = setUp();
  await log.append(record("one"), 0);
  await log.append(record("two"), 1);
  below.records.reverse();
  t.deepEqual(
    collect(log).read.map(({ isBroken }) => isBroken),
    [true, true],
  );
  below.records.length = 0;
  below.records.push(Uint8Array.of(26, 200, 1));
  t.true(collect(log).read[0]?.isBroken);
});

test("reading stops at a record whose key is missing, and continues from there when the key has arrived", async (t) => {
  const writer = setUp();
  await writer.log.append(record("one"), 0);
  const reader = new Keyring(keyStore(), random);
  const log = new SealedLog(writer.below, reader, random, new SimClock().forProcess());
  const { ids, subscription } = collect(log);
  t.deepEqual(ids(), []);
  t.deepEqual(reader.missing, [writer.keyring.keys[0]?.id as string]);
  await writer.log.append(record("two"), 1);
  t.deepEqual(ids(), []);
  reader.take(writer.keyring.keys, writer.keyring.plainThrough);
  t.deepEqual(ids(), ["one", "two"]);
  t.deepEqual(reader.missing, []);

  const next = writer.keyring.make("locked");
  writer.keyring.use(next.id, 2);
  await writer.log.append(record("three"), 2);
  t.deepEqual(ids(), ["one", "two"]);
  t.deepEqual(reader.missing, [next.id]);
  reader.take(writer.keyring.keys, writer.keyring.plainThrough);
  t.deepEqual(ids(), ["one", "two", "three"]);
  subscription.unsubscribe();
  t.is(writer.below.readers.size, 0);
});

test("rereading an old record does not make its key the current one", async (t) => {
  const { below, keyring, log, simulated } = setUp();
  await log.append(record("one"), 0);
  const older = keyring.current?.id ?? "";
  const next = keyring.make("locked");
  keyring.use(next.id, 1);
  await log.append(record("two"), 1);
  const reader = new Keyring(keyStore(), random);
  reader.take(keyring.keys, keyring.plainThrough);
  const late = new SealedLog(below, reader, random, simulated.forProcess());
  t.deepEqual(collect(late).ids(), ["one", "two"]);
  let changes = 0;
  reader.onChange(() => (changes += 1));
  t.deepEqual(collect(late).ids(), ["one", "two"]);
  t.is(changes, 0, "not even while the older record is the last one read");
  t.is(reader.current?.id, next.id);
  reader.met(3, older);
  t.is(reader.current?.id, older, "a further record under it shows that it is in use again");
});

test("a record whose key name was damaged in transit is reread, and then nothing is missing", async (t) => {
  const { below, keyring, log, simulated } = setUp();
  await log.append(record("one"), 0);
  const [stored] = below.records;
  const { sealed } = LogRecord.decode(stored as Uint8Array);
  const damaged = Sealed.patch(sealed as Sealed, { keyId: "0123456789abcdef" });
  below.records[0] = LogRecord.encode(LogRecord.create({ sealed: damaged }));
  const { ids } = collect(log);
  t.deepEqual(ids(), []);
  t.deepEqual(keyring.missing, ["0123456789abcdef"]);
  below.records[0] = stored as Uint8Array;
  await simulated.run({ untilMs: simulated.now() + 10_000 });
  t.deepEqual(ids(), ["one"]);
  t.deepEqual(keyring.missing, []);
});

test("Z3: a record that was damaged in transit is reread once, and rejected only if it stays damaged", async (t) => {
  const { below, log } = setUp();
  await log.append(record("one"), 0);
  await log.append(record("two"), 1);
  const [, stored] = below.records as [Uint8Array, Uint8Array];
  const damaged = Uint8Array.from(stored);
  damaged[damaged.length - 1] = (damaged.at(-1) as number) ^ 1;
  let isOnce = true;
  Object.defineProperty(below.records, 1, {
    configurable: true,
    get: () => (isOnce ? ((isOnce = false), damaged) : stored),
  });
  t.deepEqual(
    collect(log).read.map(({ isBroken, text }) => [text, isBroken]),
    [
      ["one", false],
      ["two", false],
    ],
  );
  Object.defineProperty(below.records, 1, { configurable: true, value: damaged });
  t.deepEqual(
    collect(log).read.map(({ isBroken }) => isBroken),
    [false, true],
  );
});

test("a reader of old records continues to write under the newest key", async (t) => {
  const { log, keyring } = setUp();
  await log.append(record("one"), 0);
  const [first] = keyring.keys;
  const second = keyring.make("");
  t.is(keyring.current?.id, second.id);
  keyring.use(second.id, 1);
  await log.append(record("two"), 1);
  collect(log).subscription.unsubscribe();
  t.is(keyring.current?.id, second.id);
  collect(log).subscription.unsubscribe();
  t.is(keyring.current?.id, second.id);
  t.not(first?.id, second.id);
});

test("when two keys have one generation all managers consider the same one newer", (t) => {
  const keys = [
    { id: "b", generation: 2 },
    { id: "a", generation: 2 },
    { id: "0", generation: 1 },
  ];
  t.is(newest(keys)?.id, "a");
  t.is(newest(keys.toReversed())?.id, "a");
  t.is(newest([]), null);
});

test("snapshots are stored sealed, of any length, and open only under their own name", async (t) => {
  const { keyring, store } = setUp();
  keyring.forAppend(5);
  const clock = new SimClock();
  const stored = new Map<string, Uint8Array>();
  const below: Blobs = {
    put: (name, data) => Promise.resolve(void stored.set(name, data)),
    get: (name) => Promise.resolve(stored.get(name) ?? null),
    list: () => Promise.resolve([...stored.keys()]),
    remove: (name) => Promise.resolve(void stored.delete(name)),
  };
  const blobs = new SealedBlobs(below, keyring, { random, clock });
  const done = async <Result>(work: Promise<Result>): Promise<Result> => {
    const all = Promise.all([work, clock.run({ untilMs: clock.now() + 1_000 })]);
    return (await all)[0];
  };
  for (const length of [0, 1, 1024 * 1024, 2_500_000]) {
    const data = Uint8Array.from({ length }, (_, at) => at % 251);
    await done(blobs.put("snapshot-9", data));
    t.is(Buffer.compare((await done(blobs.get("snapshot-9"))) as Uint8Array, data), 0, `${length}`);
  }
  await done(blobs.put("snapshot-9", bytes("canary")));
  t.false(Buffer.from(stored.get("snapshot-9") as Uint8Array).includes("canary"));
  stored.set("snapshot-8", stored.get("snapshot-9") as Uint8Array);
  await t.throwsAsync(done(blobs.get("snapshot-8")), { instanceOf: SnapshotError });
  t.is(await blobs.get("snapshot-1"), null);

  // One from before the first key is accepted unsealed; a later one is not.
  stored.set("snapshot-5", record("old"));
  stored.set("snapshot-6", record("forged"));
  t.deepEqual(await blobs.get("snapshot-5"), record("old"));
  await t.throwsAsync(blobs.get("snapshot-6"), { instanceOf: SnapshotError });

  const other = new Keyring(keyStore(), random);
  await t.throwsAsync(new SealedBlobs(below, other, { random, clock }).get("snapshot-9"), { instanceOf: KeyMissing });
  t.deepEqual(other.missing, [store.dataKeys[0]?.id as string]);
});
