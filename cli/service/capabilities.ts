/** `--cap-add` and `--cap-drop`: changes to the engine's default capabilities of a container. */
import type { ContainerSpec } from "../../proto/gen/messages.ts";

type Capabilities = Pick<ContainerSpec, "capabilityAdd" | "capabilityDrop">;

const all = "ALL";
/** On update: clears what was added (or dropped) before. */
const reset = "RESET";

function normalized(names: readonly string[]): Set<string> {
  return new Set(
    names.map((name) => {
      const upper = name.trim().toUpperCase();
      return upper === all || upper === reset || upper.startsWith("CAP_") ? upper : `CAP_${upper}`;
    }),
  );
}

/** Sorted, so that the same set yields the same spec; ALL subsumes the others. */
function listed(names: ReadonlySet<string>): readonly string[] {
  return names.has(all) ? [all] : [...names].filter((name) => name !== reset).toSorted();
}

/** A capability that is both added and dropped is added. */
export function newCapabilities(add: readonly string[], drop: readonly string[]): Capabilities {
  const added = new Set(listed(normalized(add)));
  const dropped = new Set(listed(normalized(drop)));
  return {
    capabilityAdd: listed(added),
    capabilityDrop: listed(new Set([...dropped].filter((name) => !added.has(name)))),
  };
}

/**
 * Adding a dropped capability only removes it from the dropped ones, and vice versa: as with Docker's client, it takes a second
 * update to get from one to the other.
 */
export function capabilitiesAfter(before: Capabilities, add: readonly string[], drop: readonly string[]): Capabilities {
  const [toAdd, toDrop] = [normalized(add), normalized(drop)];
  const added = toAdd.has(reset) ? new Set<string>() : normalized(before.capabilityAdd);
  const dropped = toDrop.has(reset) ? new Set<string>() : normalized(before.capabilityDrop);
  for (const name of toDrop) {
    if (name === reset || toAdd.has(name)) continue;
    if (!added.delete(name)) dropped.add(name);
  }
  for (const name of toAdd) {
    if (name === reset) continue;
    if (!dropped.delete(name)) added.add(name);
  }
  return { capabilityAdd: listed(added), capabilityDrop: listed(dropped) };
}
