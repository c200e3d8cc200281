import test, { type ExecutionContext } from "ava";
import * as pki from "../../lib/pki/index.ts";
import { bootstrapCluster, whenCluster } from "../../actors/manager/bootstrap.ts";
import { createCa } from "../../actors/certificates/ca.ts";
import type { CertificateAuthority } from "../../actors/certificates/ca-port.ts";
import { startCertificateSigner } from "../../actors/certificates/certificate-signer.ts";
import { startKeyManager } from "../../actors/keys/key-manager.ts";
import { certificateMachine } from "../../machines/certificates/certificate.machine.ts";
import { keyRotationTimes } from "../../machines/keys/key-rotation.machine.ts";
import {
  BlacklistedCertificate,
  Certificate,
  Cluster,
  GetRootCACertificateRequest,
  GetUnlockKeyRequest,
  IssuanceStatus,
  IssuanceStatus_State,
  IssueNodeCertificateRequest,
  Node,
  NodeCertificateStatusRequest,
  NodeRole,
  NodeSpec_Availability,
  NodeStatus,
  NodeStatus_State,
} from "../../proto/gen/messages.ts";
import { Status } from "../../runtime/ports/rpc.ts";
import { settle } from "../../runtime/sim/clock.ts";
import { ChartRun } from "../support/chart-run.ts";
import { call, refusalOf, testManager, type TestManager } from "../support/manager.ts";
import { ensureManagerCertificate } from "../support/roots.ts";

const authority: CertificateAuthority = pki;
const text = new TextDecoder();
const bytes = new TextEncoder();

async function world(t: ExecutionContext, options: { readonly signing?: boolean } = {}) {
  const manager = testManager();
  await bootstrapCluster(manager.env, authority, { advertise: "192.0.2.1:2377" });
  const ca = createCa(manager.env, authority);
  t.teardown(() => ca.stop());
  if (options.signing !== false) {
    const signer = startCertificateSigner(manager.env, authority);
    t.teardown(() => signer.stop());
  }
  const cluster = (): Cluster => [...manager.store.all("cluster")][0] as Cluster;
  const token = (): string => cluster().rootCa?.joinTokens?.worker ?? "";
  return { ...manager, manager, ca, cluster, token };
}

/** Lets the signer work: its batch starts at the clock's next step, and signing takes real time. */
async function run({ clock }: Pick<TestManager, "clock">, until: () => boolean): Promise<void> {
  for (let turn = 0; turn < 2_000 && !until(); turn += 1) {
    clock.advance(0);
    await settle();
  }
}

async function csr(): Promise<Uint8Array> {
  return bytes.encode((await authority.createKeyAndCsr()).csrPem);
}

function request(fields: Partial<IssueNodeCertificateRequest>): IssueNodeCertificateRequest {
  return IssueNodeCertificateRequest.create(fields);
}

test("a first start creates one cluster with tokens, three keys of each kind and a drained manager node", async (t) => {
  const { manager, cluster, store } = await world(t);
  const { rootCa, networkBootstrapKeys, defaultAddressPool, subnetSize, VXLANUDPPort, spec } = cluster();
  t.is(spec?.annotations?.name, "default");
  t.is(spec?.orchestration?.taskHistoryRetentionLimit, 5);
  t.is(spec?.caConfig?.nodeCertExpiry?.seconds, 90 * 86_400);
  t.deepEqual([defaultAddressPool, subnetSize, VXLANUDPPort], [["10.0.0.0/8"], 24, 4789]);
  for (const subsystem of ["networking:gossip", "networking:ipsec"]) {
    const keys = networkBootstrapKeys.filter((key) => key.subsystem === subsystem);
    t.deepEqual(
      keys.map(({ key }) => key.length),
      [16, 16, 16],
    );
  }
  // All unequal, across subsystems: engines tell new keys apart only by their times.
  t.deepEqual(
    networkBootstrapKeys.map(({ lamportTime }) => lamportTime),
    [1, 2, 3, 4, 5, 6],
  );
  for (const token of [rootCa?.joinTokens?.worker ?? "", rootCa?.joinTokens?.manager ?? ""]) {
    const parsed = pki.parseJoinToken(token);
    t.true(parsed.kind === "token" && pki.rootMatches(parsed, rootCa?.caCert ?? new Uint8Array()));
    t.is(rootCa?.caCertHash, parsed.kind === "token" ? `sha256:${parsed.digestHex}` : "");
  }
  const node = store.get("node", "manager1");
  t.like(node, { role: NodeRole.MANAGER });
  t.is(node?.spec?.availability, NodeSpec_Availability.DRAIN);
  t.is(node?.status?.addr, "192.0.2.1");
  const { version } = store;
  await bootstrapCluster(manager.env, authority, { advertise: "192.0.2.1:2377" });
  t.is(store.version, version);
});

