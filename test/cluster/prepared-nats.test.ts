// A nats-server of a cluster that two managers ask a third one for, before the log moves there.
import test from "ava";
import { openDataDir } from "../../processes/data-dir.ts";
import { keyFileDisk } from "../../processes/key-file.ts";
import { createBeside } from "../../processes/nats-cluster.ts";
import { openNatsIdentity } from "../../processes/nats-identity.ts";
import { NatsMember, PrepareNatsRequest } from "../../proto/gen/messages.ts";
import { freePortOf } from "../../runtime/nats/server.ts";
import { openVault } from "../../runtime/store/vault.ts";
import { SystemRandom } from "../../runtime/system/random.ts";
import { temporaryFolder, testTelemetry } from "../fixtures/nats-server.ts";
import { patient } from "../support/slowness.ts";

const host = "127.0.0.1";

test("after an attempt that was given up, the next one has the same ports", async (t) => {
  t.timeout(patient(120_000));
  const dataDir = await temporaryFolder(t);
  const telemetry = await testTelemetry();
  const opened = openVault(keyFileDisk(openDataDir(dataDir)), new SystemRandom());
  if (opened.kind !== "open") throw new Error(opened.kind);
  const { vault } = opened;
  vault.update({ natsServers: ["nats://127.0.0.1:1"] });
  const identity = await openNatsIdentity(dataDir, vault, { telemetry, host });
  t.teardown(() => identity.stop());
  const listen = { host, port: await freePortOf([], host) };
  const beside = createBeside(
    { dataDir, vault, identity, managerId: "third", listen, advertisedHost: host, telemetry },
    () => t.fail("nothing has moved"),
  );
  t.teardown(() => beside.stop());

  const offered = await beside.prepare(PrepareNatsRequest.create({ clusterId: "one" }));
  const away = ["first", "second"].map((managerId) =>
    NatsMember.create({ managerId, serverName: managerId, url: "nats://127.0.0.1:1", route: "127.0.0.1:2" }),
  );
  await beside.prepare(PrepareNatsRequest.create({ clusterId: "one", members: [offered, ...away] }));
  const again = await beside.prepare(PrepareNatsRequest.create({ clusterId: "two" }));
  t.deepEqual([again.url, again.route], [offered.url, offered.route]);
});
