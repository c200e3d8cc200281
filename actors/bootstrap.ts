/**
 * How a cluster and a manager's place in it come to be: the leader of an empty log writes the cluster object and the
 * ingress network, each leader the networks that every node has by itself, and every manager process writes its own node
 * and signs its own certificate, since it can read the root's key anyway.
 *
 * B1: there is one cluster object, whatever two first leaders do: the second one's is refused by name.
 * B2: a manager's node is drained from its birth: no task is ever placed on a process that runs none.
 */
import { validitySecondsOf } from "../machines/issuance.ts";
import { networkKeyBytes } from "../machines/key-rotation.ts";
import { networkDefaults, type NetworkDefaults } from "../machines/network-defaults.ts";
import { newCluster } from "../machines/new-cluster.ts";
import { ingressNetwork, predefinedNames, predefinedNetwork } from "../machines/new-networks.ts";
import { defaultDataPathPort } from "../machines/redaction.ts";
import {
  Certificate,
  EngineDescription,
  IssuanceStatus,
  IssuanceStatus_State,
  Node,
  NodeDescription,
  NodeRole,
  NodeSpec,
  NodeSpec_Availability,
  NodeSpec_Membership,
  NodeStatus,
  NodeStatus_State,
  NodeTLSInfo,
  Platform,
  type Cluster,
} from "../proto/gen/messages.ts";
import { newId } from "../runtime/ids.ts";
import { RpcError, Status } from "../runtime/rpc.ts";
import type { CertificateAuthority } from "./ca-port.ts";
import { creation, replacement, transact, commit } from "./control/write.ts";
import type { Environment } from "./environment.ts";

const text = new TextEncoder();
const untraced = { traceparent: "" };

function clusterOf(env: Environment): Cluster | undefined {
  for (const cluster of env.store.all("cluster")) return cluster;
  return undefined;
}

/** Resolves with the cluster object, at once or when this replica gets it. Rejects only when `signal` aborts. */
export function whenCluster(env: Environment, signal?: AbortSignal): Promise<Cluster> {
  return new Promise((resolve, reject) => {
    const present = clusterOf(env);
    if (present !== undefined) {
      resolve(present);
      return;
    }
    const watching = env.store.watch(() => {
      const cluster = clusterOf(env);
      if (cluster === undefined) return;
      watching.unsubscribe();
      resolve(cluster);
    });
    signal?.addEventListener("abort", () => {
      watching.unsubscribe();
      reject(new RpcError(Status.CANCELLED, "stopped before there was a cluster"));
    });
  });
}

function bareManagerNode(env: Environment, advertise: string, cluster: Cluster | undefined): Node {
  return Node.create({
    id: env.managerId,
    role: NodeRole.MANAGER,
    spec: NodeSpec.create({
      desiredRole: NodeRole.MANAGER,
      membership: NodeSpec_Membership.ACCEPTED,
      // B2
      availability: NodeSpec_Availability.DRAIN,
    }),
    status: NodeStatus.create({ state: NodeStatus_State.READY, addr: hostOf(advertise) }),
    VXLANUDPPort: cluster?.VXLANUDPPort || defaultDataPathPort,
  });
}

/** The host of `host:port` or `[v6]:port`. */
function hostOf(address: string): string {
  return address.replace(/:\d+$/, "").replace(/^\[(.*)\]$/, "$1");
}

export interface BootstrapOptions {
  /** host:port that workers reach this manager at. */
  readonly advertise: string;
  /** What a new cluster is founded with, Swarm's defaults when absent; one that is there keeps its own. */
  readonly networks?: NetworkDefaults | undefined;
}

/**
 * The leader's first duty: what is there stays, and an ingress network that was removed stays away. Rejects with RpcError
 * when something could not be written.
 */
export async function bootstrapCluster(
  env: Environment,
  authority: CertificateAuthority,
  options: BootstrapOptions,
): Promise<void> {
  if (clusterOf(env) === undefined) await createCluster(env, authority, options);
  await createPredefinedNetworks(env);
}

/** A network of that name that somebody made in an earlier version is left alone. */
async function createPredefinedNetworks(env: Environment): Promise<void> {
  const random = env.random.fork("predefined-networks");
  for (const name of predefinedNames) {
    if (env.store.byName("network", name) !== undefined) continue;
    try {
      await commit(env, untraced, creation("network", predefinedNetwork(newId(random), name)));
    } catch (error) {
      if (!(error instanceof RpcError && error.code === Status.ALREADY_EXISTS)) throw error;
    }
  }
}

async function createCluster(
  env: Environment,
  authority: CertificateAuthority,
  options: BootstrapOptions,
): Promise<void> {
  const random = env.random.fork("bootstrap");
  const { certificatePem, keyPem } = await authority.createRoot({ nowMs: env.clock.now() });
  const rootPem = text.encode(certificatePem);
  const token = (): string => authority.makeJoinToken(rootPem, random.bytes(authority.joinSecretBytes));
  const workerToken = token();
  const parsed = authority.parseJoinToken(workerToken);
  const cluster = newCluster({
    id: newId(random),
    rootPem,
    rootKeyPem: text.encode(keyPem),
    rootHash: parsed.kind === "token" ? `sha256:${parsed.digestHex}` : "",
    workerToken,
    managerToken: token(),
    networks: options.networks ?? networkDefaults,
    networkKey: () => random.bytes(networkKeyBytes),
  });
  const operations = [creation("cluster", cluster), creation("network", ingressNetwork(newId(random)))];
  if (env.store.get("node", env.managerId) === undefined) {
    operations.push(creation("node", bareManagerNode(env, options.advertise, cluster)));
  }
  try {
    await commit(env, untraced, ...operations);
  } catch (error) {
    // B1
    if (error instanceof RpcError && error.code === Status.ALREADY_EXISTS) return;
    throw error;
  }
  env.telemetry.log.info({ cluster: cluster.id }, "cluster created");
}

