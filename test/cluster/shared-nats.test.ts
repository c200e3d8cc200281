// Managers that share three nats-servers, set up with the files of deploy/ as docs/managers.md describes: the log has three
// copies, and any one nats-server and any one manager may die.
import test from "ava";
import { fieldsField, numberField } from "../../runtime/nats/jetstream.ts";
import { blobStream, leaseStream, logStream } from "../../runtime/nats/streams.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import {
  createService,
  runningTasks,
  serviceNames,
  sleepers,
  status,
  tasks,
  writeSteadily,
} from "../fixtures/control-client.ts";
import { runMuster, startAgent, startManager, tempDir, type TestManager } from "../fixtures/muster.ts";
import { freePort } from "../fixtures/ports.ts";
import { natsCluster, securedNatsCluster } from "../fixtures/nats-cluster.ts";
import { observe, type Observer } from "../fixtures/nats-observer.ts";
import { currentNats, natsBinaries, natsServer } from "../fixtures/nats-server.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

const streams = [logStream, leaseStream, blobStream];

/** Creates it, retrying while the manager rejects. A write that timed out may have happened anyway. */
async function accepted(manager: TestManager, name: string): Promise<number> {
  const startedAt = performance.now();
  await until("an accepted write", async () => {
    await createService(manager, sleepers(name, 0), 5_000).catch((error: unknown) => {
      if (!(error instanceof RpcError && error.code === Status.ALREADY_EXISTS)) throw error;
    });
    return true;
  });
  return performance.now() - startedAt;
}

const warnings = async (manager: TestManager): Promise<string> => (await status(manager)).warnings.join("\n");

const replicasOf = async (observer: Observer): Promise<number[]> =>
  Promise.all(
    streams.map(async (stream) => numberField(fieldsField(await observer.of(stream), "config"), "num_replicas")),
  );

