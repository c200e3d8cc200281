/** Control's cluster methods: reads (without keys), changes of the spec, and rotation of join tokens and the unlock key. */
import { checkClusterSpec } from "../../machines/validation/cluster.ts";
import { matchesCommon } from "../../machines/list-filters.ts";
import { invalid } from "../../machines/refusal.ts";
import { redactedCluster, withoutSigningKey } from "../../machines/redaction.ts";
import { unlockKeyBytes, unlockKeysAfter } from "../../machines/keys/unlock-key.ts";
import {
  Cluster,
  GetClusterResponse,
  JoinTokens,
  ListClustersResponse,
  RootCA,
  UpdateClusterResponse,
  type KeyRotation,
} from "../../proto/gen/messages.ts";
import type { Environment } from "../environment.ts";
import { demand, demandGiven, notFound, rejection } from "./answer.ts";
import type { ControlHandlers, ControlSources } from "./handlers.ts";
import { noExternalCa } from "../../runtime/ports/external-ca.ts";
import { rootChanges } from "./root-ca.ts";
import { atVersion, commit, replacement, stored } from "./write.ts";

type ClusterHandlers = Pick<ControlHandlers, "GetCluster" | "ListClusters" | "UpdateCluster">;

export function clusterHandlers(env: Environment, sources: ControlSources): ClusterHandlers {
  const { authority } = sources;
  const { store } = env;
  const changedRoot = rootChanges(env, authority, sources.externalCa ?? noExternalCa);
  const random = env.random.fork("control/clusters");

  function clusterOf(id: string): Cluster {
    demandGiven(id);
    const cluster = store.get("cluster", id);
    if (cluster === undefined) throw notFound("cluster", id);
    return cluster;
  }

  /** New secrets for the tokens to rotate; the digest of the root stays. */
  function rotated(root: RootCA, rotation: KeyRotation): RootCA {
    const token = (): string => authority.makeJoinToken(root.caCert, random.bytes(authority.joinSecretBytes));
    const before = root.joinTokens ?? JoinTokens.create({});
    return RootCA.patch(root, {
      joinTokens: JoinTokens.patch(before, {
        ...(rotation.workerJoinToken ? { worker: token() } : {}),
        ...(rotation.managerJoinToken ? { manager: token() } : {}),
      }),
    });
  }

  return {
    GetCluster({ clusterId }) {
      return GetClusterResponse.create({ cluster: redactedCluster(clusterOf(clusterId)) });
    },

    ListClusters({ filters }) {
      const clusters: Cluster[] = [];
      for (const cluster of store.all("cluster")) {
        const { name = "", labels = {} } = cluster.spec?.annotations ?? {};
        if (filters === null || matchesCommon(filters, { id: cluster.id, name, labels })) {
          clusters.push(redactedCluster(cluster));
        }
      }
      return ListClustersResponse.create({ clusters });
    },

    async UpdateCluster({ clusterId, clusterVersion, spec, rotation }, call) {
      demandGiven(clusterId, clusterVersion, spec);
      if (clusterVersion === null || spec === null) throw rejection(invalid("invalid argument"));
      const before = clusterOf(clusterId);
      demand(checkClusterSpec(spec));
      const { rootCa } = before;
      const root = rootCa === null || spec.caConfig === null ? rootCa : await changedRoot(rootCa, spec.caConfig);
      const after = Cluster.patch(before, {
        spec: withoutSigningKey(spec),
        unlockKeys: unlockKeysAfter(before, spec, {
          rotates: rotation?.managerUnlockKey === true,
          draw: () => random.bytes(unlockKeyBytes),
        }),
        rootCa: rotation === null || root === null ? root : rotated(root, rotation),
      });
      await commit(env, call, replacement("cluster", atVersion("cluster", after, clusterVersion)));
      return UpdateClusterResponse.create({ cluster: redactedCluster(stored(env, "cluster", after)) });
    },
  };
}
