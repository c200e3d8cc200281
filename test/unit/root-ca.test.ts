// Replacing the cluster's root: what UpdateCluster takes and refuses, and what the leader makes of it.
import test, { type ExecutionContext } from "ava";
import { initialTransition, transition } from "xstate";
import { bootstrapCluster } from "../../actors/bootstrap.ts";
import { startCertificateSigner } from "../../actors/certificate-signer.ts";
import { createControl } from "../../actors/control.ts";
import { ensureManagerCertificate, startManagerCertificate } from "../../actors/manager-certificate.ts";
import { startRootRotation } from "../../actors/root-rotation.ts";
import { createExternalCa } from "../../edges/cfssl/client.ts";
import { rootRotationLimits, rootRotationMachine } from "../../machines/root-rotation.ts";
import {
  CAConfig,
  Certificate,
  ClusterSpec,
  Duration,
  ExternalCA,
  ExternalCA_CAProtocol,
  IssuanceStatus,
  IssuanceStatus_State,
  Node,
  NodeDescription,
  NodeSpec,
  NodeSpec_Membership,
  NodeTLSInfo,
  UpdateClusterRequest,
  type Cluster,
  type IssuanceStatus_State as IssuanceState,
} from "../../proto/gen/messages.ts";
import * as pki from "../../runtime/pki/index.ts";
import { Status } from "../../runtime/rpc.ts";
import { settle } from "../../runtime/sim/clock.ts";
import { startTestCa } from "../fixtures/cfssl.ts";
import { call, refusalOf, testManager } from "../support/manager.ts";

const bytes = new TextEncoder();
const text = new TextDecoder();
const facts = { hostname: "m", advertise: "192.0.2.1:2377", version: "0", architecture: "x86_64", os: "linux" };
type Root = { readonly certificatePem: string; readonly keyPem: string };

async function world(t: ExecutionContext) {
  const manager = testManager();
  const { clock, env, store } = manager;
  // Certificates of external CAs are of the real time.
  clock.advance(Date.now() - clock.now());
  await bootstrapCluster(env, pki, { advertise: facts.advertise });
  const own = await ensureManagerCertificate(env, pki, null, facts);
  let held: { certificatePem: string; keyPem: string } = own;
  const external = createExternalCa(() => held);
  const control = createControl(env, { leaderId: () => "manager1", authority: pki, externalCa: external }).handlers;
  const cluster = (): Cluster => [...store.all("cluster")][0] as Cluster;
  const update = async (fields: Partial<CAConfig>): Promise<Cluster> => {
    const { id, meta, spec } = cluster();
    const caConfig = CAConfig.patch(spec?.caConfig ?? CAConfig.create(), fields);
    await control.UpdateCluster(
      UpdateClusterRequest.create({
        clusterId: id,
        clusterVersion: meta?.version ?? null,
        spec: ClusterSpec.patch(spec ?? ClusterSpec.create(), { caConfig }),
      }),
      call(),
    );
    return cluster();
  };
  /** Lets what was started work for so many milliseconds, signing included. */
  const run = async (until: () => boolean, steps = 400): Promise<void> => {
    for (let step = 0; step < steps && !until(); step += 1) {
      clock.advance(0);
      await settle();
      await new Promise((resolve) => setImmediate(resolve));
    }
  };
  const rotation = () => {
    const running = startRootRotation(env, pki);
    t.teardown(() => running.stop());
    return running;
  };
  return {
    ...manager,
    own,
    held: () => held,
    hold: (next: Root) => (held = next),
    external,
    control,
    cluster,
    update,
    run,
    rotation,
  };
}

const wanted = ({ certificatePem, keyPem }: Root): Partial<CAConfig> => ({
  signingCaCert: bytes.encode(certificatePem),
  signingCaKey: bytes.encode(keyPem),
});

function cfssl(url: string, rootPem = ""): ExternalCA {
  return ExternalCA.create({ protocol: ExternalCA_CAProtocol.CFSSL, url, caCert: bytes.encode(rootPem) });
}

/** A worker that says by whom its certificate is. */
function worker(id: string, rootPem: string, state: IssuanceState = IssuanceStatus_State.ISSUED): Node {
  const issuer = pki.issuerName(rootPem);
  return Node.create({
    id,
    spec: NodeSpec.create({ membership: NodeSpec_Membership.ACCEPTED }),
    certificate: Certificate.create({ status: IssuanceStatus.create({ state }) }),
    description: NodeDescription.create({
      tlsInfo: NodeTLSInfo.create({
        trustRoot: bytes.encode(rootPem),
        certIssuerSubject: issuer?.subjectDer ?? new Uint8Array(),
        certIssuerPublicKey: issuer?.publicKeyDer ?? new Uint8Array(),
      }),
    }),
  });
}

