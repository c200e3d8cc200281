/** The cluster in Docker's API format: `ClusterInfo` of `GET /info`, and of `GET /swarm` without its tokens. */
import { ExternalCA_CAProtocol, type CAConfig, type Cluster, type ClusterSpec } from "../../proto/gen/messages.ts";
import { issuerName } from "../pki/index.ts";
import {
  base64,
  driverObject,
  enumWord,
  head,
  ifThere,
  mapOf,
  mapUnlessEmpty,
  nanosOf,
  unlessEmpty,
  unlessNone,
  type DockerObject,
} from "./values.ts";

const text = new TextDecoder();

function caObject({ externalCas, forceRotate, nodeCertExpiry }: CAConfig): DockerObject {
  return {
    NodeCertExpiry: unlessEmpty(nodeCertExpiry === null ? 0 : nanosOf(nodeCertExpiry)),
    ExternalCAs: unlessNone(
      externalCas.map(({ caCert, options, protocol, url }) => ({
        Protocol: enumWord(ExternalCA_CAProtocol, protocol),
        URL: url,
        Options: mapUnlessEmpty(options),
        CACert: text.decode(caCert),
      })),
    ),
    ForceRotate: unlessEmpty(forceRotate),
  };
}

function specObject(spec: ClusterSpec): DockerObject {
  const { annotations, caConfig, dispatcher, encryptionConfig, orchestration, raft, taskDefaults } = spec;
  return {
    Name: unlessEmpty(annotations?.name ?? ""),
    Labels: mapOf(annotations?.labels),
    Orchestration: { TaskHistoryRetentionLimit: orchestration?.taskHistoryRetentionLimit },
    Raft: {
      SnapshotInterval: unlessEmpty(raft?.snapshotInterval ?? 0),
      KeepOldSnapshots: raft?.keepOldSnapshots,
      LogEntriesForSlowFollowers: unlessEmpty(raft?.logEntriesForSlowFollowers ?? 0),
      ElectionTick: raft?.electionTick ?? 0,
      HeartbeatTick: raft?.heartbeatTick ?? 0,
    },
    Dispatcher: { HeartbeatPeriod: unlessEmpty(ifThere(dispatcher?.heartbeatPeriod, nanosOf) ?? 0) },
    CAConfig: ifThere(caConfig, caObject) ?? {},
    TaskDefaults: { LogDriver: ifThere(taskDefaults?.logDriver, driverObject) },
    EncryptionConfig: { AutoLockManagers: encryptionConfig?.autoLockManagers ?? false },
  };
}

/** During a root rotation, like Docker, shows the new root, which nodes are compared with. */
export function clusterObject(cluster: Cluster): DockerObject {
  const { VXLANUDPPort, defaultAddressPool, rootCa, spec, subnetSize } = cluster;
  const root = text.decode(rootCa?.rootRotation?.caCert ?? rootCa?.caCert);
  const issuer = issuerName(root);
  return {
    ...head(cluster),
    Spec: ifThere(spec, specObject) ?? {},
    TLSInfo: {
      TrustRoot: unlessEmpty(root),
      CertIssuerSubject: ifThere(issuer?.subjectDer, base64),
      CertIssuerPublicKey: ifThere(issuer?.publicKeyDer, base64),
    },
    RootRotationInProgress: rootCa !== null && rootCa.rootRotation !== null,
    DefaultAddrPool: defaultAddressPool,
    SubnetSize: subnetSize,
    DataPathPort: VXLANUDPPort,
  };
}
