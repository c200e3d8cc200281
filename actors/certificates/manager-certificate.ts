/**
 * A manager's own certificate. The manager signs it itself, since it can read the root's key; if only an external CA has that
 * key, it requests one through its node object as every node does, and the leader's signer answers.
 *
 * M3: key and certificate are saved together, before they are used or announced.
 * M4: a node that trusts the previous root still accepts this manager. A node that was away when a rotation ended learns of the
 *     new root from a manager, which it must trust for that: so the chain keeps the cross-certificate of the two roots until
 *     every node has reported that it trusts the new one.
 * M5: the node object is updated only once the certificate is in use: a rotation ends, and nodes trust only the new root, as
 *     soon as all nodes are recorded as renewed. Only the first certificate of a process is recorded before use, when nothing
 *     is being served yet, and only if the roots are still those that it was checked against. A certificate that is recorded already
 *     is used at once: a manager that starts while nothing can be written, because the log's disk is full, can then be read.
 */
import { issuerOf, type Issuer } from "../../machines/certificates/issuer.ts";
import { issuanceState } from "../../machines/certificates/issuance.ts";
import { isSameBytes } from "../../machines/same-message.ts";
import {
  managerCertificateMachine,
  type ManagerCertificateEvent,
} from "../../machines/certificates/manager-certificate.machine.ts";
import {
  Certificate,
  IssuanceStatus,
  IssuanceStatus_State,
  Node,
  NodeRole,
  type Cluster,
} from "../../proto/gen/messages.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import { clusterOf, bareManagerNode, whenCluster } from "../manager/bootstrap.ts";
import type { CertificateAuthority } from "./ca-port.ts";
import { creation, replacement, transact } from "../control/write.ts";
import type { Environment, Running } from "../environment.ts";
import { writeManagerNode, type ManagerFacts } from "../manager/node.ts";
import { noExternalCa } from "../../runtime/ports/external-ca.ts";
import { signNode } from "./node-signing.ts";
import { sentence } from "../sentence.ts";

const text = new TextEncoder();
const untraced = { traceparent: "" };
/** Timeout for the leader's signer and the external CA behind it; then a new request is made. */
const leaderTimeoutMs = 60_000;

/** No node lags further behind: a rotation ends only when every node has renewed, for which it must trust the previous root. */
const olderIntermediatesMax = 2;

/** The files that a manager keeps on its own disk; the key never leaves it. */
export interface ManagerIdentity {
  /** Leaf, then intermediates. */
  readonly certificatePem: string;
  readonly keyPem: string;
}

export interface ManagerCertificate extends ManagerIdentity {
  /** The root that every node trusts now. */
  readonly rootPem: string;
  /** Roots whose client certificates are accepted: during a rotation also the next root. */
  readonly acceptedPem: string;
  /** The cluster's id, which is the organization of all its certificates. */
  readonly organization: string;
  /** When to request a new one, in milliseconds since the epoch: drawn from 50 to 80 % of its lifetime. */
  readonly renewAtMs: number;
  /** True when certificate and key are new and must be saved. */
  readonly isNew: boolean;
}

type Signed = ManagerIdentity & { readonly csr: Uint8Array };

/** Checks a saved identity against the current roots; null when it cannot be used, or must be replaced. */
function kept(
  env: Environment,
  authority: CertificateAuthority,
  cluster: Cluster,
  issuer: Issuer,
  identity: ManagerIdentity | null,
): ManagerCertificate | null {
  if (identity === null || identity.certificatePem === "" || identity.keyPem === "") return null;
  const read = authority.describeCertificate(identity.certificatePem, issuer.rootPem);
  if (read.kind === "malformed" || read.nodeId !== env.managerId || read.role !== "swarm-manager") return null;
  const now = env.clock.now();
  if (read.organization !== cluster.id || !read.verify(issuer.trustedPem, now)) return null;
  const name = authority.issuerName(issuer.rootPem);
  if (name === null || read.issuerPublicKeyDer === null) return null;
  if (!isSameBytes(read.issuerPublicKeyDer, name.publicKeyDer)) return null;
  // A renewal is drawn from the second half of the lifetime at the earliest, so a fresh draw here never skips one.
  const renewAtMs = authority.renewalInstant(read, env.random.next());
  if (renewAtMs <= now) return null;
  return certificateOf(identity, cluster, issuer, renewAtMs, false);
}

function certificateOf(
  { certificatePem, keyPem }: ManagerIdentity,
  cluster: Cluster,
  { rootPem, trustedPem }: Issuer,
  renewAtMs: number,
  isNew: boolean,
): ManagerCertificate {
  const acceptedPem = rootPem === trustedPem ? trustedPem : trustedPem + rootPem;
  return { certificatePem, keyPem, rootPem: trustedPem, acceptedPem, organization: cluster.id, renewAtMs, isNew };
}