test("when two leaders find no cluster, one creates it and the other accepts it", async (t) => {
  const { env, store } = testManager();
  await Promise.all([0, 1].map(() => bootstrapCluster(env, authority, { advertise: "192.0.2.1:2377" })));
  t.is(store.count("cluster"), 1);
});

test("a node joins with a token, waits, and gets a certificate for exactly its request", async (t) => {
  const { ca, clock, cluster, token, store, manager } = await world(t);
  const wanted = await csr();
  const { availability, nodeId, nodeMembership } = {
    availability: NodeSpec_Availability.PAUSE,
    ...(await ca.nodeCa.IssueNodeCertificate(
      request({ csr: wanted, token: token(), availability: 1 }),
      call({ local: false }),
    )),
  };
  t.is(nodeMembership, 1);
  t.is(store.get("node", nodeId)?.spec?.availability, availability);
  const answer = Promise.resolve(
    ca.nodeCa.NodeCertificateStatus(NodeCertificateStatusRequest.create({ nodeId }), call()),
  );
  await run(manager, () => store.get("node", nodeId)?.certificate?.status?.state === IssuanceStatus_State.ISSUED);
  const { status, certificate } = await answer;
  t.is(status?.state, IssuanceStatus_State.ISSUED);
  t.deepEqual(text.decode(certificate?.csr), text.decode(wanted));
  const rootPem = text.decode(cluster().rootCa?.caCert);
  const read = pki.describeCertificate(text.decode(certificate?.certificate), rootPem);
  t.like(read, { kind: "certificate", nodeId, role: "swarm-worker", organization: cluster().id });
  t.true(read.kind === "certificate" && read.verify(rootPem, clock.now()));
});

test("the token determines the role, and a wrong one is rejected before the request is read", async (t) => {
  const { ca, cluster, store, token } = await world(t, { signing: false });
  const managerToken = cluster().rootCa?.joinTokens?.manager ?? "";
  const asManager = await ca.nodeCa.IssueNodeCertificate(request({ csr: await csr(), token: managerToken }), call());
  t.is(store.get("node", asManager.nodeId)?.role, NodeRole.MANAGER);
  const { version } = store;
  const refusal = (fields: Partial<IssueNodeCertificateRequest>) =>
    refusalOf(() => ca.nodeCa.IssueNodeCertificate(request(fields), call()));
  const noToken = { code: Status.INVALID_ARGUMENT, message: "A valid join token is necessary to join this cluster" };
  t.deepEqual(await refusal({ csr: bytes.encode("junk"), token: `${token()}x` }), noToken);
  t.deepEqual(await refusal({ csr: await csr() }), noToken);
  t.deepEqual(await refusal({ token: token() }), { code: Status.INVALID_ARGUMENT, message: "InvalidArgument" });
  const junk = await refusal({ csr: bytes.encode("junk"), token: token() });
  t.is(junk?.code, Status.INVALID_ARGUMENT);
  t.regex(junk?.message ?? "", /invalid certificate request/);
  t.is(store.version, version);
});

test("a request for the manager role with a worker's token is rejected and creates no node", async (t) => {
  const { ca, cluster, store, token } = await world(t, { signing: false });
  const { version } = store;
  const asManager = async (joinToken: string) =>
    ca.nodeCa.IssueNodeCertificate(
      request({ csr: await csr(), token: joinToken, role: NodeRole.MANAGER }),
      call({ local: false }),
    );
  t.deepEqual(await refusalOf(() => asManager(token())), {
    code: Status.INVALID_ARGUMENT,
    message:
      "cannot join as a manager with a worker's token: 'muster token manager' on a manager prints the managers' token",
  });
  t.is(store.version, version);
  const { nodeId } = await asManager(cluster().rootCa?.joinTokens?.manager ?? "");
  t.is(store.get("node", nodeId)?.role, NodeRole.MANAGER);
});