/** What a manager keeps on its own disk; the key is nobody else's. */
export interface ManagerIdentity {
  readonly certificatePem: string;
  readonly keyPem: string;
}

export interface ManagerFacts {
  readonly hostname: string;
  /** host:port that workers reach this manager at. */
  readonly advertise: string;
  /** Version of Muster. */
  readonly version: string;
  /** `x86_64` or `aarch64`. */
  readonly architecture: string;
  readonly os: string;
}

export interface ManagerCertificate extends ManagerIdentity {
  readonly rootPem: string;
  /** The cluster's id: what every certificate of it names as organization. */
  readonly organization: string;
  /** When to ask again for a new one, in milliseconds since the epoch: drawn from 50 to 80 % of its life. */
  readonly renewAtMs: number;
  /** True when certificate and key are new and must be saved. */
  readonly isNew: boolean;
}

function kept(
  env: Environment,
  authority: CertificateAuthority,
  cluster: Cluster,
  rootPem: string,
  identity: ManagerIdentity | null,
): ManagerCertificate | null {
  if (identity === null || identity.certificatePem === "" || identity.keyPem === "") return null;
  const read = authority.describeCertificate(identity.certificatePem, rootPem);
  if (read.kind === "malformed" || read.nodeId !== env.managerId || read.role !== "swarm-manager") return null;
  const now = env.clock.now();
  if (read.organization !== cluster.id || !read.verify(rootPem, now)) return null;
  // Half of its life at least is left to it before a renewal is drawn, so a fresh draw here never skips one.
  const renewAtMs = authority.renewalInstant(read, env.random.next());
  if (renewAtMs <= now) return null;
  return { ...identity, rootPem, organization: cluster.id, renewAtMs, isNew: false };
}

/**
 * Gives this manager a certificate: the one it has while that is good, else a new one signed here. Its node object is
 * created or brought up to date either way. Waits for the cluster object. Call it again at `renewAtMs`.
 */
export async function ensureManagerCertificate(
  env: Environment,
  authority: CertificateAuthority,
  identity: ManagerIdentity | null,
  facts: ManagerFacts,
  signal?: AbortSignal,
): Promise<ManagerCertificate> {
  const cluster = await whenCluster(env, signal);
  const decoder = new TextDecoder();
  const rootPem = decoder.decode(cluster.rootCa?.caCert);
  const old = kept(env, authority, cluster, rootPem, identity);
  let csr = env.store.get("node", env.managerId)?.certificate?.csr ?? new Uint8Array();
  let result = old;
  if (result === null) {
    const { keyPem, csrPem } = await authority.createKeyAndCsr();
    const certificatePem = await authority.issue({
      csrPem,
      rootCertificatePem: rootPem,
      rootKeyPem: decoder.decode(cluster.rootCa?.caKey),
      nodeId: env.managerId,
      role: "swarm-manager",
      organization: cluster.id,
      validitySeconds: validitySecondsOf(cluster),
      nowMs: env.clock.now(),
    });
    csr = text.encode(csrPem);
    const read = authority.describeCertificate(certificatePem, rootPem);
    if (read.kind === "malformed") throw new Error(`the certificate just signed cannot be read: ${read.reason}`);
    const renewAtMs = authority.renewalInstant(read, env.random.next());
    result = { certificatePem, keyPem, rootPem, organization: cluster.id, renewAtMs, isNew: true };
  }
  await writeManagerNode(env, authority, result, csr, facts);
  return result;
}

async function writeManagerNode(
  env: Environment,
  authority: CertificateAuthority,
  { certificatePem, rootPem }: ManagerCertificate,
  csr: Uint8Array,
  facts: ManagerFacts,
): Promise<void> {
  const read = authority.describeCertificate(certificatePem, rootPem);
  const tlsInfo = NodeTLSInfo.create({
    trustRoot: text.encode(rootPem),
    ...(read.kind === "certificate"
      ? {
          certIssuerSubject: read.issuerSubjectDer,
          certIssuerPublicKey: read.issuerPublicKeyDer ?? new Uint8Array(),
        }
      : {}),
  });
  const fields: Partial<Node> = {
    description: NodeDescription.create({
      hostname: facts.hostname,
      platform: Platform.create({ architecture: facts.architecture, os: facts.os }),
      engine: EngineDescription.create({ engineVersion: facts.version }),
      tlsInfo,
    }),
    status: NodeStatus.create({ state: NodeStatus_State.READY, addr: hostOf(facts.advertise) }),
    certificate: Certificate.create({
      role: NodeRole.MANAGER,
      csr,
      cn: env.managerId,
      status: IssuanceStatus.create({ state: IssuanceStatus_State.ISSUED }),
      certificate: text.encode(certificatePem),
    }),
  };
  await transact(env, untraced, () => {
    const before = env.store.get("node", env.managerId);
    return before === undefined
      ? [creation("node", Node.patch(bareManagerNode(env, facts.advertise, clusterOf(env)), fields))]
      : [replacement("node", Node.patch(before, fields))];
  });
}
