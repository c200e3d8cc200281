// Roots whose keys only an external CA has.
import test from "ava";
import { startCertificateSigner } from "../../actors/certificates/certificate-signer.ts";
import { startRootRotation } from "../../actors/certificates/root-rotation.ts";
import {
  Certificate,
  IssuanceStatus,
  IssuanceStatus_State,
  Node,
  NodeSpec,
  NodeSpec_Membership,
} from "../../proto/gen/messages.ts";
import * as pki from "../../lib/pki/index.ts";
import { Status } from "../../runtime/ports/rpc.ts";
import { startTestCa } from "../fixtures/cfssl.ts";
import { refusalOf } from "../support/manager.ts";
import { bytes, cfssl, ensureManagerCertificate, facts, rootWorld, text, worker } from "../support/roots.ts";

test("an external CA signs for nodes as soon as one is set, with the requested names", async (t) => {
  const { cluster, env, external, own, run, seed, store, update } = await rootWorld(t);
  const root = { certificatePem: text.decode(cluster().rootCa?.caCert), keyPem: text.decode(cluster().rootCa?.caKey) };
  const ca = await startTestCa(t, { root, trusts: own.rootPem });
  await update({ externalCas: [cfssl("https://localhost:1/closed"), cfssl(ca.url)] });
  const signer = startCertificateSigner(env, pki, external);
  t.teardown(() => signer.stop());
  const { csrPem } = await pki.createKeyAndCsr();
  seed(
    "node",
    Node.create({
      id: "node1",
      spec: NodeSpec.create({ membership: NodeSpec_Membership.ACCEPTED }),
      certificate: Certificate.create({
        csr: bytes.encode(csrPem),
        status: IssuanceStatus.create({ state: IssuanceStatus_State.PENDING }),
      }),
    }),
  );
  const state = () => store.get("node", "node1")?.certificate?.status?.state;
  for (let turn = 0; turn < 50 && state() !== IssuanceStatus_State.ISSUED; turn += 1) {
    await run(() => false, 2);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  t.is(state(), IssuanceStatus_State.ISSUED);
  t.like(ca.requests[0], {
    hosts: ["swarm-worker", "node1"],
    subject: { CN: "node1", names: [{ O: cluster().id, OU: "swarm-worker" }] },
    certificate_request: csrPem,
  });
  // It called with the manager's certificate.
  t.deepEqual(ca.callers, ["swarm-manager"]);
});

test("the root can move to an external CA, which is then required, and back", async (t) => {
  const { cluster, env, external, own, hold, held, seed, update, run } = await rootWorld(t);
  const ca = await startTestCa(t, { trusts: own.rootPem });
  const outside = { signingCaCert: bytes.encode(ca.rootPem) };
  const withoutCert = await refusalOf(() => update({ ...outside, externalCas: [cfssl(ca.url)] }));
  t.regex(withoutCert?.message ?? "", /corresponding to the desired CA certificate$/);
  const begun = await update({ ...outside, externalCas: [cfssl(ca.url, ca.rootPem)] });
  t.is(begun.rootCa?.rootRotation?.caKey.length, 0);
  // It must not be removed while it is to follow.
  const dropped = await refusalOf(() => update({ externalCas: [] }));
  t.regex(dropped?.message ?? "", /corresponding to the next CA certificate$/);

  // This manager asks through its node object, and the leader's signer calls the CA.
  const signer = startCertificateSigner(env, pki, external);
  t.teardown(() => signer.stop());
  const rotation = startRootRotation(env, pki);
  t.teardown(() => rotation.stop());
  const getting = ensureManagerCertificate(env, pki, held(), facts);
  let isGot = false;
  void getting.then(() => (isGot = true));
  for (let turn = 0; turn < 100 && !isGot; turn += 1) {
    await run(() => isGot, 2);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  hold(await getting);
  await run(() => cluster().rootCa?.rootRotation === null);
  t.is(text.decode(cluster().rootCa?.caCert), ca.rootPem);
  t.is(cluster().rootCa?.caKey.length, 0);
  seed("node", worker("manager1", ca.rootPem));

  const another = await pki.createRoot({ nowMs: Date.now() });
  const second = await startTestCa(t, { root: another, trusts: own.rootPem });
  const outsideAgain = await refusalOf(() =>
    update({
      signingCaCert: bytes.encode(another.certificatePem),
      externalCas: [cfssl(ca.url, ca.rootPem), cfssl(second.url, another.certificatePem)],
    }),
  );
  t.is(outsideAgain?.message, "rotating from one external CA to a different external CA is not supported");
  const withoutCurrent = await refusalOf(() => update({ externalCas: [] }));
  t.regex(withoutCurrent?.message ?? "", /corresponding to the current CA certificate$/);

  ca.failure = { status: 200, body: JSON.stringify({ success: false, errors: [{ code: 1, message: "not today" }] }) };
  const unsigned = await refusalOf(() => update({ forceRotate: 1 }));
  t.is(unsigned?.code, Status.INTERNAL);
  t.is(unsigned?.message, "unable to generate a cross-signed certificate for root rotation");
  ca.failure = null;
  const back = await update({ forceRotate: 1 });
  const cross = pki.describeCertificate(text.decode(back.rootCa?.rootRotation?.crossSignedCaCert), ca.rootPem);
  t.true(cross.kind === "certificate" && cross.verify(ca.rootPem, Date.now()));
  t.like(ca.requests.at(-1), { profile: "CA", subject: { CN: "swarm-ca" } });
  t.true((back.rootCa?.rootRotation?.caKey.length ?? 0) > 0);
});

test("an external CA that answers nonsense signs nothing, and each address reports why", async (t) => {
  const { external, own } = await rootWorld(t);
  const ca = await startTestCa(t, { trusts: own.rootPem });
  const node = {
    csrPem: (await pki.createKeyAndCsr()).csrPem,
    nodeId: "n",
    role: "swarm-worker",
    organization: "o",
  } as const;
  const sign = () => external.sign([ca.url], ca.rootPem, { kind: "node", node });
  for (const [failure, reason] of [
    [{ status: 500, body: "broken" }, /HTTP status 500: broken/],
    [{ status: 200, body: "<html>" }, /not JSON/],
    [{ status: 200, body: "[]" }, /no reason was given/],
    [{ status: 200, body: JSON.stringify({ success: true, result: { certificate: 7 } }) }, /contains no certificate/],
    [{ status: 200, body: " ".repeat(2_000_000) }, /longer than 1048576 bytes/],
  ] as const) {
    ca.failure = failure;
    await t.throwsAsync(sign(), { message: reason });
  }
  t.is(await external.probe(ca.url, ca.rootPem), null);
  t.truthy(await external.probe(ca.url, own.rootPem));
  t.is(await external.probe("http://localhost/", ca.rootPem), "invalid HTTP scheme");
});