test("a node with a certificate renews it without a token, with its current role", async (t) => {
  const { ca, cluster, token, store, manager } = await world(t);
  const first = await csr();
  const { nodeId } = await ca.nodeCa.IssueNodeCertificate(request({ csr: first, token: token() }), call());
  const state = () => store.get("node", nodeId)?.certificate?.status?.state;
  await run(manager, () => state() === IssuanceStatus_State.ISSUED);
  const identity = { nodeId, role: "swarm-worker" as const, organization: cluster().id };
  const second = await csr();
  const renewed = await ca.nodeCa.IssueNodeCertificate(request({ csr: second }), call({ identity, local: false }));
  t.is(renewed.nodeId, nodeId);
  t.is(state(), IssuanceStatus_State.RENEW);
  await run(manager, () => state() === IssuanceStatus_State.ISSUED);
  t.is(text.decode(store.get("node", nodeId)?.certificate?.csr), text.decode(second));
  const gone = { ...identity, nodeId: "gone" };
  t.deepEqual(
    await refusalOf(() => ca.nodeCa.IssueNodeCertificate(request({ csr: second }), call({ identity: gone }))),
    {
      code: Status.NOT_FOUND,
      message: "node gone not found when attempting to renew certificate",
    },
  );
});

test("A3: a node that renews constantly is rejected beyond its budget, before its request is read; others are not", async (t) => {
  const { ca, cluster, proposals, clock, store, seed } = await world(t, { signing: false });
  seed("node", Node.create({ id: "n1" }), Node.create({ id: "n2" }));
  const csrOfNode = await csr();
  const renew = (nodeId: string, bytesOfCsr = csrOfNode) => {
    const identity = { nodeId, role: "swarm-worker" as const, organization: cluster().id };
    return refusalOf(() =>
      ca.nodeCa.IssueNodeCertificate(request({ csr: bytesOfCsr }), call({ identity, local: false })),
    );
  };
  const before = proposals.length;
  const refused: unknown[] = [];
  for (let at = 0; at < 200; at += 1) {
    const refusal = await renew("n1");
    if (refusal !== null) refused.push(refusal);
  }
  t.true(refused.length > 100, `${refused.length} of 200`);
  t.is(proposals.length - before, 200 - refused.length);
  t.deepEqual(refused[0], { code: Status.UNAVAILABLE, message: "node n1 exceeded rate limit of certificate renewals" });
  t.like(await renew("n1", bytes.encode("no request")), { code: Status.UNAVAILABLE });
  t.is(await renew("n2"), null);
  clock.advance(10_000);
  t.is(await renew("n1"), null, "the budget refills");
  t.is(store.get("node", "n1")?.certificate?.csr.length, csrOfNode.length);
});

test("a removed node's certificate grants it nothing", async (t) => {
  const { ca, cluster, seed } = await world(t, { signing: false });
  seed("cluster", Cluster.patch(cluster(), { blacklistedCertificates: { n1: BlacklistedCertificate.create({}) } }));
  const identity = { nodeId: "n1", role: "swarm-worker" as const, organization: cluster().id };
  const wanted = await csr();
  const refusal = await refusalOf(() => ca.nodeCa.IssueNodeCertificate(request({ csr: wanted }), call({ identity })));
  t.deepEqual(refusal, {
    code: Status.PERMISSION_DENIED,
    message: "Permission denied: node n1 was removed from swarm",
  });
});

test("a status request for an unknown node is rejected, and a caller that cancels stops waiting", async (t) => {
  const { ca, token } = await world(t, { signing: false });
  const status = (nodeId: string, signal?: AbortSignal) =>
    refusalOf(() => ca.nodeCa.NodeCertificateStatus(NodeCertificateStatusRequest.create({ nodeId }), call({}, signal)));
  t.deepEqual(await status(""), { code: Status.INVALID_ARGUMENT, message: "InvalidArgument" });
  t.deepEqual(await status("x"), { code: Status.NOT_FOUND, message: "NotFound" });
  const { nodeId } = await ca.nodeCa.IssueNodeCertificate(request({ csr: await csr(), token: token() }), call());
  const patience = new AbortController();
  const waiting = status(nodeId, patience.signal);
  patience.abort();
  t.is((await waiting)?.code, Status.CANCELLED);
});

