// A manager's own nats-server: only the manager's certificate opens it.
import { once } from "node:events";
import { cpSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { connect as connectTcp } from "node:net";
import { join } from "node:path";
import { connect as connectTls } from "node:tls";
import test, { type ExecutionContext } from "ava";
import { createKeyAndCsr, createRoot, issue } from "../../lib/pki/index.ts";
import { openDataDir } from "../../processes/data-dir.ts";
import { keyFileDisk } from "../../processes/key-file.ts";
import { makeAuthority } from "../../processes/nats-identity.ts";
import { startOwnNats } from "../../processes/move-own-nats.ts";
import { NatsAuthorities, type NatsAuthority } from "../../proto/gen/messages.ts";
import { connectNats, type NatsLink, type NatsOptions } from "../../runtime/nats/connection.ts";
import { NatsProblem } from "../../runtime/nats/errors.ts";
import { startNatsServer } from "../../runtime/nats/server.ts";
import { openVault, type Vault } from "../../runtime/store/vault.ts";
import { SystemRandom } from "../../runtime/system/random.ts";
import { natsBinaries, temporaryFolder, testTelemetry, until } from "../fixtures/nats-server.ts";
import { patient } from "../support/slowness.ts";

function vaultIn(folder: string): Vault {
  const opened = openVault(keyFileDisk(openDataDir(folder)), new SystemRandom());
  if (opened.kind !== "open") throw new Error(opened.kind);
  return opened.vault;
}

/** The server of a manager with this data dir. */
async function ownNats(t: ExecutionContext, dataDir: string, renewal: { validityMs?: number; checkMs?: number } = {}) {
  const telemetry = await testTelemetry();
  const own = await startOwnNats(dataDir, vaultIn(dataDir), { telemetry, ...renewal });
  t.teardown(() => own.stop());
  const connect = async (access: Partial<NatsOptions>): Promise<NatsLink> => {
    const link = await connectNats({ servers: own.access.servers, name: "test", telemetry, ...access });
    t.teardown(() => link.close());
    return link;
  };
  return { own, connect };
}

/** Serial number of the certificate that the server presents to a new connection. */
async function serialOf(port: number, dataDir: string): Promise<string> {
  const socket = connectTcp(port, "127.0.0.1");
  await once(socket, "data");
  const both = readFileSync(join(dataDir, "nats-tls", "manager.pem"), "utf8");
  const tls = connectTls({ socket, cert: both, key: both, rejectUnauthorized: false, maxVersion: "TLSv1.2" });
  await once(tls, "secureConnect");
  const { serialNumber } = tls.getPeerCertificate();
  tls.destroy();
  return serialNumber;
}

for (const binary of natsBinaries) {
  test.serial(`only the manager's certificate opens its nats-server (${binary})`, async (t) => {
    t.timeout(patient(120_000));
    process.env["MUSTER_NATS_SERVER"] = binary;
    t.teardown(() => delete process.env["MUSTER_NATS_SERVER"]);
    const dataDir = await temporaryFolder(t);
    const { own, connect } = await ownNats(t, dataDir);
    const refused = async (why: string, access: Partial<NatsOptions>): Promise<void> => {
      const problem = await t.throwsAsync(connect({ ...access, firstConnectMs: 0 }), { instanceOf: NatsProblem }, why);
      t.not(problem?.kind, "unavailable", why);
    };
    const link = await connect(own.access);
    t.true(link.bus.isUp());

    const { caFile = "", ...identity } = own.access.tls ?? {};
    const { serverName = "" } = identity;
    const { user, pass } = JSON.parse(readFileSync(join(dataDir, "nats", "nats", "access.json"), "utf8")) as {
      user: string;
      pass: string;
    };
    await refused("a password", { user, pass, tls: { caFile, serverName } });
    await refused("no certificate", { tls: { caFile, serverName } });
    const root = await createRoot();
    for (const role of ["swarm-worker", "swarm-manager"] as const) {
      const { csrPem, keyPem: key } = await createKeyAndCsr();
      const cert = await issue({
        csrPem,
        rootCertificatePem: root.certificatePem,
        rootKeyPem: root.keyPem,
        nodeId: "n1",
        role,
        organization: "c1",
        validitySeconds: 3_600,
        nowMs: Date.now(),
      });
      await refused(role, { tls: { caFile, cert, key, serverName } });
    }
    // The other direction: a manager does not speak to a server that took the port.
    const other = join(dataDir, "other.crt");
    writeFileSync(other, root.certificatePem);
    await refused("a server of another CA", { tls: { ...identity, caFile: other } });
    await refused("a server with another name", { tls: { ...own.access.tls, serverName: "another" } });
    t.true(link.bus.isUp());
    t.is(statSync(join(dataDir, "nats-tls")).mode & 0o777, 0o700);
    t.is(statSync(join(dataDir, "nats-tls", "manager.pem")).mode & 0o777, 0o600);
  });

  test.serial(`its certificate is renewed while connections stay (${binary})`, async (t) => {
    t.timeout(patient(120_000));
    process.env["MUSTER_NATS_SERVER"] = binary;
    t.teardown(() => delete process.env["MUSTER_NATS_SERVER"]);
    const dataDir = await temporaryFolder(t);
    const { own, connect } = await ownNats(t, dataDir, { validityMs: 20_000, checkMs: 50 });
    const { pid, url } = own.server;
    const link = await connect(own.access);
    const losses: boolean[] = [];
    link.bus.onLink((up) => losses.push(up));
    const port = Number(new URL(url).port);
    const first = await serialOf(port, dataDir);
    await until("another certificate", async () => (await serialOf(port, dataDir)) !== first);
    const late = await connect(own.access);
    t.true(late.bus.isUp());
    t.deepEqual(losses, []);
    t.is(own.server.pid, pid);
  });

  test.serial(`C2: certificates of a replaced CA open nothing, and their connections end (${binary})`, async (t) => {
    t.timeout(patient(120_000));
    process.env["MUSTER_NATS_SERVER"] = binary;
    t.teardown(() => delete process.env["MUSTER_NATS_SERVER"]);
    const dataDir = await temporaryFolder(t);
    const { own, connect } = await ownNats(t, dataDir);
    const { identity, server } = own;
    const { pid } = server;
    const former = join(dataDir, "former");
    cpSync(join(dataDir, "nats-tls"), former, { recursive: true });
    const both = join(former, "manager.pem");
    const formerTls = { ...own.access.tls, certFile: both, keyFile: both };
    const manager = await connect(own.access);
    const stranger = await connect({ ...own.access, tls: formerTls });
    const losses: boolean[] = [];
    manager.bus.onLink((up) => losses.push(up));

    const [old] = identity.authorities.authorities;
    const made = await makeAuthority();
    const list = NatsAuthorities.create({
      revision: 1,
      authorities: [old as NatsAuthority, made],
      issuer: old?.id ?? "",
    });
    const first = await serialOf(server.port, dataDir);
    await identity.use(list);
    await identity.use(NatsAuthorities.patch(list, { revision: 2, issuer: made.id }));
    await until("a certificate of the new CA", async () => (await serialOf(server.port, dataDir)) !== first);
    for (const access of [own.access, { ...own.access, tls: formerTls }]) t.true((await connect(access)).bus.isUp());
    t.deepEqual(losses, []);
    t.is(server.pid, pid);

    const narrow = NatsAuthorities.patch(list, { revision: 3, issuer: made.id, authorities: [made] });
    await identity.use(narrow);
    t.not(server.pid, pid);
    await t.throwsAsync(connect({ ...own.access, tls: formerTls, firstConnectMs: 0 }), { instanceOf: NatsProblem });
    await until("the manager's connection", () => losses.at(-1) === true && manager.bus.isUp());
    t.false(stranger.bus.isUp());
    // An older list changes nothing.
    await identity.use(list);
    t.deepEqual(identity.authorities, narrow);
    t.deepEqual(vaultIn(dataDir).fields.natsAuthorities, narrow);
  });

  test.serial(`a nats-server with a password continues with certificates (${binary})`, async (t) => {
    t.timeout(patient(120_000));
    process.env["MUSTER_NATS_SERVER"] = binary;
    t.teardown(() => delete process.env["MUSTER_NATS_SERVER"]);
    const dataDir = await temporaryFolder(t);
    const telemetry = await testTelemetry();
    const folder = join(dataDir, "nats");
    const earlier = await startNatsServer({ dataDir: folder, binary, logFile: join(folder, "nats.log"), telemetry });
    const { url, user, pass } = earlier;
    const before = await connectNats({ servers: [url], user, pass, name: "test", telemetry });
    t.is((await before.log.append(new Uint8Array([1]), 0)).kind, "appended");
    before.close();
    await earlier.stop();

    for (let time = 1; time <= 2; time += 1) {
      const { own, connect } = await ownNats(t, dataDir);
      const link = await connect(own.access);
      t.is((await link.log.bounds(5_000))?.last, time);
      t.is((await link.log.append(new Uint8Array([time]), time)).kind, "appended");
      link.close();
      await own.stop();
    }
  });
}
