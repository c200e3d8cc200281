/**
 * How far a cluster volume has come, read from the store alone, so that a new leader goes on where the last one ended.
 *
 * G1: `VolumeInfo` is written, without an id, before a volume is first asked for at its plugin. So whoever removes a volume
 *     knows whether there may be anything to remove there.
 * G2: a volume is deleted at its plugin only once no node has it and no task was given it.
 * G3: a volume for one node is not published to a second one while the first has it, or may have it.
 */
import {
  VolumeAccessMode_Scope,
  VolumePublishStatus_State as PublishState,
  type Node,
  type Volume,
  type VolumePublishStatus,
} from "../../../proto/gen/messages.ts";

export type VolumeStage =
  /** Nobody has asked the plugin for it. G1 */
  | "new"
  /** The plugin may have made it, and its id is not known. */
  | "asked"
  | "created"
  /** To be removed, but nodes or tasks have it. G2 */
  | "unwanted-used"
  | "unwanted-new"
  | "unwanted-asked"
  | "unwanted-created"
  /** The object is gone. */
  | "gone";

/** `volume`: as the store has it, undefined once it is removed; `hasUsers`: a task was given it. */
export function volumeStage(volume: Volume | undefined, hasUsers: boolean): VolumeStage {
  if (volume === undefined) return "gone";
  const { pendingDelete, publishStatus, volumeInfo } = volume;
  const made = volumeInfo === null ? "new" : volumeInfo.volumeId === "" ? "asked" : "created";
  if (!pendingDelete) return made;
  if (hasUsers || publishStatus.length > 0) return "unwanted-used";
  return `unwanted-${made}`;
}

export type PublicationStage =
  /** Another node has the volume that only one may have, or was promised it before. G3 */
  | "blocked"
  | "wanted"
  | "published"
  /** The node is to give it up. */
  | "leaving"
  /** As `leaving`, but the node is no longer in the cluster and will never say so. */
  | "abandoned"
  /** The node has given it up. */
  | "left"
  | "gone";

/** What the store says of the volume on that node; null when it was not promised to it. */
export function publicationOf(volume: Volume | undefined, nodeId: string): VolumePublishStatus | null {
  return volume?.publishStatus.find((status) => status.nodeId === nodeId) ?? null;
}

/** `hasNode`: the node is still one of the cluster. */
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

/** The nodes that must give the volume up before this one can have it: the others listed, but those listed later that only wait. */
export function blockers(volume: Volume, nodeId: string): readonly string[] {
  if (volume.spec?.accessMode?.scope !== VolumeAccessMode_Scope.SINGLE_NODE) return [];
  const own = volume.publishStatus.findIndex((status) => status.nodeId === nodeId);
  return volume.publishStatus
    .filter((status, at) => at !== own && (at < own || status.state !== PublishState.PENDING_PUBLISH))
    .map((status) => status.nodeId);
}

/** What the plugin calls the node; null: it has not said. */
export function pluginsNodeId(node: Node | undefined, driver: string): string | null {
  return node?.description?.csiInfo.find(({ pluginName }) => pluginName === driver)?.nodeId ?? null;
}

export function driverOf(volume: Volume): string {
  return volume.spec?.driver?.name ?? "";
}

export function volumeName(volume: Volume): string {
  return volume.spec?.annotations?.name ?? "";
}