test("the root is returned as stored, and there is no unlock key", async (t) => {
  const { ca, cluster } = await world(t, { signing: false });
  const { certificate } = await ca.ca.GetRootCACertificate(GetRootCACertificateRequest.create({}), call());
  t.deepEqual(certificate, cluster().rootCa?.caCert);
  const { unlockKey, version } = await ca.ca.GetUnlockKey(GetUnlockKeyRequest.create({}), call());
  t.is(unlockKey.length, 0);
  t.is(version?.index, cluster().meta?.version?.index);
});

test("before there is a cluster the CA is still starting", async (t) => {
  const ca = createCa(testManager().env, authority);
  t.teardown(() => ca.stop());
  const refusal = await refusalOf(() => ca.ca.GetRootCACertificate(GetRootCACertificateRequest.create({}), call()));
  t.deepEqual(refusal, { code: Status.ABORTED, message: "CA signer is still starting" });
});

test("a hundred nodes that join together are signed with a few writes", async (t) => {
  const { ca, token, store, manager } = await world(t);
  const wanted = await csr();
  await Promise.all(
    Array.from({ length: 100 }, async () =>
      ca.nodeCa.IssueNodeCertificate(request({ csr: wanted, token: token() }), call()),
    ),
  );
  const before = manager.proposals.length;
  const isIssued = (node: Node) => node.certificate?.status?.state === IssuanceStatus_State.ISSUED;
  await run(manager, () => [...store.all("node")].filter(isIssued).length === 100);
  t.is([...store.all("node")].filter(isIssued).length, 100);
  t.true(manager.proposals.length - before <= 3);
});

test("a new leader's signer finishes the old one's requests", async (t) => {
  const { ca, token, store, manager, env } = await world(t, { signing: false });
  const { nodeId } = await ca.nodeCa.IssueNodeCertificate(request({ csr: await csr(), token: token() }), call());
  const signer = startCertificateSigner(env, authority);
  t.teardown(() => signer.stop());
  await run(manager, () => store.get("node", nodeId)?.certificate?.status?.state === IssuanceStatus_State.ISSUED);
  t.is(store.get("node", nodeId)?.certificate?.status?.state, IssuanceStatus_State.ISSUED);
  t.is(env.host.find(`certificate/${nodeId}`), undefined);
});

test("a write between signing and storing makes the signer sign again", async (t) => {
  let interfere: (() => void) | null = null;
  const meddling: CertificateAuthority = {
    ...pki,
    issue: async (wanted) => {
      interfere?.();
      interfere = null;
      return pki.issue(wanted);
    },
  };
  const { ca, token, store, manager, env, seed } = await world(t, { signing: false });
  const signer = startCertificateSigner(env, meddling);
  t.teardown(() => signer.stop());
  const { nodeId } = await ca.nodeCa.IssueNodeCertificate(request({ csr: await csr(), token: token() }), call());
  const newer = await csr();
  interfere = () => {
    const node = store.get("node", nodeId) as Node;
    seed("node", Node.patch(node, { certificate: Certificate.patch(node.certificate as Certificate, { csr: newer }) }));
  };
  const certificate = () => store.get("node", nodeId)?.certificate;
  await run(manager, () => certificate()?.status?.state === IssuanceStatus_State.ISSUED);
  t.is(certificate()?.status?.state, IssuanceStatus_State.ISSUED);
  t.is(text.decode(certificate()?.csr), text.decode(newer));
});

test("a certificate that cannot be written is signed again after the delay", async (t) => {
  const { ca, token, store, manager, clock } = await world(t);
  const { nodeId } = await ca.nodeCa.IssueNodeCertificate(request({ csr: await csr(), token: token() }), call());
  manager.leaderless = true;
  const state = () => store.get("node", nodeId)?.certificate?.status?.state;
  const actor = () => manager.env.host.find(`certificate/${nodeId}`)?.getSnapshot() as { value: unknown } | undefined;
  await run(manager, () => actor()?.value === "waiting");
  t.is(actor()?.value, "waiting");
  manager.leaderless = false;
  clock.advance(10_000);
  await run(manager, () => state() === IssuanceStatus_State.ISSUED);
  t.is(state(), IssuanceStatus_State.ISSUED);
});

test("a stored request that is malformed ends as FAILED with its reason", async (t) => {
  const { seed, store, manager } = await world(t);
  seed(
    "node",
    Node.create({
      id: "n1",
      spec: { annotations: null, desiredRole: 0, membership: 1, availability: 0 },
      certificate: Certificate.create({
        csr: bytes.encode("junk"),
        status: IssuanceStatus.create({ state: IssuanceStatus_State.PENDING }),
      }),
    }),
  );
  const status = () => store.get("node", "n1")?.certificate?.status;
  await run(manager, () => status()?.state === IssuanceStatus_State.FAILED);
  t.regex(status()?.err ?? "", /certificate request/);
});