for (const binary of natsBinaries) {
  test.serial(
    `three nats-servers and three managers lose nothing when the server that leads the log and then the leader are killed (${binary})`,
    async (t) => {
      t.timeout(patient(600_000));
      const cluster = await securedNatsCluster(t, binary);
      const { ca: caFile, certificate: certFile, key: keyFile } = cluster;
      const first = await startManager(t, { args: cluster.flags });
      const second = await startManager(t, { args: cluster.flags, join: first });
      const third = await startManager(t, { args: cluster.flags, join: second });
      const managers = [first, second, third];
      await first.patience();
      const agent = await startAgent(t, third);
      t.notRegex(await warnings(first), /one replica/);
      const observer = await observe(t, cluster.urls, { caFile, certFile, keyFile });
      for (const stream of streams) await observer.whole(stream, 3);
      await createService(first, sleepers("web", 3));
      await until("three running tasks", async () => (await runningTasks(second)).length === 3);
      const before = (await tasks(third)).map(({ id }) => id).toSorted();

      const writing = managers.map((manager, at) => writeSteadily(t, manager, `m${at}-`));
      await until("writes of all", async () => (await serviceNames(first)).length > 30);
      const leads = await observer.whole(logStream, 3);
      await cluster.kill(leads);
      const ms = await accepted(first, "without-a-server");
      t.log(`next write ${(ms / 1_000).toFixed(2)} s after the kill of the server that led the log`);
      await accepted(third, "without-a-server-either");
      cluster.start(leads);
      for (const stream of streams) await observer.whole(stream, 3);

      // Also the managers' leader.
      const { leaderId } = await until("a leader to be known", async () => {
        const said = await status(second);
        return said.leaderId === "" ? null : said;
      });
      const ids = await Promise.all(managers.map(async (manager) => (await status(manager)).managerId));
      const lead = managers[ids.indexOf(leaderId)] as TestManager;
      const rest = managers.filter((manager) => manager !== lead) as [TestManager, TestManager];
      const acknowledged: string[] = [];
      await lead.process.end("SIGKILL");
      await accepted(rest[0], "without-a-manager");
      for (const each of writing) acknowledged.push(...(await each.stop()));
      acknowledged.push("web", "without-a-server", "without-a-server-either", "without-a-manager");
      t.true(acknowledged.length > 30);
      lead.process.start();
      await lead.ready();
      for (const manager of managers) {
        await until("every acknowledged write", async () => {
          const names = new Set(await serviceNames(manager));
          return acknowledged.every((name) => names.has(name));
        });
      }
      await until("three running tasks", async () => (await runningTasks(lead)).length === 3);
      t.deepEqual((await tasks(lead)).map(({ id }) => id).toSorted(), before, "no task was replaced");
      t.true(agent.process.isRunning);
    },
  );

  test.serial(`a cluster moves from its manager's own NATS to three nats-servers (${binary})`, async (t) => {
    t.timeout(patient(300_000));
    // An older server cannot restore a newer server's stream.
    const named = process.env["MUSTER_NATS_SERVER"];
    process.env["MUSTER_NATS_SERVER"] = binary;
    t.teardown(() => {
      if (named === undefined) delete process.env["MUSTER_NATS_SERVER"];
      else process.env["MUSTER_NATS_SERVER"] = named;
    });
    const first = await startManager(t);
    await first.patience();
    const agent = await startAgent(t, first);
    await createService(first, sleepers("web", 2));
    await until("two running tasks", async () => (await runningTasks(first)).length === 2);
    const [ca, token] = [await first.muster("ca"), await first.muster("token", "worker")];
    const before = (await tasks(first)).map(({ id }) => id).toSorted();
    await first.process.end();

    const cluster = await securedNatsCluster(t, binary);
    // Without the flag it reports this, and leaves empty streams behind.
    const { dataDir, port } = first;
    const refused = await runMuster([...first.process.args, ...cluster.flags]);
    t.regex(refused.stderr, /move its own NATS.s data there with --nats-move\b/);
    const flags = [...cluster.flags, "--nats-move"];
    const moved = await startManager(t, { dataDir, port, args: flags });
    t.deepEqual([await moved.muster("ca"), await moved.muster("token", "worker")], [ca, token]);
    t.notRegex(await warnings(moved), /one replica/);
    await accepted(moved, "next");
    t.deepEqual(await serviceNames(moved), ["next", "web"]);
    await until("two running tasks", async () => (await runningTasks(moved)).length === 2);
    t.deepEqual((await tasks(moved)).map(({ id }) => id).toSorted(), before, "no task was replaced");
    t.true(agent.process.isRunning);
    // Another manager joins there.
    const second = await startManager(t, { args: cluster.flags, join: moved });
    t.deepEqual(await serviceNames(second), ["next", "web"]);
    await moved.process.end();

    // The abandoned data is not a cluster that it would continue; the flag may stay.
    const alone = await runMuster(first.process.args);
    t.regex(alone.stderr, /has no NATS of its own: set --nats to the NATS that the managers of its cluster share/);
    moved.process.start();
    await moved.ready();
    t.deepEqual(await serviceNames(moved), ["next", "web"]);
  });

  test.serial(`single-copy streams get three copies when three servers are named (${binary})`, async (t) => {
    t.timeout(patient(300_000));
    const cluster = await natsCluster(t, binary);
    const [alone = ""] = cluster.urls;
    const observer = await observe(t, cluster.urls);
    const manager = await startManager(t, { nats: alone });
    await createService(manager, sleepers("web", 0));
    t.deepEqual(await replicasOf(observer), [1, 1, 1]);
    t.regex(await warnings(manager), /one replica/);
    await manager.process.end();

    const all = cluster.urls.join(",");
    const again = await startManager(t, { nats: all, dataDir: manager.dataDir });
    for (const stream of streams) await observer.whole(stream, 3);
    t.notRegex(await warnings(again), /one replica/);
    t.deepEqual(await serviceNames(again), ["web"]);
    const leads = await observer.whole(logStream, 3);
    await cluster.kill(leads);
    await accepted(again, "next");
    t.deepEqual(await serviceNames(again), ["next", "web"]);
  });
}

