// Three nats-servers, of which the one that leads the log has a disk without a byte left.
import { closeSync, openSync, rmSync, writeSync } from "node:fs";
import { join } from "node:path";
import test from "ava";
import { Annotations, ServiceSpec } from "../../proto/gen/messages.ts";
import { connectNats } from "../../runtime/nats/connection.ts";
import { callJetStream, fieldsField, textField } from "../../runtime/nats/jetstream.ts";
import { Link } from "../../runtime/nats/link.ts";
import { logStream } from "../../runtime/nats/streams.ts";
import { SystemRandom } from "../../runtime/system/random.ts";
import { createService, serviceNames, sleepers, status } from "../fixtures/control-client.ts";
import { startManager } from "../fixtures/muster.ts";
import { natsCluster } from "../fixtures/nats-cluster.ts";
import { natsBinaries, testTelemetry } from "../fixtures/nats-server.ts";
import { until } from "../fixtures/until.ts";

const diskMegabytes = 64;
const patienceMs = 240_000;
/** Longer than a manager takes to find a cause: three probes, and a lease that ends. */
const silentMsMax = 30_000;
const writesWanted = 100;

/** As root alone: it mounts. */
const rootTest = process.getuid?.() === 0 ? test.serial : test.serial.skip;

for (const binary of natsBinaries) {
  rootTest(
    `with one full disk of three, under the log's leader, writes go on and nothing acknowledged is lost (${binary})`,
    async (t) => {
      t.timeout(600_000);
      const cluster = await natsCluster(t, binary, { diskMegabytes });
      const args = cluster.urls.flatMap((url) => ["--nats", url]);
      const manager = await startManager(t, { args });
      await createService(manager, sleepers("before", 0));
      await until("health before", async () => (await status(manager)).healthy, patienceMs);
      const telemetry = await testTelemetry();
      const options = { servers: cluster.urls, name: "observer", telemetry, firstConnectMs: 60_000 };
      const observer = await Link.open({ ...options, random: new SystemRandom() });
      const found = await callJetStream(observer, `STREAM.INFO.${logStream}`, null, 20_000);
      observer.close();
      const leader = found.kind === "ok" ? textField(fieldsField(found.body, "cluster"), "leader") : "";
      t.regex(leader, /^n[012]$/);

      const ballast = join(cluster.storageOf(leader), "ballast");
      fill(ballast);
      const acknowledged = ["before"];
      let writtenAt = performance.now();
      let longestMs = 0;
      const unexplained: string[] = [];
      const causes = new Set<string>();
      const deadline = performance.now() + patienceMs;
      for (let n = 1; acknowledged.length <= writesWanted && performance.now() < deadline; n += 1) {
        // As large as a service with some environment: the blocks that the server has open take that much in.
        const spec = sleepers(`during${n}`, 0);
        const isWritten = await createService(manager, withLabel(spec, 20_000), 5_000).then(
          () => true,
          () => false,
        );
        if (isWritten) {
          longestMs = Math.max(longestMs, performance.now() - writtenAt);
          writtenAt = performance.now();
          acknowledged.push(`during${n}`);
          continue;
        }
        const { healthy, troubles } = await status(manager);
        for (const { sentence } of troubles) causes.add(sentence.replaceAll(/\d+/g, "N"));
        if (performance.now() - writtenAt > silentMsMax && (healthy || !troubles.some(({ blocking }) => blocking)))
          unexplained.push(`${Math.round(performance.now() - writtenAt)} ms: ${JSON.stringify(troubles)}`);
      }
      t.log(`longest without a write ${(longestMs / 1_000).toFixed(1)} s; said: ${[...causes].join("; ")}`);
      t.deepEqual(unexplained, [], "health told the truth");
      t.true(acknowledged.length > writesWanted, `${acknowledged.length} writes`);

      rmSync(ballast);
      const names = new Set(await serviceNames(manager));
      t.deepEqual(
        acknowledged.filter((name) => !names.has(name)),
        [],
      );
      // What another manager would read: from whichever servers have it.
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

function withLabel(spec: ServiceSpec, bytes: number): ServiceSpec {
  const { name = "" } = spec.annotations ?? {};
  return ServiceSpec.patch(spec, {
    annotations: Annotations.create({ name, labels: { filler: "x".repeat(bytes) } }),
  });
}

/** Not a byte more can be written. */
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
