// The messages of one server of a cluster that was lost, in a server that stands alone.
import { mkdirSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import test from "ava";
import { adoptMessages } from "../../runtime/nats/adopt-messages.ts";
import { beginLeases } from "../../runtime/nats/begin.ts";
import { connectNats, type NatsLink, type NatsOptions } from "../../runtime/nats/connection.ts";
import { startNatsServer } from "../../runtime/nats/server.ts";
import { connectWhenElected, natsCluster } from "../fixtures/nats-cluster.ts";
import { natsBinaries, temporaryFolder, testTelemetry, until } from "../fixtures/nats-server.ts";
import { patient } from "../support/slowness.ts";

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

for (const binary of natsBinaries)
  test.serial(`the log and the snapshots keep their contents and sequences (${binary})`, async (t) => {
    t.timeout(patient(600_000));
    const telemetry = await testTelemetry();
    const cluster = await natsCluster(t, binary);
    const common = { name: "test", telemetry, flushesEveryWrite: true } as const;
    const link = await connectWhenElected({ ...common, servers: cluster.urls, replicas: 3 });
    for (let n = 0; n < 40; n += 1) {
      const outcome = await link.log.append(bytes(`record ${n + 1}`), n);
      t.is(outcome.kind, "appended");
    }
    await link.log.purgeBefore(11);
    const snapshot = Buffer.alloc(400_000, "state");
    await link.blobs.put("snapshot-10", snapshot);
    await until("three copies", async () => (await link.copies())?.current === 3);
    link.close();
    for (const name of ["n2", "n1", "n0"]) await cluster.kill(name);

    const folder = await temporaryFolder(t);
    const [from, to] = [join(folder, "copy"), join(folder, "alone")];
    mkdirSync(join(from, "nats"), { recursive: true });
    symlinkSync(cluster.storageOf("n0"), join(from, "nats", "jetstream"));
    const alone = async <Result>(work: (link: NatsLink, access: NatsOptions) => Promise<Result>): Promise<Result> => {
      const server = await startNatsServer({ dataDir: to, binary, logFile: join(to, "nats.log"), telemetry });
      const access = { ...common, servers: [server.url], user: server.user, pass: server.pass };
      try {
        const opened = await connectNats(access);
        try {
          return await work(opened, access);
        } finally {
          await opened.drain();
        }
      } finally {
        await server.stop();
      }
    };
    await alone(() => Promise.resolve());
    await adoptMessages(from, to);
    await alone((_, access) => beginLeases(access, 1_000));
    await alone(async ({ blobs, leases, log }) => {
      t.deepEqual(await log.bounds(5_000), { first: 11, last: 40 });
      const read: string[] = [];
      const reading = log.read(11, {
        onRecord: (sequence, data) => read.push(`${sequence} ${new TextDecoder().decode(data)}`),
        onCaughtUp: () => undefined,
        onGap: () => undefined,
      });
      await until("all records", () => read.length === 30);
      reading.unsubscribe();
      t.deepEqual([read[0], read.at(-1)], ["11 record 11", "40 record 40"]);
      t.deepEqual(await blobs.list(), ["snapshot-10"]);
      t.true(snapshot.equals((await blobs.get("snapshot-10")) ?? new Uint8Array()));
      t.like(await log.append(bytes("record 41"), 40), { kind: "appended", sequence: 41 });
      t.deepEqual(await leases.create("leader", bytes("one")), { kind: "stored", revision: 1_001 });
    });
  });
