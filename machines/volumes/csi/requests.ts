/** Converts between SwarmKit's volumes and the messages of the Container Storage Interface. */
import {
  CsiCapacityRange,
  CsiControllerPublishVolumeRequest,
  CsiControllerUnpublishVolumeRequest,
  CsiCreateVolumeRequest,
  CsiDeleteVolumeRequest,
  CsiTopology,
  CsiTopologyRequirement,
  CsiVolumeCapability,
  CsiVolumeCapability_AccessMode,
  CsiVolumeCapability_AccessMode_Mode as Mode,
  CsiVolumeCapability_BlockVolume,
  CsiVolumeCapability_MountVolume,
  Topology,
  VolumeAccessMode_Scope as Scope,
  VolumeAccessMode_Sharing as Sharing,
  VolumeInfo,
  type CsiVolume,
  type Volume,
  type VolumeAccessMode,
  type VolumeSecret,
} from "../../../proto/gen/messages.ts";
import { volumeName } from "./stages.ts";

export type Secrets = Readonly<Record<string, string>>;

/** The secrets' values by the plugin's keys. Removed secrets are omitted; the plugin reports them if it needs them. */
export function secretsOf(wanted: readonly VolumeSecret[], dataOf: (id: string) => Uint8Array | undefined): Secrets {
  const secrets: Record<string, string> = {};
  for (const { key, secret } of wanted) {
    const data = dataOf(secret);
    if (data !== undefined) secrets[key] = new TextDecoder().decode(data);
  }
  return secrets;
}

/**
 * CSI has no modes for sharing within a node, so the scheduler enforces these. A volume for several nodes but one task at a
 * time is multi-writer.
 */
function modeOf({ scope, sharing }: VolumeAccessMode): Mode {
  if (scope === Scope.SINGLE_NODE)
    return sharing === Sharing.READ_ONLY ? Mode.SINGLE_NODE_READER_ONLY : Mode.SINGLE_NODE_WRITER;
  switch (sharing) {
    case Sharing.READ_ONLY:
      return Mode.MULTI_NODE_READER_ONLY;
    case Sharing.ONE_WRITER:
      return Mode.MULTI_NODE_SINGLE_WRITER;
    case Sharing.NONE:
    case Sharing.ALL:
      return Mode.MULTI_NODE_MULTI_WRITER;
  }
}

export function capabilityOf(accessMode: VolumeAccessMode): CsiVolumeCapability {
  const { block, mount } = accessMode;
  return CsiVolumeCapability.create({
    accessMode: CsiVolumeCapability_AccessMode.create({ mode: modeOf(accessMode) }),
    block: block === null ? null : CsiVolumeCapability_BlockVolume.create(),
    mount:
      mount === null
        ? null
        : CsiVolumeCapability_MountVolume.create({ fsType: mount.fsType, mountFlags: mount.mountFlags }),
  });
}

function topology({ segments }: Topology): CsiTopology {
  return CsiTopology.create({ segments });
}

function capabilitiesOf({ spec }: Volume): CsiVolumeCapability[] {
  const accessMode = spec?.accessMode ?? null;
  return accessMode === null ? [] : [capabilityOf(accessMode)];
}

/** The name makes repeated requests idempotent. */
export function createRequest(volume: Volume, secrets: Secrets): CsiCreateVolumeRequest {
  const { spec } = volume;
  const range = spec?.capacityRange ?? null;
  const requirements = spec?.AccessibilityRequirements ?? null;
  return CsiCreateVolumeRequest.create({
    name: volumeName(volume),
    parameters: spec?.driver?.options ?? {},
    volumeCapabilities: capabilitiesOf(volume),
    secrets,
    capacityRange:
      range === null
        ? null
        : CsiCapacityRange.create({ requiredBytes: range.requiredBytes, limitBytes: range.limitBytes }),
    accessibilityRequirements:
      requirements === null
        ? null
        : CsiTopologyRequirement.create({
            requisite: requirements.requisite.map(topology),
            preferred: requirements.preferred.map(topology),
          }),
  });
}

export function infoOf(made: CsiVolume): VolumeInfo {
  return VolumeInfo.create({
    volumeId: made.volumeId,
    capacityBytes: made.capacityBytes,
    volumeContext: made.volumeContext,
    accessibleTopology: made.accessibleTopology.map(({ segments }) => Topology.create({ segments })),
  });
}

/** For a plugin without a controller: its volumes are identified by name. */
export function infoByName(volume: Volume): VolumeInfo {
  return VolumeInfo.create({ volumeId: volumeName(volume) });
}

export function deleteRequest(volume: Volume, secrets: Secrets): CsiDeleteVolumeRequest {
  return CsiDeleteVolumeRequest.create({ volumeId: volume.volumeInfo?.volumeId ?? "", secrets });
}

/** `nodeId` is the plugin's. */
export function publishRequest(
  volume: Volume,
  nodeId: string,
  canBeReadOnly: boolean,
  secrets: Secrets,
): CsiControllerPublishVolumeRequest {
  return CsiControllerPublishVolumeRequest.create({
    volumeId: volume.volumeInfo?.volumeId ?? "",
    nodeId,
    volumeCapability: capabilitiesOf(volume)[0] ?? null,
    readonly: canBeReadOnly && volume.spec?.accessMode?.sharing === Sharing.READ_ONLY,
    volumeContext: volume.volumeInfo?.volumeContext ?? {},
    secrets,
  });
}

/** `nodeId` is the plugin's; empty: every node. */
export function unpublishRequest(
  volume: Volume,
  nodeId: string,
  secrets: Secrets,
): CsiControllerUnpublishVolumeRequest {
  return CsiControllerUnpublishVolumeRequest.create({ volumeId: volume.volumeInfo?.volumeId ?? "", nodeId, secrets });
}

/** A plugin's message without the secrets that the plugin received, in case it repeats them. */
export function withoutSecrets(text: string, secrets: Secrets): string {
  let shown = text;
  for (const value of Object.values(secrets)) if (value !== "") shown = shown.replaceAll(value, "***");
  return shown;
}
