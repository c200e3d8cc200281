/** A service's entries in histories: in those of others, its references; in its own, the progress of its rollout. */
import { ResourceType, UpdateStatus_UpdateState, type Service } from "../../proto/gen/messages.ts";

/** Ids of the objects of that kind that the service uses. */
function referencesOf(kind: "secret" | "config" | "network", service: Service | null): ReadonlySet<string> {
  const spec = service?.spec ?? null;
  const container = spec?.task?.container ?? null;
  // The references of tasks that are not containers.
  const others = (type: ResourceType): string[] =>
    (spec?.task?.resourceReferences ?? [])
      .filter(({ resourceType }) => resourceType === type)
      .map(({ resourceId }) => resourceId);
  switch (kind) {
    case "secret":
      return new Set([...(container?.secrets ?? []).map(({ secretId }) => secretId), ...others(ResourceType.SECRET)]);
    case "config":
      return new Set([...(container?.configs ?? []).map(({ configId }) => configId), ...others(ResourceType.CONFIG)]);
    case "network":
      return new Set([...(spec?.task?.networks ?? []), ...(spec?.networks ?? [])].map(({ target }) => target));
  }
}

export function differentReferences(
  kind: "secret" | "config" | "network",
  old: Service | null,
  service: Service | null,
): { readonly begun: readonly string[]; readonly ended: readonly string[] } {
  if (old?.spec === service?.spec) return { begun: [], ended: [] };
  const [before, after] = [referencesOf(kind, old), referencesOf(kind, service)];
  return {
    begun: [...after].filter((id) => !before.has(id)),
    ended: [...before].filter((id) => !after.has(id)),
  };
}

/** Empty if there is no rollout. */
export function rolloutWord({ updateStatus }: Service): string {
  const state = updateStatus?.state;
  const found = Object.entries(UpdateStatus_UpdateState).find(([, each]) => each === state);
  const word = (found?.[0] ?? "").toLowerCase().replaceAll("_", " ");
  return word === "unknown" ? "" : word;
}
