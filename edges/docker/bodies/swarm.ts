/** `swarm.Spec`, the settings of the cluster, and the bodies of requests that a manager checks, but cannot fulfil. */
import {
  CAConfig,
  ClusterSpec,
  DispatcherConfig,
  EncryptionConfig,
  ExternalCA,
  ExternalCA_CAProtocol,
  OrchestrationConfig,
  RaftConfig,
  TaskDefaults,
} from "../../../proto/gen/messages.ts";
import { badRequest } from "../failure.ts";
import { checked, duration, flag, integer, list, map, object, shape, text, texts, word, type Field } from "../shape.ts";
import { annotations, driver } from "./common.ts";

/** PEM as text, kept as bytes. */
function pem<Key extends string>(key: Key): Field<Key> {
  return word(key, "string", (given) => new TextEncoder().encode(given));
}

const externalCa = shape("swarm.ExternalCA", ExternalCA, {
  Protocol: word("protocol", "swarm.ExternalCAProtocol", (given) => {
    if (given.toUpperCase() === "CFSSL") return ExternalCA_CAProtocol.CFSSL;
    throw badRequest(`invalid protocol: ${JSON.stringify(given)}`);
  }),
  URL: text("url"),
  Options: map("options"),
  CACert: pem("caCert"),
});

export const swarmBody = shape("swarm.Spec", ClusterSpec, {
  ...annotations,
  Orchestration: object(
    "orchestration",
    shape("swarm.OrchestrationConfig", OrchestrationConfig, {
      TaskHistoryRetentionLimit: integer("taskHistoryRetentionLimit", "int64"),
    }),
  ),
  Raft: object(
    "raft",
    shape("swarm.RaftConfig", RaftConfig, {
      SnapshotInterval: integer("snapshotInterval", "uint64"),
      KeepOldSnapshots: integer("keepOldSnapshots", "uint64"),
      LogEntriesForSlowFollowers: integer("logEntriesForSlowFollowers", "uint64"),
      ElectionTick: integer("electionTick", "int"),
      HeartbeatTick: integer("heartbeatTick", "int"),
    }),
  ),
  Dispatcher: object(
    "dispatcher",
    shape("swarm.DispatcherConfig", DispatcherConfig, { HeartbeatPeriod: duration("heartbeatPeriod") }),
  ),
  CAConfig: object(
    "caConfig",
    shape("swarm.CAConfig", CAConfig, {
      NodeCertExpiry: duration("nodeCertExpiry"),
      ExternalCAs: list("externalCas", externalCa, "*"),
      SigningCACert: pem("signingCaCert"),
      SigningCAKey: pem("signingCaKey"),
      ForceRotate: integer("forceRotate", "uint64"),
    }),
  ),
  TaskDefaults: object(
    "taskDefaults",
    shape("swarm.TaskDefaults", TaskDefaults, { LogDriver: object("logDriver", driver) }),
  ),
  EncryptionConfig: object(
    "encryptionConfig",
    shape("swarm.EncryptionConfig", EncryptionConfig, { AutoLockManagers: flag("autoLockManagers") }),
  ),
});

const addresses = { ListenAddr: checked(text("listen")), AdvertiseAddr: checked(text("advertise")) } as const;
const availability = checked(word("availability", "swarm.NodeAvailability", (given) => given));

export const initBody = shape("swarm.InitRequest", ClusterSpec, {
  ...addresses,
  DataPathAddr: checked(text("dataPath")),
  DataPathPort: checked(integer("dataPathPort", "uint32")),
  ForceNewCluster: checked(flag("force")),
  Spec: checked(object("spec", swarmBody)),
  AutoLockManagers: checked(flag("autoLock")),
  Availability: availability,
  DefaultAddrPool: checked(texts("pools")),
  SubnetSize: checked(integer("subnetSize", "uint32")),
});

export const joinBody = shape("swarm.JoinRequest", ClusterSpec, {
  ...addresses,
  DataPathAddr: checked(text("dataPath")),
  RemoteAddrs: checked(texts("remotes")),
  JoinToken: checked(text("token")),
  Availability: availability,
});

export const unlockBody = shape("swarm.UnlockRequest", ClusterSpec, { UnlockKey: checked(text("key")) });
