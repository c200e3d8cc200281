/**
 * The progress of a cluster volume, derived from the store alone, so that a new leader continues where the last one stopped.
 *
 * G1: `VolumeInfo` is written, without an id, before the first request to create the volume. So a removal knows whether the
 *     plugin may have something to delete.
 * G2: a volume is deleted at its plugin only when no node has it and no task uses it.
 * G3: a single-node volume is not published to a second node while the first has it, or may have it.
 */
import {
  VolumeAccessMode_Scope,
  VolumePublishStatus_State as PublishState,
  type Node,
  type Volume,
  type VolumePublishStatus,
} from "../../../proto/gen/messages.ts";

export type VolumeStage =
  /** The plugin has not been asked to create it. G1 */
  | "new"
  /** The plugin may have created it; its id is unknown. */
  | "asked"
  | "created"
  /** Marked for removal, but still used by nodes or tasks. G2 */
  | "unwanted-used"
  | "unwanted-new"
  | "unwanted-asked"
  | "unwanted-created"
  /** The object is removed. */
  | "gone";

/** `volume`: the stored object, undefined once removed; `hasUsers`: a task uses it. */
export function volumeStage(volume: Volume | undefined, hasUsers: boolean): VolumeStage {
  if (volume === undefined) return "gone";
  const { pendingDelete, publishStatus, volumeInfo } = volume;
  const made = volumeInfo === null ? "new" : volumeInfo.volumeId === "" ? "asked" : "created";
  if (!pendingDelete) return made;
  if (hasUsers || publishStatus.length > 0) return "unwanted-used";
  return `unwanted-${made}`;
}

export type PublicationStage =
  /** Another node has the single-node volume, or is ahead in the list. G3 */
  | "blocked"
  | "wanted"
  | "published"
  /** The node must unmount it. */
  | "leaving"
  /** As `leaving`, but the node was removed from the cluster and will never report. */
  | "abandoned"
  /** The node has unmounted it. */
  | "left"
  | "gone";

/** The stored status of the volume on that node; null if it is not listed for the node. */
export function publicationOf(volume: Volume | undefined, nodeId: string): VolumePublishStatus | null {
  return volume?.publishStatus.find((status) => status.nodeId === nodeId) ?? null;
}

/** `hasNode`: the node is still in the cluster. */
export function publicationStage(volume: Volume | undefined, nodeId: string, hasNode: boolean): PublicationStage {
  const status = publicationOf(volume, nodeId);
  if (volume === undefined || status === null) return "gone";
  switch (status.state) {
    case PublishState.PENDING_PUBLISH:
      return blockers(volume, nodeId).length > 0 ? "blocked" : "wanted";
    case PublishState.PUBLISHED:
      return "published";
    case PublishState.PENDING_NODE_UNPUBLISH:
      return hasNode ? "leaving" : "abandoned";
    case PublishState.PENDING_UNPUBLISH:
      return "left";
  }
}

/** The nodes that must unmount the volume before this one can have it: all others listed, except waiting ones listed later. */
export function blockers(volume: Volume, nodeId: string): readonly string[] {
  if (volume.spec?.accessMode?.scope !== VolumeAccessMode_Scope.SINGLE_NODE) return [];
  const own = volume.publishStatus.findIndex((status) => status.nodeId === nodeId);
  return volume.publishStatus
    .filter((status, at) => at !== own && (at < own || status.state !== PublishState.PENDING_PUBLISH))
    .map((status) => status.nodeId);
}

/** The plugin's id of the node; null if it has not reported one. */
export function pluginsNodeId(node: Node | undefined, driver: string): string | null {
  return node?.description?.csiInfo.find(({ pluginName }) => pluginName === driver)?.nodeId ?? null;
}

export function driverOf(volume: Volume): string {
  return volume.spec?.driver?.name ?? "";
}

export function volumeName(volume: Volume): string {
  return volume.spec?.annotations?.name ?? "";
}
