/** The bodies that create and update a cluster volume. */
import {
  CapacityRange,
  Topology,
  TopologyRequirement,
  VolumeAccessMode,
  VolumeAccessMode_BlockVolume,
  VolumeAccessMode_MountVolume,
  VolumeAccessMode_Scope as Scope,
  VolumeAccessMode_Sharing as Sharing,
  VolumeSecret,
  VolumeSpec,
  VolumeSpec_VolumeAvailability as Availability,
  Annotations,
  Driver,
} from "../../../proto/gen/messages.ts";
import { volumeAvailabilities, volumeScopes, volumeSharings } from "../../../lib/docker-objects/index.ts";
import { checked, integer, list, map, object, shape, text, texts, within, word, type Json } from "../shape.ts";

/** Like a stock engine, takes an unknown word for the first one. */
function wordOf<Value>(words: Readonly<Record<string, Value>>, first: Value): (given: string) => Value {
  return (given) => (Object.hasOwn(words, given) ? (words[given] as Value) : first);
}

const accessMode = shape("volume.AccessMode", VolumeAccessMode, {
  Scope: word("scope", "volume.Scope", wordOf(volumeScopes, Scope.SINGLE_NODE)),
  Sharing: word("sharing", "volume.SharingMode", wordOf(volumeSharings, Sharing.NONE)),
  BlockVolume: object("block", shape("volume.TypeBlock", VolumeAccessMode_BlockVolume, {})),
  MountVolume: object(
    "mount",
    shape("volume.TypeMount", VolumeAccessMode_MountVolume, {
      FsType: text("fsType"),
      MountFlags: texts("mountFlags"),
    }),
  ),
});

const topology = shape("volume.Topology", Topology, { Segments: map("segments") });

const clusterVolumeSpec = shape("volume.ClusterVolumeSpec", VolumeSpec, {
  Group: text("group"),
  AccessMode: object("accessMode", accessMode),
  AccessibilityRequirements: object(
    "AccessibilityRequirements",
    shape("volume.TopologyRequirement", TopologyRequirement, {
      Requisite: list("requisite", topology),
      Preferred: list("preferred", topology),
    }),
  ),
  CapacityRange: object(
    "capacityRange",
    shape("volume.CapacityRange", CapacityRange, {
      RequiredBytes: integer("requiredBytes", "int64"),
      LimitBytes: integer("limitBytes", "int64"),
    }),
  ),
  Secrets: list("secrets", shape("volume.Secret", VolumeSecret, { Key: text("key"), Secret: text("secret") })),
  Availability: word("availability", "volume.Availability", wordOf(volumeAvailabilities, Availability.ACTIVE)),
});

/** Reads the fields around `ClusterVolumeSpec`; `clusterVolumeOf` adds those within it. */
export const volumeBody = shape("volume.CreateOptions", VolumeSpec, {
  Name: within("annotations", Annotations, text("name")),
  Labels: within("annotations", Annotations, map("labels")),
  Driver: within("driver", Driver, text("name")),
  DriverOpts: within("driver", Driver, map("options")),
  ClusterVolumeSpec: checked(object("clusterVolumeSpec", clusterVolumeSpec)),
});

/** Null for a volume of one engine. */
export function clusterVolumeOf(given: Json): VolumeSpec | null {
  const cluster = (given["ClusterVolumeSpec"] ?? null) as Json | null;
  if (cluster === null) return null;
  const { annotations, driver } = volumeBody.read(given);
  return VolumeSpec.patch(clusterVolumeSpec.read(cluster), {
    annotations: annotations ?? Annotations.create({}),
    driver: driver ?? Driver.create({}),
  });
}

export const volumeUpdateBody = shape("volume.UpdateOptions", VolumeSpec, {
  Spec: checked(object("spec", clusterVolumeSpec)),
});

/** A stock engine changes nothing else. Null if the body does not name one that exists. */
export function availabilityOf(given: Json): Availability | null {
  const named = ((given["Spec"] ?? {}) as Json)["Availability"];
  return Object.entries(volumeAvailabilities).find(([word]) => word === named)?.[1] ?? null;
}
