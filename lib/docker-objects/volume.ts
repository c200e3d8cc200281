/** A cluster volume in Docker's API format. */
import {
  VolumeAccessMode_Scope as Scope,
  VolumeAccessMode_Sharing as Sharing,
  VolumePublishStatus_State as PublishState,
  VolumeSpec_VolumeAvailability as Availability,
  type Timestamp,
  type Topology,
  type Volume,
  type VolumeAccessMode,
  type VolumeSpec,
} from "../../proto/gen/messages.ts";
import {
  head,
  ifThere,
  mapOf,
  mapUnlessEmpty,
  timeText,
  unlessEmpty,
  unlessNone,
  type DockerObject,
} from "./values.ts";

/** The words of `Scope`, `Sharing` and `Availability`: what clients may write, and what is shown. */
export const volumeScopes = { single: Scope.SINGLE_NODE, multi: Scope.MULTI_NODE } as const;
export const volumeSharings = {
  none: Sharing.NONE,
  readonly: Sharing.READ_ONLY,
  onewriter: Sharing.ONE_WRITER,
  all: Sharing.ALL,
} as const;
export const volumeAvailabilities = {
  active: Availability.ACTIVE,
  pause: Availability.PAUSE,
  drain: Availability.DRAIN,
} as const;

/** Empty for a value without a word. */
export function volumeWord(words: Readonly<Record<string, number>>, value: number): string {
  return Object.entries(words).find(([, each]) => each === value)?.[0] ?? "";
}

const publishStates: Readonly<Record<PublishState, string>> = {
  [PublishState.PENDING_PUBLISH]: "pending-publish",
  [PublishState.PUBLISHED]: "published",
  [PublishState.PENDING_NODE_UNPUBLISH]: "pending-node-unpublish",
  [PublishState.PENDING_UNPUBLISH]: "pending-controller-unpublish",
};

function topologies(of: readonly Topology[]) {
  return unlessNone(of.map(({ segments }) => ({ Segments: mapOf(segments) })));
}

function accessModeObject({ block, mount, scope, sharing }: VolumeAccessMode): DockerObject {
  return {
    Scope: volumeWord(volumeScopes, scope),
    Sharing: volumeWord(volumeSharings, sharing),
    MountVolume: ifThere(mount, ({ fsType, mountFlags }) => ({
      FsType: unlessEmpty(fsType),
      MountFlags: unlessNone(mountFlags),
    })),
    BlockVolume: ifThere(block, () => ({})),
  };
}

function specObject(spec: VolumeSpec | null): DockerObject {
  return {
    Group: unlessEmpty(spec?.group ?? ""),
    AccessMode: ifThere(spec?.accessMode, accessModeObject),
    AccessibilityRequirements: ifThere(spec?.AccessibilityRequirements, ({ preferred, requisite }) => ({
      Requisite: topologies(requisite),
      Preferred: topologies(preferred),
    })),
    CapacityRange: ifThere(spec?.capacityRange, ({ limitBytes, requiredBytes }) => ({
      RequiredBytes: requiredBytes,
      LimitBytes: limitBytes,
    })),
    Secrets: unlessNone((spec?.secrets ?? []).map(({ key, secret }) => ({ Key: key, Secret: secret }))),
    Availability: volumeWord(volumeAvailabilities, spec?.availability ?? Availability.ACTIVE),
  };
}

/** As Go prints a time. */
function goTime(time: Timestamp | null): string {
  return timeText(time).replace("T", " ").replace("Z", " +0000 UTC");
}

/** As in `docker volume inspect`: the types of Docker's Go client, which its OpenAPI document nests otherwise. */
export function volumeObject(volume: Volume): DockerObject {
  const { meta, publishStatus, spec, volumeInfo } = volume;
  return {
    ClusterVolume: {
      ...head(volume),
      Spec: specObject(spec),
      PublishStatus: unlessNone(
        publishStatus.map(({ nodeId, publishContext, state }) => ({
          NodeID: nodeId,
          State: publishStates[state],
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
    CreatedAt: goTime(meta?.createdAt ?? null),
    Driver: spec?.driver?.name ?? "",
    Labels: mapOf(spec?.annotations?.labels),
    Mountpoint: "",
    Name: spec?.annotations?.name ?? "",
    Options: mapOf(spec?.driver?.options),
    Scope: "global",
  };
}