test("counting up what forces a rotation makes a root that the present one vouches for", async (t) => {
  const { cluster, control, update } = await world(t);
  const before = cluster();
  const after = await update({ forceRotate: 1 });
  const { rootRotation } = after.rootCa ?? {};
  t.deepEqual(after.rootCa?.caCert, before.rootCa?.caCert);
  t.deepEqual(after.rootCa?.joinTokens, before.rootCa?.joinTokens);
  t.is(after.rootCa?.lastForcedRotation, 1);
  const oldRoot = text.decode(before.rootCa?.caCert);
  const cross = pki.describeCertificate(text.decode(rootRotation?.crossSignedCaCert), oldRoot);
  t.true(cross.kind === "certificate" && cross.verify(oldRoot, Date.now()));
  // Asking again for what is under way begins nothing new, and shows nobody a key.
  const again = await update({});
  t.deepEqual(again.rootCa?.rootRotation, rootRotation);
  const { clusters } = await control.ListClusters({ filters: null } as never, call());
  t.is(clusters[0]?.rootCa?.rootRotation?.caKey.length, 0);
  t.is(clusters[0]?.rootCa?.caKey.length, 0);
  // Once more: another root takes the place of the one that was to follow.
  const replaced = await update({ forceRotate: 2 });
  t.notDeepEqual(replaced.rootCa?.rootRotation?.caCert, rootRotation?.caCert);
  t.deepEqual(replaced.rootCa?.caCert, before.rootCa?.caCert);
});

test("a root of one's own is taken, called off with the present one, and its key is nowhere to be seen", async (t) => {
  const { cluster, update } = await world(t);
  const present = {
    certificatePem: text.decode(cluster().rootCa?.caCert),
    keyPem: text.decode(cluster().rootCa?.caKey),
  };
  const root = await pki.createRoot({ nowMs: Date.now() });
  // As people paste it: with text around it.
  const pasted = await update(wanted({ ...root, certificatePem: `my root\n${root.certificatePem}\n\n` }));
  t.is(text.decode(pasted.rootCa?.rootRotation?.caCert), root.certificatePem);
  t.is(pasted.spec?.caConfig?.signingCaKey.length, 0);
  const off = await update(wanted(present));
  t.is(off.rootCa?.rootRotation, null);
  t.is(text.decode(off.rootCa?.caCert), present.certificatePem);
});

test("what cannot be a root is refused with SwarmKit's code and text, and nothing is changed", async (t) => {
  const { cluster, store, update } = await world(t);
  const nowMs = Date.now();
  const [root, other] = [await pki.createRoot({ nowMs }), await pki.createRoot({ nowMs })];
  const old = await pki.createRoot({ nowMs: nowMs - 19.5 * 365 * 86_400_000 });
  const expired = await pki.createRoot({ nowMs: nowMs - 21 * 365 * 86_400_000 });
  const { csrPem, keyPem } = await pki.createKeyAndCsr();
  const leaf = await pki.issue({
    csrPem,
    rootCertificatePem: root.certificatePem,
    rootKeyPem: root.keyPem,
    nodeId: "n",
    role: "swarm-worker",
    organization: "o",
    validitySeconds: 7_200,
    nowMs,
  });
  const [presentPem, presentKey] = [text.decode(cluster().rootCa?.caCert), text.decode(cluster().rootCa?.caKey)];
  const { version } = store;
  const cases: readonly (readonly [Partial<CAConfig>, RegExp])[] = [
    [
      { signingCaKey: bytes.encode(root.keyPem) },
      /^if a signing CA key is provided, the signing CA cert must also be provided$/,
    ],
    [wanted({ certificatePem: "nothing", keyPem: root.keyPem }), /^no valid root CA certificates found$/],
    [
      wanted({ certificatePem: root.certificatePem.replace(/\n.{20}/, "\nAAAAAAAAAAAAAAAAAAAA"), keyPem: root.keyPem }),
      /^invalid root certificates/,
    ],
    [wanted({ ...root, keyPem: "nothing" }), /^malformed private key$/],
    [wanted({ ...root, keyPem: other.keyPem }), /^certificate key mismatch$/],
    [
      wanted({ certificatePem: leaf, keyPem }),
      /^error while validating Root CA Certificate: x509: certificate signed by unknown authority$/,
    ],
    [
      wanted(expired),
      /^error while validating Root CA Certificate: x509: certificate has expired or is not yet valid$/,
    ],
    [wanted(old), /^CA certificate expires too soon$/],
    [
      wanted({ ...root, certificatePem: root.certificatePem + other.certificatePem }),
      /^the desired CA certificate cannot contain multiple certificates$/,
    ],
    [
      { signingCaCert: bytes.encode(root.certificatePem) },
      /^there must be at least one valid, reachable external CA corresponding to the desired CA certificate$/,
    ],
    // Another certificate for the present key would make a chain that nobody verifies.
    [
      wanted({ certificatePem: pki.crossSign(presentPem, presentPem, presentKey), keyPem: presentKey }),
      /^Cannot update to a cert with an identical key$/,
    ],
    [{ nodeCertExpiry: Duration.create({ seconds: 3_599 }) }, /^minimum certificate expiry time is: 1h0m0s$/],
  ];
  for (const [fields, message] of cases) {
    const refused = await refusalOf(() => update(fields));
    t.is(refused?.code, Status.INVALID_ARGUMENT, String(message));
    t.regex(refused?.message ?? "", message);
  }
  t.is(store.version, version);
});

