// Which roots a node's certificate authenticates, whatever the clocks of its machine and its manager show.
import test from "ava";
import { KeptIdentity } from "../../actors/agent/identity.ts";
import * as pki from "../../lib/pki/index.ts";

const hourMs = 3_600_000;
const validitySeconds = 90 * 86_400;

async function heldBy(clockMs: number, issuedMs: number) {
  const root = await pki.createRoot({ nowMs: issuedMs });
  const { csrPem, keyPem } = await pki.createKeyAndCsr();
  const certificatePem = await pki.issue({
    csrPem,
    rootCertificatePem: root.certificatePem,
    rootKeyPem: root.keyPem,
    nodeId: "node1",
    role: "swarm-worker",
    organization: "cluster1",
    validitySeconds,
    nowMs: issuedMs,
  });
  const identity = new KeptIdentity({
    certificates: { createKeyAndCsr: pki.createKeyAndCsr, describe: pki.describeCertificate },
    clock: { now: () => clockMs } as never,
    disk: { load: async () => null, save: async () => {} } as never,
  });
  await identity.write(() => ({ rootPem: root.certificatePem, certificatePem, keyPem }));
  return { identity, rootPem: root.certificatePem };
}

for (const [title, offMs] of [
  ["was dated ahead by a manager whose clock was", 4 * hourMs],
  ["has expired", -100 * 24 * hourMs],
  ["is valid now", 0],
] as const) {
  test(`a certificate that ${title} authenticates the root that issued it, and no other`, async (t) => {
    const now = Date.now();
    const { identity, rootPem } = await heldBy(now, now + offMs);
    t.true(identity.vouchesFor(rootPem));
    t.false(identity.vouchesFor((await pki.createRoot({ nowMs: now + offMs })).certificatePem));
  });
}
