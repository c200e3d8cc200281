/** A new cluster: SwarmKit's defaults, its own root, both join tokens and complete rings of network keys. */
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
import { withRotatedKeys } from "../keys/key-rotation.machine.ts";
import { clusterName } from "../names.ts";
import type { NetworkDefaults } from "../allocation/network-defaults.ts";

/** SwarmKit's: number of ended tasks kept per slot, and seconds between a node's heartbeats. */
const taskHistory = 5;
const heartbeatSeconds = 5;

interface ClusterMaterial {
  readonly id: string;
  readonly rootPem: Uint8Array;
  readonly rootKeyPem: Uint8Array;
  /** `sha256:` and the hex digest of the root's PEM. */
  readonly rootHash: string;
  readonly workerToken: string;
  readonly managerToken: string;
  readonly networks: NetworkDefaults;
  /** Returns a new network key on each call. */
  readonly networkKey: () => Uint8Array;
}

function defaultSpec(): ClusterSpec {
  return ClusterSpec.create({
    annotations: Annotations.create({ name: clusterName }),
    orchestration: OrchestrationConfig.create({ taskHistoryRetentionLimit: taskHistory }),
    // Shown for tools that read them; the log does not use Raft.
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