test("nodes are told in batches, and the root is switched once the last of them has renewed", async (t) => {
  const { clock, cluster, drop, run, rotation, seed, store, update } = await world(t);
  const oldRoot = text.decode(cluster().rootCa?.caCert);
  const tokens = cluster().rootCa?.joinTokens;
  const ids = Array.from({ length: rootRotationLimits.batchMax + 5 }, (_, at) => `node${at}`);
  seed("node", ...ids.map((id) => worker(id, oldRoot)), worker("asking", oldRoot, IssuanceStatus_State.RENEW));
  rotation();
  const newRoot = text.decode((await update({ forceRotate: 1 })).rootCa?.rootRotation?.caCert);
  const told = (): number =>
    [...store.all("node")].filter(({ certificate }) => certificate?.status?.state === IssuanceStatus_State.ROTATE)
      .length;
  await run(() => told() > 0);
  t.is(told(), rootRotationLimits.batchMax);
  t.is(store.get("node", "asking")?.certificate?.status?.state, IssuanceStatus_State.RENEW);
  clock.advance(rootRotationLimits.pauseMs);
  await run(() => told() > rootRotationLimits.batchMax);
  // The manager's own node among them.
  t.is(told(), ids.length + 1);

  // One that is down holds everything up, until it is removed.
  drop("node", "manager1");
  drop("node", "asking");
  seed("node", ...ids.slice(1).map((id) => worker(id, newRoot)));
  clock.advance(10 * rootRotationLimits.pauseMs);
  await run(() => cluster().rootCa?.rootRotation === null, 20);
  t.not(cluster().rootCa?.rootRotation, null);
  drop("node", ids[0] as string);
  await run(() => cluster().rootCa?.rootRotation === null);

  const { rootCa } = cluster();
  t.is(text.decode(rootCa?.caCert), newRoot);
  t.is(rootCa?.rootRotation, null);
  t.is(rootCa?.lastForcedRotation, 1);
  for (const role of ["worker", "manager"] as const) {
    const token = pki.parseJoinToken(rootCa?.joinTokens?.[role] ?? "");
    t.true(token.kind === "token" && pki.rootMatches(token, rootCa?.caCert ?? new Uint8Array()));
    t.not(rootCa?.joinTokens?.[role], tokens?.[role]);
  }
});

test("who died while joining holds a rotation up for a minute and no longer", async (t) => {
  const { clock, cluster, drop, run, rotation, seed, update } = await world(t);
  drop("node", "manager1");
  seed("node", Node.patch(worker("half", ""), { description: null }));
  rotation();
  await update({ forceRotate: 1 });
  const turns = async (ms: number): Promise<void> => {
    for (let at = 0; at < ms; at += rootRotationLimits.pauseMs) {
      clock.advance(rootRotationLimits.pauseMs);
      await run(() => cluster().rootCa?.rootRotation === null, 5);
    }
  };
  await turns(45_000);
  t.not(cluster().rootCa?.rootRotation, null);
  await turns(30_000);
  t.is(cluster().rootCa?.rootRotation, null);
});

