// Three nats-servers; the one that leads all streams has a completely full disk.
import { closeSync, openSync, rmSync, writeSync } from "node:fs";
import { join } from "node:path";
import test from "ava";
import { Annotations, ServiceSpec, Trouble_Kind } from "../../proto/gen/messages.ts";
import { isCurrent } from "../../runtime/nats/abilities.ts";
import { connectNats } from "../../runtime/nats/connection.ts";
import { callJetStream, fieldsField, textField } from "../../runtime/nats/jetstream.ts";
import { Link } from "../../runtime/nats/link.ts";
import { blobStream, leaseStream, logStream } from "../../runtime/nats/streams.ts";
import { SystemRandom } from "../../runtime/system/random.ts";
import { createService, serviceNames, sleepers, status } from "../fixtures/control-client.ts";
import { startManager } from "../fixtures/muster.ts";
import { natsCluster } from "../fixtures/nats-cluster.ts";
import { natsBinaries, testTelemetry } from "../fixtures/nats-server.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

const diskMegabytes = 64;
const patienceMs = 240_000;
/** Longer than a manager needs to find a cause: three probes and a lease's expiry. */
const silentMsMax = 30_000;
const writesWanted = 100;
/** Longer than any repair that a manager makes itself: a lease bucket recreated after 30 s, and elections. */
const helplessMsMin = 90_000;
const stepDownPauseMs = 500;

/** Needs root: it mounts. */
const rootTest = process.getuid?.() === 0 ? test.serial : test.serial.skip;

for (const binary of natsBinaries) {
  rootTest(
    `with one full disk of three, under the leader of all streams, writes continue and no acknowledged write is lost (${binary})`,
    async (t) => {
      t.timeout(patient(600_000));
      const cluster = await natsCluster(t, binary, { diskMegabytes });
      const args = cluster.urls.flatMap((url) => ["--nats", url]);
      const manager = await startManager(t, { args });
      await createService(manager, sleepers("before", 0));
      await until("health before", async () => (await status(manager)).healthy, patienceMs);
      const telemetry = await testTelemetry();
      const options = { servers: cluster.urls, name: "observer", telemetry, firstConnectMs: 60_000 };
      const observer = await Link.open({ ...options, random: new SystemRandom() });
      const leader = await leaderOf(observer, logStream);
      t.regex(leader, /^n[012]$/);
      for (const stream of [leaseStream, blobStream]) {
        await until(`${stream} to be led where the log is`, async () => {
          if ((await leaderOf(observer, stream)) === leader) return true;
          await callJetStream(observer, `STREAM.LEADER.STEPDOWN.${stream}`, null, 5_000);
          await new Promise((resolve) => setTimeout(resolve, stepDownPauseMs));
          return false;
        });
      }
      /**
       * Before 2.11, a server on a full disk may answer pings and keep its leaderships, but serve nothing else until it is
       * restarted.
       */
      const isOld = !isCurrent(observer.serverVersion);
      observer.close();

      const ballast = join(cluster.storageOf(leader), "ballast");
      fill(ballast);
      const acknowledged = ["before"];
      let writtenAt = performance.now();
      let longestMs = 0;
      const unexplained: string[] = [];
      // Writes may have become possible after the one that failed: the next one shows whether health was right.
      let unconfirmed: string | null = null;
      const causes = new Set<string>();
      let isRestarted = false;
      let deadline = performance.now() + patienceMs;
      for (let n = 1; acknowledged.length <= writesWanted && performance.now() < deadline; n += 1) {
        // As large as a service with some environment: the blocks that the server has open absorb it.
        const spec = sleepers(`during${n}`, 0);
        const isWritten = await createService(manager, withLabel(spec, 20_000), 5_000).then(
          () => true,
          () => false,
        );
        if (isWritten) {
          longestMs = Math.max(longestMs, performance.now() - writtenAt);
          writtenAt = performance.now();
          unconfirmed = null;
          acknowledged.push(`during${n}`);
          continue;
        }
        if (unconfirmed !== null) unexplained.push(unconfirmed);
        const { healthy, troubles } = await status(manager);
        for (const { sentence } of troubles) causes.add(sentence.replaceAll(/\d+/g, "N"));
        const silentMs = performance.now() - writtenAt;
        const isBlamed = !healthy && troubles.some(({ blocking }) => blocking);
        unconfirmed =
          silentMs > silentMsMax && !isBlamed ? `${Math.round(silentMs)} ms: ${JSON.stringify(troubles)}` : null;
        if (isOld && !isRestarted && performance.now() - writtenAt > helplessMsMin) {
          // Does what the manager recommends; the disk stays full, since the state lasts as long as the process.
          const { sentence = "" } = troubles.find(({ kind }) => kind === Trouble_Kind.SERVER_STUCK) ?? {};
          t.regex(sentence, new RegExp(`^nats-server ${leader} .*restart it$`), "the stuck server is named");
          await cluster.kill(leader);
          cluster.start(leader);
          isRestarted = true;
          deadline = performance.now() + patienceMs;
        }
      }
      const restarted = isRestarted ? " (its server was restarted)" : "";
      t.log(`longest without a write ${(longestMs / 1_000).toFixed(1)} s${restarted}; said: ${[...causes].join("; ")}`);
      t.deepEqual(unexplained, [], "health reports were true");
      t.true(acknowledged.length > writesWanted, `${acknowledged.length} writes`);

      if (!isRestarted) rmSync(ballast);
      const names = new Set(await serviceNames(manager));
      t.deepEqual(
        acknowledged.filter((name) => !names.has(name)),
        [],
      );
      // Read the log's end as another manager would, from any server that has it.
      const link = await connectNats({ ...options, replicas: 3 });
      t.teardown(() => link.close());
      await until(
        "the log's end",
        async () => ((await link.log.bounds(5_000))?.last ?? 0) >= acknowledged.length,
        patienceMs,
      );
    },
  );
}

async function leaderOf(link: Link, stream: string): Promise<string> {
  const found = await callJetStream(link, `STREAM.INFO.${stream}`, null, 20_000);
  return found.kind === "ok" ? textField(fieldsField(found.body, "cluster"), "leader") : "";
}

function withLabel(spec: ServiceSpec, bytes: number): ServiceSpec {
  const { name = "" } = spec.annotations ?? {};
  return ServiceSpec.patch(spec, {
    annotations: Annotations.create({ name, labels: { filler: "x".repeat(bytes) } }),
  });
}

/** No further byte can be written. */
function fill(path: string): void {
  const file = openSync(path, "a");
  try {
    for (let bytes = 1024 * 1024; bytes >= 1; bytes = Math.floor(bytes / 2)) {
      const block = Buffer.alloc(bytes, 1);
      try {
        while (writeSync(file, block) === bytes);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "ENOSPC") throw error;
      }
    }
  } finally {
    closeSync(file);
  }
}
