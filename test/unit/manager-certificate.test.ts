// A manager's own certificate while roots are replaced.
import test from "ava";
import { initialTransition, transition } from "xstate";
import { startManagerCertificate } from "../../actors/certificates/manager-certificate.ts";
import { managerCertificateMachine, managerCertificateTimes } from "../../machines/certificates/manager-certificate.ts";
import {
  Certificate,
  IssuanceStatus,
  IssuanceStatus_State,
  Node,
  NodeDescription,
  NodeTLSInfo,
} from "../../proto/gen/messages.ts";
import * as pki from "../../runtime/pki/index.ts";
import { bytes, ensureManagerCertificate, facts, rootWorld, text, worker } from "../support/roots.ts";

test("during a rotation a manager shows a chain that both roots vouch for, and takes certificates of both", async (t) => {
  const { cluster, env, held, hold, update } = await rootWorld(t);
  const oldRoot = text.decode(cluster().rootCa?.caCert);
  const newRoot = text.decode((await update({ forceRotate: 1 })).rootCa?.rootRotation?.caCert);
  const during = await ensureManagerCertificate(env, pki, held(), facts);
  t.true(during.isNew);
  t.is(during.rootPem, oldRoot);
  t.is(during.acceptedPem, oldRoot + newRoot);
  const read = pki.describeCertificate(during.certificatePem, oldRoot);
  for (const root of [oldRoot, newRoot]) t.true(read.kind === "certificate" && read.verify(root, Date.now()));
  hold(during);
  t.false((await ensureManagerCertificate(env, pki, held(), facts)).isNew);
});

test("who slept through the end of a rotation still trusts managers in the next one", async (t) => {
  const { cluster, env, held, hold, rotation, run, seed, update } = await rootWorld(t);
  const rootNow = (): string => text.decode(cluster().rootCa?.caCert);
  const first = rootNow();
  rotation();
  const second = text.decode((await update({ forceRotate: 1 })).rootCa?.rootRotation?.caCert);
  hold(await ensureManagerCertificate(env, pki, held(), facts));
  // It has a certificate of the second root, and has not heard that this one is to be trusted.
  const sleeper = worker("sleeper", second);
  const tlsInfo = NodeTLSInfo.patch(sleeper.description?.tlsInfo as NodeTLSInfo, { trustRoot: bytes.encode(first) });
  seed("node", Node.patch(sleeper, { description: NodeDescription.create({ tlsInfo }) }));
  await run(() => rootNow() === second);
  t.is(rootNow(), second);
  const third = text.decode((await update({ forceRotate: 2 })).rootCa?.rootRotation?.caCert);
  hold(await ensureManagerCertificate(env, pki, held(), facts));
  const read = pki.describeCertificate(held().certificatePem, first);
  for (const root of [first, second, third]) t.true(read.kind === "certificate" && read.verify(root, Date.now()));
  // Once it has heard, what led to the first root goes with the next certificate.
  seed("node", worker("sleeper", second));
  const node = env.store.get("node", "manager1") as Node;
  const status = IssuanceStatus.create({ state: IssuanceStatus_State.ROTATE });
  seed("node", Node.patch(node, { certificate: Certificate.patch(node.certificate as Certificate, { status }) }));
  hold(await ensureManagerCertificate(env, pki, held(), facts));
  const later = pki.describeCertificate(held().certificatePem, second);
  t.true(later.kind === "certificate" && later.verify(second, Date.now()));
  t.false(later.kind === "certificate" && later.verify(first, Date.now()));
});

test("a manager gets another certificate by itself when another root signs, and when its node is told to renew", async (t) => {
  const { cluster, env, run, seed, store, held, hold, update } = await rootWorld(t);
  const seen: string[] = [];
  const keeper = startManagerCertificate(env, pki, {
    facts,
    load: held,
    save: hold,
    onCertificate: ({ certificatePem }) => void seen.push(certificatePem),
  });
  t.teardown(() => keeper.stop());
  await run(() => seen.length === 1);
  await update({ forceRotate: 1 });
  await run(() => seen.length === 2);
  const issuer = pki.issuerName(text.decode(cluster().rootCa?.rootRotation?.caCert));
  const shown = store.get("node", "manager1")?.description?.tlsInfo?.certIssuerPublicKey;
  t.deepEqual(Buffer.from(shown ?? []), Buffer.from(issuer?.publicKeyDer ?? []));
  const node = store.get("node", "manager1") as Node;
  const status = IssuanceStatus.create({ state: IssuanceStatus_State.ROTATE });
  seed("node", Node.patch(node, { certificate: Certificate.patch(node.certificate as Certificate, { status }) }));
  await run(() => seen.length === 3);
  t.is(new Set(seen).size, 3);
  t.is(store.get("node", "manager1")?.certificate?.status?.state, IssuanceStatus_State.ISSUED);
});

test("a manager shows a certificate before its node says so: a rotation ends, and others are trusted no more, once all say so", async (t) => {
  const { clock, env, run, store, held, hold, update } = await rootWorld(t);
  const issuerTold = () => Buffer.from(store.get("node", "manager1")?.description?.tlsInfo?.certIssuerPublicKey ?? []);
  const shown: { readonly told: Buffer; readonly own: Buffer }[] = [];
  let isBroken = false;
  const proposer: typeof env.proposer = {
    propose: (request) => (isBroken ? Promise.reject(new Error("no leader")) : env.proposer.propose(request)),
  };
  const keeper = startManagerCertificate({ ...env, proposer }, pki, {
    facts,
    load: held,
    save: hold,
    onCertificate: ({ acceptedPem, certificatePem }) => {
      const read = pki.describeCertificate(certificatePem, acceptedPem);
      const own = read.kind === "certificate" ? Buffer.from(read.issuerPublicKeyDer ?? []) : Buffer.alloc(0);
      shown.push({ told: issuerTold(), own });
    },
  });
  t.teardown(() => keeper.stop());
  await run(() => shown.length === 1);
  // The first of its life was told before anybody could be shown it.
  t.deepEqual(shown[0]?.told, shown[0]?.own);
  isBroken = true;
  await update({ forceRotate: 1 });
  await run(() => shown.length === 2);
  t.notDeepEqual(shown[1]?.own, shown[0]?.own);
  t.deepEqual(shown[1]?.told, shown[0]?.own);
  await run(() => false, 20);
  t.deepEqual(issuerTold(), shown[0]?.own);
  isBroken = false;
  clock.advance(managerCertificateTimes.retryMs);
  await run(() => issuerTold().equals(shown[1]?.own ?? Buffer.alloc(0)));
  t.deepEqual(issuerTold(), shown[1]?.own);
});

test("what changes while a certificate cannot be got is looked at right after, too", (t) => {
  const [obtaining] = initialTransition(managerCertificateMachine);
  const [doubted] = transition(managerCertificateMachine, obtaining, { type: "certificate.doubted" });
  const [again, asked] = transition(managerCertificateMachine, doubted, { type: "certificate.failed", reason: "old" });
  t.is(again.value, "obtaining");
  t.true(asked.some(({ type }) => type === "obtainCertificate"));
  const [resting] = transition(managerCertificateMachine, again, { type: "certificate.failed", reason: "no leader" });
  t.is(resting.value, "retrying");
});
