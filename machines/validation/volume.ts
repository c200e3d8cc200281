/** Checks of cluster volumes before they are created, updated and removed: SwarmKit's rules, in its order and words. */
import { Annotations, VolumeSpec, type Version, type Volume } from "../../proto/gen/messages.ts";
import { checkNameGiven } from "../names.ts";
import { invalid, refuse, type Refusal } from "../refusal.ts";
import { isSameMessage } from "../same-message.ts";

export function checkVolumeSpec(spec: VolumeSpec | null, hasSecret: (id: string) => boolean): Refusal | null {
  if (spec === null) return invalid("spec must not be nil");
  if ((spec.driver?.name ?? "") === "") return invalid("driver must be specified");
  const name = checkNameGiven(spec.annotations);
  if (name !== null) return name;
  if (spec.accessMode === null) return invalid("AccessMode must not be nil");
  if (spec.accessMode.block === null && spec.accessMode.mount === null) {
    return invalid("Volume AccessMode must specify either Mount or Block access type");
  }
  const missing = spec.secrets.map(({ secret }) => secret).filter((id) => !hasSecret(id));
  if (missing.length > 0) return invalid(`secret${missing.length > 1 ? "s" : ""} not found: ${missing.join(", ")}`);
  return null;
}

export function checkVolumeUpdateRequest(id: string, spec: VolumeSpec | null, version: Version | null): Refusal | null {
  if (id === "") return invalid("VolumeID must not be empty");
  if (spec === null) return invalid("Spec must not be empty");
  return version === null ? invalid("VolumeVersion must not be empty") : null;
}

/** The parts that cannot change, each with a function that returns a spec of that part alone. */
const fixedParts: Readonly<Record<string, (spec: VolumeSpec) => Partial<VolumeSpec>>> = {
  Name: ({ annotations }) => ({ annotations: Annotations.create({ name: annotations?.name ?? "" }) }),
  Group: ({ group }) => ({ group }),
  AccessibilityRequirements: ({ AccessibilityRequirements }) => ({ AccessibilityRequirements }),
  Driver: ({ driver }) => ({ driver }),
  AccessMode: ({ accessMode }) => ({ accessMode }),
  Secrets: ({ secrets }) => ({ secrets }),
  CapacityRange: ({ capacityRange }) => ({ capacityRange }),
};

/** Only labels and availability may change. */
export function checkVolumeUpdate(stored: Volume, spec: VolumeSpec): Refusal | null {
  const before = stored.spec ?? VolumeSpec.create();
  for (const [name, partOf] of Object.entries(fixedParts)) {
    if (!isSameMessage(VolumeSpec.create(partOf(before)), VolumeSpec.create(partOf(spec))))
      return invalid(`${name} cannot be updated`);
  }
  return null;
}

export function checkVolumeRemoval(volume: Volume, force: boolean): Refusal | null {
  return force || volume.publishStatus.length === 0 ? null : refuse("failed-precondition", "volume is still in use");
}
