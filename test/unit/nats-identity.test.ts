// The files of a manager's certificate for its own NATS: labels are those of processes/nats-identity.ts.
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { openDataDir } from "../../processes/data-dir.ts";
import { keyFileDisk } from "../../processes/key-file.ts";
import { makeAuthority, openNatsIdentity } from "../../processes/nats-identity.ts";
import { NatsAuthorities } from "../../proto/gen/messages.ts";
import { openVault } from "../../runtime/store/vault.ts";
import { SystemRandom } from "../../runtime/system/random.ts";
import { testTelemetry } from "../fixtures/nats-server.ts";

test("a list of CAs that the disk refused is used when it is handed over again, or after the next check", async (t) => {
  for (const isHandedOver of [true, false]) {
    const dataDir = mkdtempSync(join(tmpdir(), "muster-test-"));
    t.teardown(() => rmSync(dataDir, { recursive: true, force: true }));
    const opened = openVault(keyFileDisk(openDataDir(dataDir)), new SystemRandom());
    if (opened.kind !== "open") throw new Error(opened.kind);
    const telemetry = await testTelemetry();
    const identity = await openNatsIdentity(dataDir, opened.vault, { telemetry, checkMs: isHandedOver ? 60_000 : 20 });
    t.teardown(() => identity.stop());
    const renewed = Promise.withResolvers<boolean>();
    identity.onRenewed(({ isNarrower }) => renewed.resolve(isNarrower));
    const caFile = join(dataDir, "nats-tls", "ca.crt");

    // Nothing takes the place of a folder.
    rmSync(caFile);
    mkdirSync(caFile);
    const made = await makeAuthority();
    const list = NatsAuthorities.create({ revision: 1, authorities: [made], issuer: made.id });
    await t.throwsAsync(identity.use(list));
    rmSync(caFile, { recursive: true });
    if (isHandedOver) await identity.use(list);
    t.true(await renewed.promise, "a CA is no longer trusted");
    t.is(readFileSync(caFile, "utf8"), made.certificate);
    identity.stop();
  }
});
