/** A cluster as it begins: SwarmKit's defaults, a root of its own, both join tokens and full rings of network keys. */
import {
  Annotations,
  CAConfig,
  Cluster,
  ClusterSpec,
  DispatcherConfig,
  Duration,
  EncryptionConfig,
  JoinTokens,
  OrchestrationConfig,
  RaftConfig,
  RootCA,
  TaskDefaults,
} from "../../proto/gen/messages.ts";
import { certificateExpirySeconds } from "../certificates/issuance.ts";
import { withRotatedKeys } from "../keys/key-rotation.ts";
import { clusterName } from "../names.ts";
import type { NetworkDefaults } from "../allocation/network-defaults.ts";

/** SwarmKit's: ended tasks kept for each slot, and seconds between a node's heartbeats. */
const taskHistory = 5;
const heartbeatSeconds = 5;

export interface ClusterMaterial {
  readonly id: string;
  readonly rootPem: Uint8Array;
  readonly rootKeyPem: Uint8Array;
  /** `sha256:` and the digest of the root's PEM in hex. */
  readonly rootHash: string;
  readonly workerToken: string;
  readonly managerToken: string;
  readonly networks: NetworkDefaults;
  /** A fresh network key at each call. */
  readonly networkKey: () => Uint8Array;
}

function defaultSpec(): ClusterSpec {
  return ClusterSpec.create({
    annotations: Annotations.create({ name: clusterName }),
    orchestration: OrchestrationConfig.create({ taskHistoryRetentionLimit: taskHistory }),
    // Shown for tools that read them; the log is not raft's.
    raft: RaftConfig.create({
      snapshotInterval: 10_000,
      keepOldSnapshots: 0,
      logEntriesForSlowFollowers: 500,
      heartbeatTick: 1,
      electionTick: 10,
    }),
    dispatcher: DispatcherConfig.create({ heartbeatPeriod: Duration.create({ seconds: heartbeatSeconds }) }),
    caConfig: CAConfig.create({ nodeCertExpiry: Duration.create({ seconds: certificateExpirySeconds }) }),
    taskDefaults: TaskDefaults.create({}),
    encryptionConfig: EncryptionConfig.create({}),
  });
}

export function newCluster(material: ClusterMaterial): Cluster {
  const { addressPools, subnetLength, dataPathPort } = material.networks;
  const cluster = Cluster.create({
    id: material.id,
    spec: defaultSpec(),
    rootCa: RootCA.create({
      caKey: material.rootKeyPem,
      caCert: material.rootPem,
      caCertHash: material.rootHash,
      joinTokens: JoinTokens.create({ worker: material.workerToken, manager: material.managerToken }),
    }),
    defaultAddressPool: addressPools,
    subnetSize: subnetLength,
    VXLANUDPPort: dataPathPort,
  });
  return withRotatedKeys(cluster, material.networkKey);
}
