/** A cluster volume in Docker's API format. */
import {
  VolumeAccessMode_Scope as Scope,
  VolumeAccessMode_Sharing as Sharing,
  VolumePublishStatus_State as PublishState,
  VolumeSpec_VolumeAvailability as Availability,
  type Topology,
  type Volume,
  type VolumeAccessMode,
} from "../../proto/gen/messages.ts";
import {
  enumWord,
  head,
  ifThere,
  mapOf,
  mapUnlessEmpty,
  timeText,
  unlessEmpty,
  unlessNone,
  type DockerObject,
} from "./values.ts";

const scopes: Readonly<Record<Scope, string>> = { [Scope.SINGLE_NODE]: "single", [Scope.MULTI_NODE]: "multi" };
const sharings: Readonly<Record<Sharing, string>> = {
  [Sharing.NONE]: "none",
  [Sharing.READ_ONLY]: "readonly",
  [Sharing.ONE_WRITER]: "onewriter",
  [Sharing.ALL]: "all",
};

function topologies(of: readonly Topology[]) {
  return unlessNone(of.map(({ segments }) => ({ Segments: mapOf(segments) })));
}

function accessModeObject({ block, mount, scope, sharing }: VolumeAccessMode, { spec }: Volume): DockerObject {
  return {
    Scope: scopes[scope],
    Sharing: sharings[sharing],
    MountVolume: ifThere(mount, ({ fsType, mountFlags }) => ({
      FsType: unlessEmpty(fsType),
      MountFlags: unlessNone(mountFlags),
    })),
    BlockVolume: ifThere(block, () => ({})),
    Secrets: unlessNone((spec?.secrets ?? []).map(({ key, secret }) => ({ Key: key, Secret: secret }))),
    AccessibilityRequirements: ifThere(spec?.AccessibilityRequirements, ({ preferred, requisite }) => ({
      Requisite: topologies(requisite),
      Preferred: topologies(preferred),
    })),
    CapacityRange: ifThere(spec?.capacityRange, ({ limitBytes, requiredBytes }) => ({
      RequiredBytes: requiredBytes,
      LimitBytes: limitBytes,
    })),
    Availability: enumWord(Availability, spec?.availability ?? Availability.ACTIVE),
  };
}

/** As in `docker volume inspect`. */
export function volumeObject(volume: Volume): DockerObject {
  const { meta, publishStatus, spec, volumeInfo } = volume;
  return {
    ClusterVolume: {
      ...head(volume),
      Spec: {
        Group: unlessEmpty(spec?.group ?? ""),
        AccessMode: ifThere(spec?.accessMode, (mode) => accessModeObject(mode, volume)),
      },
      PublishStatus: unlessNone(
        publishStatus.map(({ nodeId, publishContext, state }) => ({
          NodeID: nodeId,
          State: enumWord(PublishState, state),
          PublishContext: mapUnlessEmpty(publishContext),
        })),
      ),
      Info: ifThere(volumeInfo, ({ accessibleTopology, capacityBytes, volumeContext, volumeId }) => ({
        CapacityBytes: unlessEmpty(capacityBytes),
        VolumeContext: mapUnlessEmpty(volumeContext),
        VolumeID: unlessEmpty(volumeId),
        AccessibleTopology: topologies(accessibleTopology),
      })),
    },
    CreatedAt: timeText(meta?.createdAt ?? null),
    Driver: spec?.driver?.name ?? "",
    Labels: mapOf(spec?.annotations?.labels),
    Mountpoint: "",
    Name: spec?.annotations?.name ?? "",
    Options: mapOf(spec?.driver?.options),
    Scope: "global",
  };
}
