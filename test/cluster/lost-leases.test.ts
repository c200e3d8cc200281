// A possible effect of a power failure in all three places: no copy of the lease bucket has the data that its consensus state
// claims. Seen with nats-server 2.15.1 after a cut at the right moment; reproduced here by removing what such a cut loses.
import { rm } from "node:fs/promises";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { connectNats, type NatsLink } from "../../runtime/nats/connection.ts";
import { leaseStream } from "../../runtime/nats/streams.ts";
import { status } from "../fixtures/control-client.ts";
import { startManager } from "../fixtures/muster.ts";
import { natsCluster, type TestCluster } from "../fixtures/nats-cluster.ts";
import { currentNats, testTelemetry, until } from "../fixtures/nats-server.ts";
import { patient } from "../support/slowness.ts";

const names = ["n0", "n1", "n2"];
const value = new Uint8Array([1]);

/** Restarts all servers with only the consensus state of the bucket. */
async function loseLeases(cluster: TestCluster): Promise<void> {
  // A server that shuts down in order records the stream's position in its consensus state.
  await Promise.all(names.map((name) => cluster.kill(name, "SIGTERM")));
  for (const name of names) {
    const messages = join(cluster.storageOf(name), "jetstream", "$G", "streams", leaseStream, "msgs");
    await rm(messages, { recursive: true });
  }
  for (const name of names) cluster.start(name);
}

async function connected(t: ExecutionContext, cluster: TestCluster): Promise<NatsLink> {
  const telemetry = await testTelemetry();
  const options = { servers: cluster.urls, name: "test", telemetry, replicas: 3 as const, firstConnectMs: 60_000 };
  const link = await connectNats(options);
  t.teardown(() => link.close());
  return link;
}

test.serial("a lease bucket that all three servers have lost is recreated, and leases work in it", async (t) => {
  t.timeout(patient(600_000));
  const cluster = await natsCluster(t, currentNats);
  const link = await connected(t, cluster);
  let revision = 0;
  const renewed = async (): Promise<boolean> => {
    const outcome =
      revision === 0 ? await link.leases.create("leader", value) : await link.leases.update("leader", value, revision);
    if (outcome.kind === "conflict") revision = 0;
    if (outcome.kind !== "stored") return false;
    revision = outcome.revision;
    return true;
  };
  for (let count = 0; count < 50; count += 1) await until("a lease", renewed);
  const before = revision;
  t.true(before >= 50);
  await link.log.append(new Uint8Array([7]), 0);

  await loseLeases(cluster);
  revision = 0;
  await until("a lease in the new bucket", renewed, 300_000);
  t.true(revision > before, "revisions grow");
  t.deepEqual(await link.log.bounds(10_000), { first: 1, last: 1 }, "the log is unchanged");
});

test.serial("a manager that starts while the bucket is stuck recreates it too", async (t) => {
  t.timeout(patient(600_000));
  const cluster = await natsCluster(t, currentNats);
  const before = await connected(t, cluster);
  let { revision } = (await before.leases.create("leader", value)) as { revision: number };
  for (let count = 0; count < 50; count += 1) {
    const outcome = await before.leases.update("leader", value, revision);
    if (outcome.kind === "stored") revision = outcome.revision;
  }
  before.close();
  await loseLeases(cluster);
  const { leases } = await connected(t, cluster);
  await until("a lease", async () => (await leases.create("leader", value)).kind === "stored", 300_000);
  t.pass();
});

test.serial("while the lease bucket has no leader, managers name the bucket, not the log", async (t) => {
  t.timeout(patient(600_000));
  const cluster = await natsCluster(t, currentNats);
  const manager = await startManager(t, { args: cluster.urls.flatMap((url) => ["--nats", url]) });
  await until("health before", async () => (await status(manager)).healthy);
  const observer = await connected(t, cluster);
  for (let count = 0; count < 50; count += 1)
    await until("a lease", async () => (await observer.leases.create(`other${count}`, value)).kind !== "unknown");

  await loseLeases(cluster);
  await until("the log to be led again", async () => (await observer.log.bounds(1_000)) !== null);
  const since = performance.now();
  await until("the manager to notice", async () => !(await status(manager)).healthy, 300_000);
  /** Sentence → when it was last reported. */
  const said = new Map<string, number>();
  await until(
    "a leader again",
    async () => {
      const { troubles, healthy } = await status(manager);
      for (const { sentence } of troubles) said.set(sentence, performance.now() - since);
      return healthy && troubles.length === 0;
    },
    300_000,
  );
  t.log([...said].map(([sentence, ms]) => `to ${(ms / 1_000).toFixed(1)} s: ${sentence}`).join("\n"));
  const last = (beginning: string): number =>
    Math.max(-1, ...[...said].flatMap(([sentence, ms]) => (sentence.startsWith(beginning) ? [ms] : [])));
  const named = last("the bucket of leases has no leader in NATS, though 3 of 3 servers answer");
  t.true(named > 0, "it is named");
  t.true(named > last("the log has no leader"), "the log is not named once it has a leader");
});
