/** Whether a cluster volume may be, change and go. */
import { Annotations, VolumeSpec, type Volume } from "../../proto/gen/messages.ts";
import { checkNameGiven } from "../names.ts";
import { invalid, refuse, type Refusal } from "../refusal.ts";
import { isSameMessage } from "../same-message.ts";

export function checkVolumeSpec(spec: VolumeSpec | null, hasSecret: (id: string) => boolean): Refusal | null {
  if (spec === null) return invalid("invalid argument");
  const name = checkNameGiven(spec.annotations);
  if (name !== null) return name;
  if ((spec.driver?.name ?? "") === "") return invalid("driver must be specified");
  if (spec.accessMode === null) return invalid("AccessMode must not be nil");
  if (spec.accessMode.block === null && spec.accessMode.mount === null) {
    return invalid("volume AccessMode must specify either Mount or Block access type");
  }
  const missing = spec.secrets.map(({ secret }) => secret).filter((id) => !hasSecret(id));
  if (missing.length > 0) return invalid(`secret${missing.length > 1 ? "s" : ""} not found: ${missing.join(", ")}`);
  return null;
}

/** The spec without what an update may change. */
function fixedPart(spec: VolumeSpec): VolumeSpec {
  const annotations = Annotations.create({ name: spec.annotations?.name ?? "" });
  return VolumeSpec.patch(spec, { annotations, availability: 0 });
}

export function checkVolumeUpdate(stored: Volume, spec: VolumeSpec): Refusal | null {
  if (stored.spec === null || isSameMessage(fixedPart(stored.spec), fixedPart(spec))) return null;
  return invalid("only updates to Labels and Availability are allowed");
}

export function checkVolumeRemoval(volume: Volume, force: boolean): Refusal | null {
  return force || volume.publishStatus.length === 0 ? null : refuse("failed-precondition", "volume is still in use");
}
