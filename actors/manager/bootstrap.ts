/**
 * Creates a cluster and a manager's place in it: the leader of an empty log writes the cluster object and the ingress network,
 * each leader the networks that every node has by default, and every manager process its own node (`actors/certificates/manager-certificate.ts`).
 *
 * B1: there is one cluster object even if two first leaders write one: the second is refused by name.
 * B2: a manager's node is created drained: no task is ever placed on a process that runs none.
 */
import { networkKeyBytes } from "../../machines/keys/key-rotation.machine.ts";
import { networkDefaults, type NetworkDefaults } from "../../machines/allocation/network-defaults.ts";
import { newCluster } from "../../machines/manager/new-cluster.ts";
import { ingressNetwork, predefinedNames, predefinedNetwork } from "../../machines/allocation/new-networks.ts";
import {
  Format,
  Node,
  NodeRole,
  NodeSpec,
  NodeSpec_Availability,
  NodeSpec_Membership,
  NodeStatus,
  NodeStatus_State,
  type Cluster,
} from "../../proto/gen/messages.ts";
import { formatId, knownLevel, managersBelow } from "../../proto/format-level.ts";
import { newId } from "../../runtime/ids.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import type { CertificateAuthority } from "../certificates/ca-port.ts";
import { creation, commit } from "../control/write.ts";
import type { Environment } from "../environment.ts";

const text = new TextEncoder();
const untraced = { traceparent: "" };

export function clusterOf(env: Environment): Cluster | undefined {
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
      reject(new RpcError(Status.CANCELLED, "stopped before the cluster was created"));
    });
  });
}

export function bareManagerNode(env: Environment, advertise: string, cluster: Cluster | undefined): Node {
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
    VXLANUDPPort: cluster?.VXLANUDPPort || networkDefaults.dataPathPort,
  });
}

/** The host of `host:port` or `[v6]:port`. */
export function hostOf(address: string): string {
  return address.replace(/:\d+$/, "").replace(/^\[(.*)\]$/, "$1");
}

interface BootstrapOptions {
  /** host:port that workers reach this manager at. */
  readonly advertise: string;
  /** Networks of a new cluster, Swarm's defaults when absent; an existing cluster keeps its own. */
  readonly networks?: NetworkDefaults | undefined;
  /** Level of the log's format of a new cluster; the highest that this version knows when absent. */
  readonly level?: number;
}

/**
 * The leader's first duty: existing objects stay, and a removed ingress network is not created again. Rejects with RpcError
 * when a write failed.
 */
export async function bootstrapCluster(
  env: Environment,
  authority: CertificateAuthority,
  options: BootstrapOptions,
): Promise<void> {
  if (clusterOf(env) === undefined) await createCluster(env, authority, options);
  await createPredefinedNetworks(env);
}

/** A network of that name created in an earlier version is left alone. */
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
  const { level = knownLevel } = options;
  // Otherwise it is raised once every manager knows it.
  if (level > 1 && managersBelow(env.store.all("manager"), level).length === 0)
    operations.push(creation("format", Format.create({ id: formatId, level })));
  try {
    await commit(env, untraced, ...operations);
  } catch (error) {
    // B1
    if (error instanceof RpcError && error.code === Status.ALREADY_EXISTS) return;
    throw error;
  }
  env.telemetry.log.info({ cluster: cluster.id }, "created the cluster");
}
