// The certificate of a manager's NATS for nodes: labels are those of processes/nodes-nats-identity.ts.
import { closeSync, openSync, readFileSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { connect, createServer } from "node:tls";
import test, { type ExecutionContext } from "ava";
import type { ManagerCertificate } from "../../actors/certificates/manager-certificate.ts";
import * as pki from "../../lib/pki/index.ts";
import { nodesNatsName } from "../../lib/pki/presented.ts";
import { UserError } from "../../lib/user-error.ts";
import type { KeptCertificate } from "../../processes/manager-server.ts";
import { openNodesNatsIdentity } from "../../processes/nodes-nats-identity.ts";
import { Cluster, Node, NodeDescription, NodeTLSInfo, RootCA } from "../../proto/gen/messages.ts";
import { bytes, ensureManagerCertificate, facts, rootWorld, text, worker } from "../support/roots.ts";

/** The file as nats-server reads it. */
const read = (file: number): string => readFileSync(`/proc/self/fd/${file}`, "utf8");

/** Whether a client that trusts that root accepts a server with the certificate. */
async function isAccepted(file: number, rootPem: string): Promise<boolean> {
  const pem = read(file);
  const server = createServer({ cert: pem, key: pem }).on("tlsClientError", () => undefined);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const socket = connect({ host: "127.0.0.1", port, ca: rootPem, servername: nodesNatsName, maxVersion: "TLSv1.2" });
  const accepted = await new Promise<boolean>((resolve) => {
    socket.once("secureConnect", () => resolve(true)).once("error", () => resolve(false));
  });
  socket.destroy();
  server.close();
  return accepted;
}

async function world(t: ExecutionContext) {
  const roots = await rootWorld(t);
  const { cluster, env, held, hold } = roots;
  const listeners: ((certificate: ManagerCertificate) => Promise<void>)[] = [];
  let current: ManagerCertificate = roots.own;
  const kept: KeptCertificate = {
    follow: (listener) => {
      listeners.push(listener);
      return listener(current);
    },
  };
  const tell = async (certificate: ManagerCertificate): Promise<void> => {
    current = certificate;
    for (const listener of listeners) await listener(certificate);
  };
  /** The manager checks its certificate, and obtains another where it has to. */
  const renew = async (): Promise<void> => {
    const certificate = await ensureManagerCertificate(env, pki, held(), facts);
    hold(certificate);
    await tell(certificate);
  };
  const open = async () => {
    const identity = await openNodesNatsIdentity(env, kept, ["manager-1.example", "192.0.2.1"]);
    const state = { renewals: 0, isStopped: false };
    identity.onRenewed(() => (state.renewals += 1));
    const stop = (): void => {
      if (!state.isStopped) identity.stop();
      state.isStopped = true;
    };
    t.teardown(stop);
    return { ...identity, state, stop };
  };
  const rootNow = (): string => text.decode(cluster().rootCa?.caCert);
  return { ...roots, open, renew, rootNow, tell };
}

test("NI1: nodes that trust either root accept the server during a rotation and after it", async (t) => {
  const { held, open, renew, rootNow, rotation, run, seed, update } = await world(t);
  const first = rootNow();
  const { file, fingerprints, rootPem, state } = await open();
  t.true(await isAccepted(file, first));
  const [before] = fingerprints();

  const second = text.decode((await update({ forceRotate: 1 })).rootCa?.rootRotation?.caCert);
  t.false(await isAccepted(file, second));
  // It has renewed, and does not know yet that the new root is trusted.
  const unaware = worker("unaware", second);
  const tlsInfo = NodeTLSInfo.patch(unaware.description?.tlsInfo as NodeTLSInfo, { trustRoot: bytes.encode(first) });
  seed("node", Node.patch(unaware, { description: NodeDescription.create({ tlsInfo }) }));
  await renew();
  for (const root of [first, second]) t.true(await isAccepted(file, root));
  t.deepEqual([state.renewals, fingerprints().length, fingerprints()[1]], [1, 2, before]);
  t.is(rootPem(), first);

  rotation();
  await run(() => rootNow() === second);
  await renew();
  for (const root of [first, second]) t.true(await isAccepted(file, root));
  t.is(state.renewals, 1, "the manager has kept its certificate");
  t.is(rootPem(), second);

  // The manager's next life has the chain of its saved certificate.
  const next = await open();
  for (const root of [first, second]) t.true(await isAccepted(next.file, root));
  seed("node", worker("unaware", second));
  const last = await open();
  t.deepEqual([await isAccepted(last.file, first), await isAccepted(last.file, second)], [false, true]);

  const [own, server] = [held().certificatePem, read(last.file)].map((pem) => pki.describeCertificate(pem));
  t.true(own?.kind === "certificate" && server?.kind === "certificate" && own.notAfterMs === server.notAfterMs);
});

test("without the root's key no server is started, and a server keeps the certificate that it has", async (t) => {
  const { cluster, env, open, own, rootNow, seed, tell } = await world(t);
  const { file, state } = await open();
  const { certificatePem, keyPem } = await ensureManagerCertificate(env, pki, null, facts);
  seed(
    "cluster",
    Cluster.patch(cluster(), { rootCa: RootCA.patch(cluster().rootCa as RootCA, { caKey: new Uint8Array() }) }),
  );
  const before = read(file);
  await t.throwsAsync(tell({ ...own, certificatePem, keyPem }), { instanceOf: UserError });
  t.deepEqual([read(file), state.renewals], [before, 0]);
  t.true(await isAccepted(file, rootNow()));
  await t.throwsAsync(open(), { instanceOf: UserError, message: /Start this manager without --listen-nodes-nats/ });
});

test("a renewal that ends after the stop writes nothing: the descriptor may be another file's", async (t) => {
  const { env, open, own, tell } = await world(t);
  const { file, stop } = await open();
  const { certificatePem, keyPem } = await ensureManagerCertificate(env, pki, null, facts);
  const renewed = tell({ ...own, certificatePem, keyPem });
  stop();
  // The lowest free number is the next file's.
  for (let another = -1; another !== file;) {
    const next = openSync("/dev/shm", "r");
    t.teardown(() => closeSync(next));
    another = next;
  }
  await t.notThrowsAsync(renewed);
});