test.serial("if fewer nats-servers run than are named, a manager says so, or starts on those that run", async (t) => {
  t.timeout(patient(300_000));
  const cluster = await natsCluster(t, currentNats, { size: 2 });
  const nats = [...cluster.urls, `nats://127.0.0.1:${await freePort()}`].join(",");
  const args = ["manager", "--data-dir", tempDir(t, "few"), "--listen", `127.0.0.1:${await freePort()}`, "--nats"];
  const refused = await runMuster([...args, nats], { timeoutMs: 120_000 });
  t.is(refused.code, 1, refused.stderr);
  t.regex(refused.stderr, /muster: JetStream did not set up the stream muster-log within 30 s \(.+\)\n$/);

  const manager = await startManager(t, { nats: cluster.urls.join(",") });
  await createService(manager, sleepers("web", 0));
  await manager.process.end();
  const again = await startManager(t, { nats, dataDir: manager.dataDir });
  t.regex(await warnings(again), /one replica.+three were requested/);
  t.deepEqual(await serviceNames(again), ["web"]);
});

test.serial("nats-servers outside of a cluster are not accepted as one", async (t) => {
  const servers = [await natsServer(t), await natsServer(t)].map(({ server }) => server);
  const urls = servers.map(({ url, user, pass }) => url.replace("//", `//${user}:${pass}@`));
  const args = ["manager", "--data-dir", tempDir(t, "two"), "--listen", `127.0.0.1:${await freePort()}`];
  const ran = await runMuster([...args, "--nats", urls[0] as string, "--nats", urls[1] as string]);
  t.is(ran.code, 1, ran.stderr);
  t.regex(ran.stderr, /muster: several nats-servers given, but the one at 127\.0\.0\.1:\d+ belongs to no cluster/);
});

test.serial("a TLS problem with NATS is reported in one sentence", async (t) => {
  t.timeout(patient(300_000));
  const { urls, ca, certificate, key } = await securedNatsCluster(t, currentNats);
  const [url = ""] = urls;
  const plain = await natsServer(t);
  const anywhere = plain.server.url.replace("127.0.0.1", "0.0.0.0");
  const other = await securedNatsCluster(t, currentNats);
  const listen = `127.0.0.1:${await freePort()}`;
  // None of them reaches the point of listening.
  const run = async (...args: readonly string[]): Promise<[number | null, string]> => {
    const ran = await runMuster(["manager", "--data-dir", tempDir(t, "tls"), "--listen", listen, ...args]);
    return [ran.code, ran.stderr.trimEnd().split("\n").at(-1) ?? ""];
  };
  const shown = ["--nats-cert", certificate, "--nats-key", key];
  // A server that rejects a certificate closes at once, and its message may be lost.
  const cases: readonly [RegExp, number, readonly string[]][] = [
    [/its certificate is signed by an unknown CA/, 1, ["--nats", url, ...shown]],
    [/its certificate is signed by an unknown CA/, 1, ["--nats", url, "--nats-ca", other.ca, ...shown]],
    [/requires a client certificate from its CA|ECONNRESET/, 1, ["--nats", url, "--nats-ca", ca]],
    [
      /requires a client certificate from its CA|ECONNRESET/,
      1,
      ["--nats", url, "--nats-ca", ca, "--nats-cert", other.certificate, "--nats-key", other.key],
    ],
    [/it does not support TLS/, 1, ["--nats", plain.server.url, "--nats-ca", ca]],
    // A name that resolves to loopback without saying so.
    [/at 0\.0\.0\.0:\d+ has no TLS, .* --nats-insecure/, 1, ["--nats", anywhere]],
    [/rejected the credentials/, 1, ["--nats", anywhere, "--nats-insecure"]],
    [/--nats-ca \/nowhere is unusable: ENOENT/, 1, ["--nats", url, "--nats-ca", "/nowhere"]],
    [/--nats-ca .* is unusable/, 1, ["--nats", url, "--nats-ca", key]],
    [
      /--nats-key .* is unusable/,
      1,
      ["--nats", url, "--nats-ca", ca, "--nats-cert", certificate, "--nats-key", other.key],
    ],
    [/--nats-cert and --nats-key must be set together/, 125, ["--nats", url, "--nats-cert", certificate]],
    [/--nats-ca requires --nats/, 125, ["--nats-ca", ca]],
  ];
  // Three at a time: most of them search for another server for a while.
  const rest = cases.values();
  const work = async (): Promise<void> => {
    for (const [sentence, code, args] of rest) {
      const [had, said] = await run(...args);
      t.regex(said, sentence);
      t.is(had, code, said);
    }
  };
  await Promise.all([work(), work(), work()]);
});