interface Obtained {
  readonly certificate: ManagerCertificate;
  /** Whether it is already in this manager's node object. */
  readonly isRecorded: boolean;
  /** Creates or updates this manager's node object. */
  tell(): Promise<void>;
  /** Whether the roots are still those that the certificate was checked against. */
  isStillGood(): boolean;
}

/** The roots and intermediates that a certificate is checked against; empty while there is no root. */
function basisOf(env: Environment, authority: CertificateAuthority): string {
  const cluster = clusterOf(env);
  const issuer = cluster === undefined ? null : issuerOf(cluster, authority.normalizePem);
  return issuer === null ? "" : [issuer.rootPem, issuer.trustedPem, issuer.intermediatesPem].join("\n");
}

/**
 * Obtains a certificate for this manager: the saved one while it is valid, else a new one. Waits for the cluster object. Call
 * it again at `renewAtMs`, and when the root changes.
 */
export async function obtainManagerCertificate(
  env: Environment,
  authority: CertificateAuthority,
  identity: ManagerIdentity | null,
  facts: ManagerFacts,
  signal?: AbortSignal,
): Promise<Obtained> {
  const cluster = await whenCluster(env, signal);
  const issuer = issuerOf(cluster, authority.normalizePem);
  if (issuer === null) throw new Error("the cluster has no root certificate");
  const basis = basisOf(env, authority);
  const node = env.store.get("node", env.managerId);
  const obtained = (certificate: ManagerCertificate, csr: Uint8Array): Obtained => ({
    certificate,
    isRecorded: isSameBytes(
      node?.certificate?.certificate ?? new Uint8Array(),
      text.encode(certificate.certificatePem),
    ),
    tell: () => writeManagerNode(env, authority, { ...certificate, issuerPem: issuer.rootPem, csr }, facts),
    isStillGood: () => basisOf(env, authority) === basis,
  });
  const isToldToRenew = node !== undefined && issuanceState(node) === IssuanceStatus_State.ROTATE;
  const old = isToldToRenew ? null : kept(env, authority, cluster, issuer, identity);
  if (old !== null) return obtained(old, node?.certificate?.csr ?? new Uint8Array());
  const fresh = await newIdentity(env, authority, cluster, issuer, facts, signal);
  const older = olderIntermediates(env, authority, issuer, identity);
  const signed = { ...fresh, certificatePem: fresh.certificatePem + older.join("") };
  const read = authority.describeCertificate(signed.certificatePem, issuer.rootPem);
  if (read.kind === "malformed") throw new Error(`cannot read the certificate just signed: ${read.reason}`);
  const renewAtMs = authority.renewalInstant(read, env.random.next());
  return obtained(certificateOf(signed, cluster, issuer, renewAtMs, true), signed.csr);
}

/** M4: the cross-certificates of a chain that lead to roots that some node still trusts, without the issuer's own. */
export function olderIntermediates(
  env: Environment,
  authority: CertificateAuthority,
  { intermediatesPem, trustedPem }: Issuer,
  identity: ManagerIdentity | null,
): readonly string[] {
  const trusted = text.encode(trustedPem);
  const isBehind = ({ description }: Node): boolean =>
    description !== null && !isSameBytes(description.tlsInfo?.trustRoot ?? new Uint8Array(), trusted);
  if (identity === null || ![...env.store.all("node")].some(isBehind)) return [];
  return authority
    .intermediatesOf(identity.certificatePem)
    .filter((pem) => !intermediatesPem.includes(pem.trim()))
    .slice(0, olderIntermediatesMax);
}

async function newIdentity(
  env: Environment,
  authority: CertificateAuthority,
  cluster: Cluster,
  issuer: Issuer,
  facts: ManagerFacts,
  signal: AbortSignal | undefined,
): Promise<Signed> {
  const { keyPem, csrPem } = await authority.createKeyAndCsr();
  const csr = text.encode(csrPem);
  if (issuer.keyPem === "" || issuer.externalUrls.length > 0) {
    return { keyPem, csr, certificatePem: await signedByLeader(env, csr, facts, signal) };
  }
  const request = { csr, nodeId: env.managerId, role: "swarm-manager", nowMs: env.clock.now() } as const;
  return { keyPem, csr, certificatePem: await signNode(cluster, request, authority, noExternalCa) };
}

