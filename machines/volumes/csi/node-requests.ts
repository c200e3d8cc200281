/** An agent's CSI requests to the storage plugin on its node. */
import {
  CsiNodePublishVolumeRequest,
  CsiNodeStageVolumeRequest,
  CsiNodeUnpublishVolumeRequest,
  CsiNodeUnstageVolumeRequest,
  NodeCSIInfo,
  Topology,
  VolumeAccessMode_Sharing as Sharing,
  type VolumeAssignment,
} from "../../../proto/gen/messages.ts";
import type { PluginFacts } from "../csi-plugin.machine.ts";
import { capabilityOf, type Secrets } from "./requests.ts";

/** Absolute paths on the node. */
export interface VolumePlaces {
  /** A directory that exists. */
  readonly staging: string;
  /** Created by the plugin in a directory that exists. */
  readonly target: string;
}

function capability({ accessMode }: VolumeAssignment) {
  return accessMode === null ? null : capabilityOf(accessMode);
}

export function stageRequest(volume: VolumeAssignment, { staging }: VolumePlaces, secrets: Secrets) {
  return CsiNodeStageVolumeRequest.create({
    volumeId: volume.volumeId,
    publishContext: volume.publishContext,
    stagingTargetPath: staging,
    volumeCapability: capability(volume),
    volumeContext: volume.volumeContext,
    secrets,
  });
}

export function nodePublishRequest(
  volume: VolumeAssignment,
  { staging, target }: VolumePlaces,
  isStaged: boolean,
  secrets: Secrets,
) {
  return CsiNodePublishVolumeRequest.create({
    volumeId: volume.volumeId,
    publishContext: volume.publishContext,
    stagingTargetPath: isStaged ? staging : "",
    targetPath: target,
    volumeCapability: capability(volume),
    readonly: volume.accessMode?.sharing === Sharing.READ_ONLY,
    volumeContext: volume.volumeContext,
    secrets,
  });
}

export function nodeUnpublishRequest({ volumeId }: VolumeAssignment, { target }: VolumePlaces) {
  return CsiNodeUnpublishVolumeRequest.create({ volumeId, targetPath: target });
}

export function unstageRequest({ volumeId }: VolumeAssignment, { staging }: VolumePlaces) {
  return CsiNodeUnstageVolumeRequest.create({ volumeId, stagingTargetPath: staging });
}

/** For the node's description; sorted by name, so that equal facts compare equal. */
export function csiInfoOf(plugins: ReadonlyMap<string, PluginFacts>): readonly NodeCSIInfo[] {
  return [...plugins]
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([pluginName, { nodeId, maxVolumesPerNode, topology }]) =>
      NodeCSIInfo.create({
        pluginName,
        nodeId,
        maxVolumesPerNode,
        accessibleTopology: topology === null ? null : Topology.create({ segments: topology }),
      }),
    );
}
