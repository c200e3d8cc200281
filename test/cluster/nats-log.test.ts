import test, { type ExecutionContext } from "ava";
import type { NatsLink } from "../../runtime/nats/connection.ts";
import { callJetStream } from "../../runtime/nats/jetstream.ts";
import { Link } from "../../runtime/nats/link.ts";
import { logStream } from "../../runtime/nats/streams.ts";
import { SystemRandom } from "../../runtime/system/random.ts";
import type { LogReader } from "../../runtime/ports/index.ts";
import { natsBinaries, natsServer, signal, until } from "../fixtures/nats-server.ts";
import { patient } from "../support/slowness.ts";

const encoder = new TextEncoder();
const decoder = new TextDecoder();

interface Reading extends LogReader {
  readonly records: { readonly sequence: number; readonly text: string }[];
  readonly caughtUp: number[];
  readonly gaps: number[];
}

function read(t: ExecutionContext, link: NatsLink, from: number): Reading {
  const reading: Reading = {
    records: [],
    caughtUp: [],
    gaps: [],
    onRecord: (sequence, data) => void reading.records.push({ sequence, text: decoder.decode(data) }),
    onCaughtUp: (sequence) => void reading.caughtUp.push(sequence),
    onGap: (firstKept) => void reading.gaps.push(firstKept),
  };
  const subscription = link.log.read(from, reading);
  t.teardown(() => subscription.unsubscribe());
  return reading;
}

async function append(link: NatsLink, count: number, from = 0): Promise<void> {
  for (let last = from; last < from + count; last++) {
    const outcome = await link.log.append(encoder.encode(`record ${last + 1}`), last);
    if (outcome.kind !== "appended" || outcome.sequence !== last + 1) throw new Error(JSON.stringify(outcome));
  }
}

function isConsecutive(reading: Reading, from = 1): boolean {
  return reading.records.every(({ sequence, text }, at) => sequence === from + at && text === `record ${sequence}`);
}