/** Requests as any other node: the request goes into the node object, and the leader's signer answers there. */
async function signedByLeader(
  env: Environment,
  csr: Uint8Array,
  { advertise }: ManagerFacts,
  signal: AbortSignal | undefined,
): Promise<string> {
  const { clock, managerId, store } = env;
  const isAnswered = (): boolean => {
    const certificate = store.get("node", managerId)?.certificate ?? null;
    const state = certificate?.status?.state;
    return (
      certificate !== null &&
      isSameBytes(certificate.csr, csr) &&
      (state === IssuanceStatus_State.ISSUED || state === IssuanceStatus_State.FAILED)
    );
  };
  await transact(env, untraced, () => {
    const before = store.get("node", managerId);
    const status = IssuanceStatus.create({ state: IssuanceStatus_State.RENEW });
    const certificate = Certificate.create({ role: NodeRole.MANAGER, csr, cn: managerId, status });
    return before === undefined
      ? [creation("node", Node.patch(bareManagerNode(env, advertise, clusterOf(env)), { certificate }))]
      : [replacement("node", Node.patch(before, { certificate }))];
  });
  await new Promise<void>((resolve, reject) => {
    if (isAnswered()) return resolve();
    const end = (error: Error | null): void => {
      watching.unsubscribe();
      clock.clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
      if (error === null) resolve();
      else reject(error);
    };
    const abort = (): void => end(new RpcError(Status.CANCELLED, "stopped before the certificate was signed"));
    const watching = store.watch(() => {
      if (isAnswered()) end(null);
    });
    const timer = clock.setTimeout(
      () => end(new Error("timed out waiting for the leader to sign this manager's certificate: see the leader's log")),
      leaderTimeoutMs,
    );
    signal?.addEventListener("abort", abort, { once: true });
  });
  const certificate = store.get("node", managerId)?.certificate ?? null;
  if (certificate?.status?.state !== IssuanceStatus_State.ISSUED) {
    throw new Error(certificate?.status?.err ?? "the node was removed");
  }
  return new TextDecoder().decode(certificate.certificate);
}

interface ManagerCertificateParts {
  readonly facts: ManagerFacts;
  /** The last saved identity; null on a first start. */
  load(): ManagerIdentity | null;
  /** Durable when it returns. M3 */
  save(identity: ManagerIdentity): void;
  /** Calls the listener after this machine's wall clock was set: the certificate may have expired, or not be valid yet. */
  onClockJump(listener: () => void): void;
  /**
   * Called with the first certificate to serve with, and with the present one after each later check. It is in use when the promise
   * is settled, or at once.
   */
  onCertificate(certificate: ManagerCertificate): void | Promise<void>;
}

/** Obtains and renews the manager's certificate until stopped. */
export function startManagerCertificate(
  env: Environment,
  authority: CertificateAuthority,
  parts: ManagerCertificateParts,
): Running {
  const stopping = new AbortController();
  /** The basis (`basisOf`) on which the last certificate was checked. */
  let judgedBy = "";
  let isShown = false;

  const hosted = env.host.start(managerCertificateMachine, "manager-certificate", undefined, {
    effects: { obtainCertificate: () => env.clock.soon(() => void obtain()) },
  });
  const send = (event: ManagerCertificateEvent): void => {
    if (!stopping.signal.aborted) hosted.send(event);
  };

  async function obtain(): Promise<void> {
    if (stopping.signal.aborted) return;
    judgedBy = basisOf(env, authority);
    try {
      const { signal } = stopping;
      const obtained = await obtainManagerCertificate(env, authority, parts.load(), parts.facts, signal);
      const { certificate } = obtained;
      // Save before announcing: the announcement may end the rotation, and the next certificate's chain is built from this one.
      // M3, M4
      if (certificate.isNew) parts.save(certificate);
      // M5
      const isToldBefore = !isShown && !obtained.isRecorded;
      if (isToldBefore) {
        await obtained.tell();
        if (!obtained.isStillGood()) throw new Error("the root certificate changed meanwhile");
      }
      if (signal.aborted) return;
      await parts.onCertificate(certificate);
      if (signal.aborted) return;
      isShown = true;
      if (!isToldBefore) await obtained.tell();
      if (signal.aborted) return;
      send({ type: "certificate.obtained", renewInMs: certificate.renewAtMs - env.clock.now() });
    } catch (error) {
      if (stopping.signal.aborted) return;
      env.telemetry.log.warn({ error: sentence(error) }, "cannot renew the manager's certificate yet");
      send({ type: "certificate.failed", reason: sentence(error) });
    }
  }

  const watching = env.store.watch(({ changes }) => {
    const isDoubtful = changes.some((change) =>
      change.table === "cluster"
        ? change.object.rootCa !== change.old?.rootCa && basisOf(env, authority) !== judgedBy
        : change.table === "node" &&
          change.object.id === env.managerId &&
          change.action !== "remove" &&
          issuanceState(change.object) === IssuanceStatus_State.ROTATE,
    );
    if (isDoubtful) send({ type: "certificate.doubted" });
  });

  parts.onClockJump(() => send({ type: "certificate.doubted" }));

  return {
    stop() {
      if (stopping.signal.aborted) return;
      stopping.abort();
      watching.unsubscribe();
      hosted.stop();
    },
  };
}
