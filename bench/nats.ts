/**
 * The NATS layer of `runtime/nats/` against the JetStream, KV and object-store clients of the `nats` package, on one server:
 * what each call costs, and how long each leaves its caller without an answer while the server is frozen.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { AckPolicy, connect, DeliverPolicy, type NatsConnection } from "nats";
import { connectNats, type NatsLink } from "../runtime/nats/connection.ts";
import { startNatsServer, type NatsServer } from "../runtime/nats/server.ts";
import { logStream } from "../runtime/nats/streams.ts";
import * as subjects from "../runtime/subjects.ts";
import { createTelemetry } from "../runtime/telemetry/telemetry.ts";
import { until } from "./peers.ts";
import { percentile, table } from "./table.ts";

/** A frozen server's caller is given up after this many milliseconds. */
const patienceMs = 60_000;

/** Records in flight while the log is filled for a replay. */
const writtenAtOnce = 500;

interface Sizes {
  readonly writes: number;
  readonly records: number;
  readonly blobBytes: number;
}

type Measured = readonly [what: string, ours: string, theirs: string];

async function timed(work: () => Promise<unknown>): Promise<number> {
  const startedAt = performance.now();
  await work();
  return performance.now() - startedAt;
}

/** Calls one after the other. */
async function inSequence(count: number, call: (at: number) => Promise<void>): Promise<string> {
  const durations: number[] = [];
  const totalMs = await timed(async () => {
    for (let at = 0; at < count; at += 1) durations.push(await timed(() => call(at)));
  });
  const [p50, p99] = [percentile(durations, 0.5), percentile(durations, 0.99)];
  return `p50 ${p50.toFixed(2)} ms, p99 ${p99.toFixed(2)} ms, ${Math.round((count / totalMs) * 1_000)}/s`;
}

async function appends(link: NatsLink, nats: NatsConnection, { writes }: Sizes): Promise<Measured> {
  const data = new Uint8Array(200).fill(7);
  const stream = nats.jetstream();
  let last = (await link.log.bounds(5_000))?.last ?? 0;
  const ours = await inSequence(writes, async () => {
    const outcome = await link.log.append(data, last);
    if (outcome.kind !== "appended") throw new Error(`the log rejected an append: ${outcome.kind}`);
    last = outcome.sequence;
  });
  const theirs = await inSequence(writes, async () => {
    last = (await stream.publish(subjects.log, data, { expect: { lastSequence: last } })).seq;
  });
  return [`append of 200 B at the expected end, ${writes} in sequence`, ours, theirs];
}

async function leases(link: NatsLink, nats: NatsConnection, { writes }: Sizes): Promise<Measured> {
  const value = new Uint8Array(60).fill(7);
  const made = await link.leases.create("bench", value);
  if (made.kind !== "stored") throw new Error(`no lease: ${made.kind}`);
  let { revision } = made;
  const ours = await inSequence(writes, async () => {
    const outcome = await link.leases.update("bench", value, revision);
    if (outcome.kind !== "stored") throw new Error(`the lease was not written: ${outcome.kind}`);
    ({ revision } = outcome);
  });
  const bucket = await nats.jetstream().views.kv("bench", { ttl: 60_000 });
  let theirRevision = await bucket.create("bench", value);
  const theirs = await inSequence(writes, async () => {
    theirRevision = await bucket.update("bench", value, theirRevision);
  });
  return [`lease written at its revision, ${writes} in sequence`, ours, theirs];
}

async function blobs(link: NatsLink, nats: NatsConnection, { blobBytes }: Sizes): Promise<readonly Measured[]> {
  const data = Buffer.alloc(blobBytes, "snapshot");
  const store = await nats.jetstream().views.os("bench");
  const rate = (ms: number): string => `${ms.toFixed(0)} ms (${(blobBytes / 1e3 / ms).toFixed(0)} MB/s)`;
  const puts: [number[], number[]] = [[], []];
  const gets: [number[], number[]] = [[], []];
  for (let round = 0; round < 3; round += 1) {
    puts[0].push(await timed(() => link.blobs.put("bench", data)));
    puts[1].push(await timed(() => store.putBlob({ name: "bench" }, data)));
    gets[0].push(await timed(() => link.blobs.get("bench")));
    gets[1].push(await timed(() => store.getBlob("bench")));
  }
  const size = `${Math.round(blobBytes / 2 ** 20)} MiB, median of 3`;
  const both = ([ours, theirs]: readonly [number[], number[]]) =>
    [rate(percentile(ours, 0.5)), rate(percentile(theirs, 0.5))] as const;
  return [
    [`snapshot of ${size}: put`, ...both(puts)],
    [`snapshot of ${size}: get`, ...both(gets)],
  ];
}