for (const binary of natsBinaries) {
  test(`when two writers expect the same end of the log, one wins and the other gets a conflict (${binary})`, async (t) => {
    const { connect } = await natsServer(t, binary);
    const [one, other] = [await connect(), await connect()];
    t.deepEqual(await one.log.bounds(2_000), { first: 1, last: 0 });
    for (let last = 0; last < 50; last++) {
      const outcomes = await Promise.all([one, other].map((link) => link.log.append(encoder.encode("x"), last)));
      t.deepEqual(outcomes.map(({ kind }) => kind).sort(), ["appended", "conflict"]);
    }
    t.deepEqual(await other.log.bounds(2_000), { first: 1, last: 50 });
    t.is((await one.log.append(encoder.encode("x"), 51)).kind, "conflict");
  });

  test(`a reader gets every record once and in order from its start, and is notified when it has caught up (${binary})`, async (t) => {
    const { connect } = await natsServer(t, binary);
    const link = await connect();
    const empty = read(t, link, 1);
    await until("the reader to catch up with the empty log", () => empty.caughtUp.length === 1);
    t.deepEqual(empty.caughtUp, [0]);
    await append(link, 20);
    await until("20 records", () => empty.records.length === 20);
    t.true(isConsecutive(empty));
    const late = read(t, link, 11);
    await until("caught up", () => late.caughtUp.length === 1);
    t.deepEqual(late.caughtUp, [20]);
    t.is(late.records.length, 10);
    t.true(isConsecutive(late, 11));
    const atTheEnd = read(t, link, 21);
    await until("the reader to catch up with the end", () => atTheEnd.caughtUp.length === 1);
    await append(link, 1, 20);
    await until(
      "the new record",
      () => atTheEnd.records.length === 1 && late.records.length === 11 && empty.records.length === 21,
    );
  });

  test(`nats-server killed with SIGKILL keeps acknowledged appends, and readers continue without gap or duplicate (${binary})`, async (t) => {
    const { connect, server } = await natsServer(t, binary);
    const [writer, other] = [await connect(), await connect()];
    const reading = read(t, other, 1);
    let last = 0;
    let unknown = 0;
    let killed = 0;
    let recoveredMs = 0;
    const until600 = performance.now() + 60_000;
    while (last < 600 && performance.now() < until600) {
      if (last >= 200 * (killed + 1) && killed < 2) {
        signal(server.pid, "SIGKILL");
        killed += 1;
      }
      const startedAt = performance.now();
      const outcome = await writer.log.append(encoder.encode(`record ${last + 1}`), last);
      if (outcome.kind === "appended") last = outcome.sequence;
      else if (outcome.kind === "unknown") {
        // As the ledger does: read the log before deciding again.
        unknown += 1;
        recoveredMs = Math.max(
          recoveredMs,
          await until("the log to answer", async () => (await writer.log.bounds(500)) !== null),
        );
        const bounds = await writer.log.bounds(2_000);
        t.true(bounds !== null && bounds.last >= last, "no acknowledged record is missing");
        last = bounds?.last ?? last;
      } else t.fail(JSON.stringify({ outcome, last, after: performance.now() - startedAt }));
    }
    t.is(last, 600);
    t.true(killed === 2 && unknown >= 2);
    const readMs = await until("all records to be read", () => reading.records.length === 600);
    t.true(isConsecutive(reading));
    t.true(reading.caughtUp.length >= 2, "notified again after each new connection");
    t.log(
      `appends again ${recoveredMs.toFixed(0)} ms after the kill was noticed; the reader was complete ${readMs.toFixed(0)} ms after the last append`,
    );
  });

  test(`a reader whose next record was purged learns the first retained one and stops (${binary})`, async (t) => {
    const { connect } = await natsServer(t, binary);
    const link = await connect();
    await append(link, 30);
    await link.log.purgeBefore(21);
    t.deepEqual(await link.log.bounds(2_000), { first: 21, last: 30 });
    const [old, kept] = [read(t, link, 20), read(t, link, 21)];
    await until("told", () => old.gaps.length === 1 && kept.caughtUp.length === 1);
    t.deepEqual(old.gaps, [21]);
    t.deepEqual(old.records, []);
    t.true(kept.records.length === 10 && isConsecutive(kept, 21));
    // Purging beyond the end removes everything, and the sequences continue.
    await link.log.purgeBefore(1_000);
    t.deepEqual(await link.log.bounds(2_000), { first: 31, last: 30 });
    await append(link, 1, 30);
    await until("the record after the purge", () => kept.records.length === 11);
    t.deepEqual(old.records, []);
  });

  test(`R2: a reader whose consumer the server has lost gets a new one (${binary})`, async (t) => {
    const { connect, server, telemetry } = await natsServer(t, binary);
    const link = await connect();
    const { url, user, pass } = server;
    const intruder = await Link.open({
      servers: [url],
      user,
      pass,
      name: "intruder",
      telemetry,
      random: new SystemRandom(),
      firstConnectMs: 1_000,
    });
    t.teardown(() => intruder.close());
    const reading = read(t, link, 1);
    await append(link, 5);
    await until("5 records", () => reading.records.length === 5);
    const consumers = async (): Promise<readonly string[]> => {
      const called = await callJetStream(intruder, `CONSUMER.NAMES.${logStream}`, {}, 2_000);
      return called.kind === "ok" && Array.isArray(called.body["consumers"])
        ? called.body["consumers"].map(String)
        : [];
    };
    const [consumer, ...others] = await consumers();
    t.deepEqual(others, []);
    t.is((await callJetStream(intruder, `CONSUMER.DELETE.${logStream}.${consumer}`, null, 2_000)).kind, "ok");
    await append(link, 5, 5);
    const ms = await until("the other 5", () => reading.records.length === 10);
    t.true(isConsecutive(reading));
    t.log(`noticed and replaced after ${ms.toFixed(0)} ms`);
  });

  test(`R4: records sent ahead are limited: a turn delivers few, a larger one comes alone, and new ones follow (${binary})`, async (t) => {
    const { connect } = await natsServer(t, binary);
    const link = await connect();
    const sizes = Array.from({ length: 3_000 }, (_, at) => (at === 1_500 ? 300_000 : 100));
    for (let first = 0; first < sizes.length; first += 100) {
      const outcomes = await Promise.all(
        sizes.slice(first, first + 100).map((size, at) => link.log.append(new Uint8Array(size), first + at)),
      );
      t.deepEqual([...new Set(outcomes.map(({ kind }) => kind))], ["appended"]);
    }
    const aheadBytes = 8 * 1024;
    const turns: number[] = [];
    let bytes = 0;
    const reading: Reading = {
      records: [],
      caughtUp: [],
      gaps: [],
      onRecord: (sequence, data) => {
        reading.records.push({ sequence, text: "" });
        if (bytes === 0) setImmediate(() => (turns.push(bytes), (bytes = 0)));
        bytes += data.length;
      },
      onCaughtUp: (sequence) => void reading.caughtUp.push(sequence),
      onGap: (firstKept) => void reading.gaps.push(firstKept),
    };
    const subscription = link.log.read(1, reading, aheadBytes);
    t.teardown(() => subscription.unsubscribe());
    await until("every record", () => reading.caughtUp.length === 1);
    t.deepEqual(
      reading.records.map(({ sequence }) => sequence),
      sizes.map((_, at) => at + 1),
    );
    const [largest = 0, next = 0] = turns.toSorted((a, b) => b - a);
    t.is(largest, 300_000);
    t.true(next <= aheadBytes, `${next} bytes in one turn`);
    // Longer than the server keeps a request for records that do not exist yet.
    await new Promise((resolve) => setTimeout(resolve, 6_000));
    await link.log.append(encoder.encode("x"), 3_000);
    await until("the new record", () => reading.records.length === 3_001);
    t.deepEqual([reading.caughtUp, reading.gaps], [[3_000], []]);
  });

  test(`R5: a limit that the records meet to the byte ends no reading (${binary})`, async (t) => {
    const { connect } = await natsServer(t, binary);
    const link = await connect();
    const count = 4;
    for (let at = 0; at < count; at += 1) await link.log.append(new Uint8Array(10), at);
    // As the server counts, two of these records have some number of bytes between these.
    const limits = Array.from({ length: 350 }, (_, at) => 50 + at);
    const slow: number[] = [];
    const read = async (aheadBytes: number): Promise<void> => {
      const begun = performance.now();
      await new Promise<void>((resolve) => {
        const reader = { onRecord: () => {}, onCaughtUp: () => resolve(), onGap: () => {} };
        const reading = link.log.read(1, reader, aheadBytes);
        t.teardown(() => reading.unsubscribe());
      });
      if (performance.now() - begun > patient(1_500)) slow.push(aheadBytes);
    };
    for (let first = 0; first < limits.length; first += 50)
      await Promise.all(limits.slice(first, first + 50).map(read));
    t.deepEqual(slow, []);
  });

  test(`a record that the server has lost never causes a silent gap: reading stops and reports what follows (${binary})`, async (t) => {
    const { connect, server, telemetry } = await natsServer(t, binary);
    const link = await connect();
    const { url, user, pass } = server;
    const intruder = await Link.open({
      servers: [url],
      user,
      pass,
      name: "intruder",
      telemetry,
      random: new SystemRandom(),
      firstConnectMs: 1_000,
    });
    t.teardown(() => intruder.close());
    await append(link, 9);
    t.is((await callJetStream(intruder, `STREAM.MSG.DELETE.${logStream}`, { seq: 5 }, 2_000)).kind, "ok");
    const reading = read(t, link, 1);
    await until("the gap", () => reading.gaps.length === 1);
    t.deepEqual(reading.gaps, [6]);
    t.true(reading.records.length === 4 && isConsecutive(reading));
  });

  test(`a record of the maximum size is stored, and a larger one rejected (${binary})`, async (t) => {
    const { connect } = await natsServer(t, binary);
    const link = await connect();
    t.true(link.log.recordBytesMax > 8_000_000);
    const reading = read(t, link, 1);
    t.deepEqual(await link.log.append(new Uint8Array(link.log.recordBytesMax), 0), { kind: "appended", sequence: 1 });
    t.is((await link.log.append(new Uint8Array(link.log.recordBytesMax + 1), 1)).kind, "refused");
    await until("the large record", () => reading.records.length === 1);
    t.is(reading.records[0]?.text.length, link.log.recordBytesMax);
  });

  test(`up to a thousand concurrent appends, each naming its predecessor, all succeed, and thousands are read in order (${binary})`, async (t) => {
    t.timeout(patient(180_000));
    const { connect } = await natsServer(t, binary);
    const link = await connect();
    const count = 4_000;
    // The server syncs one append after the other, and each is given up after 3 s: as many at once as this disk syncs in less.
    let concurrent = 100;
    for (let last = 0; last < count;) {
      const length = Math.min(concurrent, count - last);
      const startedAt = performance.now();
      const outcomes = await Promise.all(
        Array.from({ length }, (_, at) => link.log.append(encoder.encode(`record ${last + at + 1}`), last + at)),
      );
      t.true(outcomes.every(({ kind }) => kind === "appended"));
      last += length;
      const tookMs = performance.now() - startedAt;
      concurrent = tookMs < 300 ? 1_000 : tookMs > 1_000 ? 50 : 100;
    }
    const reading = read(t, link, 1);
    await until("all read", () => reading.records.length === count);
    t.true(isConsecutive(reading));
  });
}
