/** Our key for main's name of a policy: tier and name until Felix 3.31, kind, namespace and name since 3.32. */
import type { PolicyID } from "../../proto/gen/felix.ts";
import { readTierEntry } from "../../proto/tier-policies.ts";

/** The key for an unreadable name in a tier's list: no policy has it. */
export const unreadablePolicy = " unreadable";

/** Ids since 3.32 have no tier. Earlier tiers and names contain no space. */
export function policyKey({
  kind,
  name,
  namespace,
  tier,
}: Pick<PolicyID, "kind" | "name" | "namespace" | "tier">): string {
  if (tier !== "") return `${tier}/${name}`;
  return `${kind} ${namespace === "" ? "" : `${namespace}/`}${name}`;
}

/** Null for a staged policy, which decides nothing (since 3.30 by its name, `staged:…`; since 3.32 by its kind). */
export function keyOfEntry(tier: string, bytes: Uint8Array): string | null {
  const entry = readTierEntry(bytes);
  if (entry.kind === "unreadable") return unreadablePolicy;
  if (entry.kind === "id") return entry.id.kind.startsWith("Staged") ? null : policyKey(entry.id);
  if (/^(?:[^/]*\/)?staged:/.test(entry.name)) return null;
  return policyKey({ tier, name: entry.name, namespace: "", kind: "" });
}