/** The records are written in parallel, by neither client's compare-and-set. */
async function replay(link: NatsLink, nats: NatsConnection, { records }: Sizes): Promise<Measured> {
  const stream = nats.jetstream();
  const data = new Uint8Array(200).fill(7);
  for (let at = 0; at < records; at += writtenAtOnce)
    await Promise.all(
      Array.from({ length: Math.min(writtenAtOnce, records - at) }, () =>
        stream.publish(subjects.log, data, { timeout: patienceMs }),
      ),
    );
  const last = (await link.log.bounds(5_000))?.last ?? 0;
  const first = last - records + 1;
  const rate = (ms: number): string => `${ms.toFixed(0)} ms (${Math.round((records / ms) * 1_000)}/s)`;
  const oursMs = await timed(
    () =>
      new Promise<void>((resolve, reject) => {
        const reading = link.log.read(first, {
          onRecord: (sequence) => {
            if (sequence < last) return;
            reading.unsubscribe();
            resolve();
          },
          onCaughtUp: () => {},
          onGap: () => reject(new Error("a gap")),
        });
      }),
  );
  const theirsMs = await timed(async () => {
    const consumer = await stream.consumers.get(logStream, {
      deliver_policy: DeliverPolicy.StartSequence,
      opt_start_seq: first,
    });
    const messages = await consumer.consume({ max_messages: 10_000 });
    for await (const message of messages) if (message.seq >= last) break;
  });
  const pushMs = await timed(async () => {
    const manager = await nats.jetstreamManager();
    const inbox = `bench.replay.${Date.now()}`;
    const done = new Promise<void>((resolve) => {
      const subscription = nats.subscribe(inbox, {
        callback: (_error, message) => {
          if (!(message.reply ?? "").includes(`.${last}.`)) return;
          subscription.unsubscribe();
          resolve();
        },
      });
    });
    await manager.consumers.add(logStream, {
      deliver_subject: inbox,
      deliver_policy: DeliverPolicy.StartSequence,
      opt_start_seq: first,
      ack_policy: AckPolicy.None,
      max_deliver: 1,
    });
    await done;
  });
  return [
    `replay of ${records} records of 200 B`,
    rate(oursMs),
    `${rate(theirsMs)} ordered consumer; ${rate(pushMs)} bare push`,
  ];
}

/** How long the call stays without an answer, and its outcome. */
async function outcomeOf(call: () => Promise<unknown>): Promise<string> {
  const startedAt = performance.now();
  const end = await Promise.race([
    call().then(
      (value) => (value as { readonly kind?: string } | null)?.kind ?? "answered",
      (error: Error) => error.message.slice(0, 40),
    ),
    new Promise<string>((resolve) => setTimeout(() => resolve("no answer"), patienceMs).unref()),
  ]);
  return `${((performance.now() - startedAt) / 1_000).toFixed(1)} s: ${end}`;
}

/** Calls of each kind to a server that is frozen, then reads of a snapshot that were under way when it froze. */
async function frozen(server: NatsServer, link: NatsLink, nats: NatsConnection): Promise<readonly Measured[]> {
  const stream = nats.jetstream();
  const [bucket, store] = [await stream.views.kv("bench"), await stream.views.os("bench")];
  const data = new Uint8Array(200).fill(7);
  const last = (await link.log.bounds(5_000))?.last ?? 0;
  const snapshot = ["snapshot get", () => link.blobs.get("bench"), () => store.getBlob("bench")] as const;
  type Call = readonly [string, () => Promise<unknown>, () => Promise<unknown>];
  const calls: readonly Call[] = [
    [
      "append",
      () => link.log.append(data, last),
      () => stream.publish(subjects.log, data, { expect: { lastSequence: last } }),
    ],
    ["lease read", () => link.leases.get("bench"), () => bucket.get("bench")],
    snapshot,
    ["snapshot put", () => link.blobs.put("other", data), () => store.putBlob({ name: "other" }, Buffer.from(data))],
  ];
  const outcomes = (list: readonly Call[], when: string): Promise<Measured[]> =>
    Promise.all(
      list.map(async ([what, ours, theirs]): Promise<Measured> => {
        const [own, library] = await Promise.all([outcomeOf(ours), outcomeOf(theirs)]);
        return [`${when}: ${what}`, own, library];
      }),
    );
  const thaw = (): boolean => process.kill(server.pid, "SIGCONT");
  try {
    const underWay = outcomes([snapshot], "server freezes during it");
    await new Promise((resolve) => setTimeout(resolve, 150));
    process.kill(server.pid, "SIGSTOP");
    const rows = await underWay;
    thaw();
    await until("the link to be back", async () => (await link.log.bounds(1_000)) !== null, patienceMs);
    await nats.flush();
    process.kill(server.pid, "SIGSTOP");
    return [...(await outcomes(calls, "frozen server")), ...rows];
  } finally {
    thaw();
  }
}

export async function natsTable(short: boolean): Promise<string> {
  const sizes = short
    ? { writes: 100, records: 2_000, blobBytes: 2 ** 20 }
    : { writes: 3_000, records: 100_000, blobBytes: 50 * 2 ** 20 };
  const dataDir = mkdtempSync(join(tmpdir(), "muster-bench-"));
  const telemetry = await createTelemetry({ service: "bench", level: "silent", otlpEndpoint: undefined });
  try {
    const server = await startNatsServer({ dataDir, logFile: join(dataDir, "nats.log"), telemetry });
    try {
      const { flushesEveryWrite, pass, url, user } = server;
      const link = await connectNats({ servers: [url], user, pass, name: "bench", telemetry, flushesEveryWrite });
      const nats = await connect({ servers: [url], user, pass, name: "bench-library" });
      const rows: Measured[] = [
        await appends(link, nats, sizes),
        await leases(link, nats, sizes),
        ...(await blobs(link, nats, sizes)),
        await replay(link, nats, sizes),
        ...(short ? [] : await frozen(server, link, nats)),
      ];
      await nats.close();
      link.close();
      const title = `NATS clients, nats-server ${server.version}${flushesEveryWrite ? ", each write flushed" : ""}`;
      return table(title, ["what", "runtime/nats", "the library's clients"], rows);
    } finally {
      await server.stop();
    }
  } finally {
    rmSync(dataDir, { recursive: true, force: true });
  }
}