test("a node in rotation keeps its certificate until it requests a new one, then gets that", (t) => {
  const input = { nodeId: "n1", isRotating: true };
  const rotating = new ChartRun(certificateMachine, input);
  t.is(rotating.state, "rotating");
  const pending = rotating.send({ type: "csr.received" });
  t.is(pending.state, "pending");
  t.deepEqual(pending.names, ["requestSignature"]);
  const signing = () =>
    new ChartRun(certificateMachine, input).send({ type: "csr.received" }, { type: "signing.started" });
  t.is(signing().send({ type: "certificate.stored" }).snapshot.status, "done");
  t.is(signing().send({ type: "node.removed" }).state, "gone");
});

const facts = { hostname: "m", advertise: "[fd00::1]:2377", version: "0.1.0", architecture: "x86_64", os: "linux" };

test("a manager signs its own certificate, keeps it while it is valid and renews it in time", async (t) => {
  const { env, store, clock, cluster } = await world(t, { signing: false });
  const first = await ensureManagerCertificate(env, authority, null, facts);
  t.true(first.isNew);
  const read = pki.describeCertificate(first.certificatePem, first.rootPem);
  t.like(read, { kind: "certificate", nodeId: "manager1", role: "swarm-manager", organization: cluster().id });
  const node = store.get("node", "manager1");
  t.is(node?.description?.hostname, "m");
  t.is(node?.status?.addr, "fd00::1");
  t.is(node?.certificate?.status?.state, IssuanceStatus_State.ISSUED);
  t.true((node?.description?.tlsInfo?.certIssuerPublicKey.length ?? 0) > 0);
  const again = await ensureManagerCertificate(env, authority, first, facts);
  t.false(again.isNew);
  t.is(again.certificatePem, first.certificatePem);
  clock.advance(85 * 86_400_000);
  t.true((await ensureManagerCertificate(env, authority, first, facts)).isNew);
  const foreign = await ensureManagerCertificate({ ...env, managerId: "manager2" }, authority, first, facts);
  t.true(foreign.isNew);
  t.is(store.get("node", "manager2")?.role, NodeRole.MANAGER);
});

test("a manager that starts before the cluster exists waits for it", async (t) => {
  const { env } = testManager();
  const waiting = whenCluster(env);
  await bootstrapCluster(env, authority, { advertise: "192.0.2.1:2377" });
  t.is((await waiting).spec?.annotations?.name, "default");
  const stopped = new AbortController();
  const never = refusalOf(() => whenCluster(testManager().env, stopped.signal));
  stopped.abort();
  t.is((await never)?.code, Status.CANCELLED);
});

test("network keys are rotated every twelve hours, with three of each kind at all times", async (t) => {
  const { env, clock, cluster, manager } = await world(t, { signing: false });
  const keys = startKeyManager(env);
  t.teardown(() => keys.stop());
  const lamport = () => cluster().networkBootstrapKeys.map(({ lamportTime }) => lamportTime);
  clock.advance(keyRotationTimes.periodMs - 1_000);
  await settle();
  t.deepEqual(lamport(), [1, 2, 3, 4, 5, 6]);
  manager.leaderless = true;
  clock.advance(1_000);
  await settle();
  manager.leaderless = false;
  clock.advance(keyRotationTimes.retryMs);
  await settle();
  t.deepEqual(lamport(), [2, 3, 7, 5, 6, 8]);
  t.is(cluster().encryptionKeyLamportClock, 8);
});

test("a node that becomes ready meanwhile does not lose its status to the signer", async (t) => {
  const { ca, token, store, manager, seed } = await world(t);
  const { nodeId } = await ca.nodeCa.IssueNodeCertificate(request({ csr: await csr(), token: token() }), call());
  const status = NodeStatus.create({ state: NodeStatus_State.READY });
  seed("node", Node.patch(store.get("node", nodeId) as Node, { status }));
  await run(manager, () => store.get("node", nodeId)?.certificate?.status?.state === IssuanceStatus_State.ISSUED);
  t.is(store.get("node", nodeId)?.status?.state, NodeStatus_State.READY);
});
