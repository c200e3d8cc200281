/** Read-modify-write of the cluster object, retried on a version conflict. */
import { ClusterSpec, ControlService, KeyRotation, UpdateClusterRequest, type Cluster } from "../proto/gen/messages.ts";
import { cluster, retryingConflicts, type ManagerClient } from "./manager-client.ts";

interface ClusterChange {
  /** Called again with the newest spec at each attempt. */
  readonly spec?: (before: ClusterSpec) => ClusterSpec;
  readonly rotation?: KeyRotation;
}

/** Returns the cluster before and after the change. */
export async function updateCluster(
  client: ManagerClient,
  { spec = (before) => before, rotation }: ClusterChange,
): Promise<{ readonly before: Cluster; readonly after: Cluster }> {
  return retryingConflicts(async () => {
    const before = await cluster(client);
    const { cluster: after } = await client.call(
      ControlService.methods.UpdateCluster,
      UpdateClusterRequest.create({
        clusterId: before.id,
        clusterVersion: before.meta?.version ?? null,
        spec: spec(before.spec ?? ClusterSpec.create({})),
        rotation: rotation ?? KeyRotation.create({}),
      }),
    );
    return { before, after: after ?? before };
  });
}