test("a new leader goes on where the old one was", async (t) => {
  const { cluster, drop, run, rotation, seed, store, update } = await world(t);
  drop("node", "manager1");
  seed("node", worker("node1", text.decode(cluster().rootCa?.caCert)));
  const first = rotation();
  const newRoot = text.decode((await update({ forceRotate: 1 })).rootCa?.rootRotation?.caCert);
  const state = () => store.get("node", "node1")?.certificate?.status?.state;
  await run(() => state() === IssuanceStatus_State.ROTATE);
  first.stop();
  // It renews while nobody leads.
  seed("node", worker("node1", newRoot));
  await run(() => false, 10);
  t.not(cluster().rootCa?.rootRotation, null);
  rotation();
  await run(() => cluster().rootCa?.rootRotation === null);
  t.is(text.decode(cluster().rootCa?.caCert), newRoot);
});

test("a rotation that is called off is left alone", async (t) => {
  const { clock, cluster, drop, run, rotation, seed, update } = await world(t);
  const present = {
    certificatePem: text.decode(cluster().rootCa?.caCert),
    keyPem: text.decode(cluster().rootCa?.caKey),
  };
  drop("node", "manager1");
  seed("node", worker("node1", present.certificatePem));
  rotation();
  const newRoot = text.decode((await update({ forceRotate: 1 })).rootCa?.rootRotation?.caCert);
  await update(wanted(present));
  seed("node", worker("node1", newRoot));
  clock.advance(2 * rootRotationLimits.pauseMs);
  await run(() => false, 20);
  t.is(text.decode(cluster().rootCa?.caCert), present.certificatePem);
});

test("the chart of a rotation begins where the store stands, pauses after a failed write and ends when it is called off", (t) => {
  const [idle] = initialTransition(rootRotationMachine, { isWanted: false });
  t.is(idle.value, "idle");
  const [telling, effects] = initialTransition(rootRotationMachine, { isWanted: true });
  t.is(telling.value, "telling");
  t.true(effects.some(({ type }) => type === "tellNodes"));
  const [pausing] = transition(rootRotationMachine, telling, { type: "write.failed", reason: "no leader" });
  t.is(pausing.value, "pausing");
  t.is(pausing.context.reason, "no leader");
  const [switching, asked] = transition(rootRotationMachine, pausing, { type: "nodes.renewed" });
  t.is(switching.value, "switching");
  t.true(asked.some(({ type }) => type === "switchRoot"));
  // Another root is wanted in the very moment of the switch.
  const [again] = transition(rootRotationMachine, switching, { type: "rotation.wanted" });
  t.is(again.value, "telling");
  t.is(transition(rootRotationMachine, again, { type: "rotation.over" })[0].value, "idle");
});

test("during a rotation a manager shows a chain that both roots vouch for, and takes certificates of both", async (t) => {
  const { cluster, env, held, hold, update } = await world(t);
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
  const { cluster, env, held, hold, rotation, run, seed, update } = await world(t);
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
  const { cluster, env, run, seed, store, held, hold, update } = await world(t);
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

test("an external CA signs for nodes from the first one set on, with the names that were asked for", async (t) => {
  const { cluster, env, external, own, run, seed, store, update } = await world(t);
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
  // It asked with the manager's certificate.
  t.deepEqual(ca.callers, ["swarm-manager"]);
});

test("the root can go to an external CA, which then is needed, and come back from it", async (t) => {
  const { cluster, env, external, own, hold, held, seed, update, run } = await world(t);
  const ca = await startTestCa(t, { trusts: own.rootPem });
  const outside = { signingCaCert: bytes.encode(ca.rootPem) };
  const withoutCert = await refusalOf(() => update({ ...outside, externalCas: [cfssl(ca.url)] }));
  t.regex(withoutCert?.message ?? "", /corresponding to the desired CA certificate$/);
  const begun = await update({ ...outside, externalCas: [cfssl(ca.url, ca.rootPem)] });
  t.is(begun.rootCa?.rootRotation?.caKey.length, 0);
  // While it is to follow, it must not be taken away.
  const dropped = await refusalOf(() => update({ externalCas: [] }));
  t.regex(dropped?.message ?? "", /corresponding to the next CA certificate$/);

  // This manager asks through its node object, and the leader's signer asks the CA.
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

test("an external CA that answers nonsense signs nothing, and each address says why", async (t) => {
  const { external, own } = await world(t);
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
    [{ status: 200, body: JSON.stringify({ success: true, result: { certificate: 7 } }) }, /holds no certificate/],
    [{ status: 200, body: " ".repeat(2_000_000) }, /too long/],
  ] as const) {
    ca.failure = failure;
    await t.throwsAsync(sign(), { message: reason });
  }
  t.is(await external.probe(ca.url, ca.rootPem), null);
  t.truthy(await external.probe(ca.url, own.rootPem));
  t.is(await external.probe("http://localhost/", ca.rootPem), "invalid HTTP scheme");
});
