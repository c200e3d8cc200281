/** What a policy is called here, from what main calls it: by tier and name until Felix 3.31, by kind, namespace and name since. */
import type { PolicyID } from "../../proto/gen/felix.ts";
import { readTierEntry } from "../../proto/tier-policies.ts";

/** For a name in a tier's list that cannot be read: no policy has this key. */
export const unreadablePolicy = " unreadable";

/** An id of 3.32 and newer has no tier. No tier or name of an earlier one has a space. */
export function policyKey({
  kind,
  name,
  namespace,
  tier,
}: Pick<PolicyID, "kind" | "name" | "namespace" | "tier">): string {
  if (tier !== "") return `${tier}/${name}`;
  return `${kind} ${namespace === "" ? "" : `${namespace}/`}${name}`;
}

/** Null: a staged policy, which decides nothing (from 3.30 on by its name, `staged:…`; from 3.32 on by its kind). */
export function keyOfEntry(tier: string, bytes: Uint8Array): string | null {
  const entry = readTierEntry(bytes);
  if (entry.kind === "unreadable") return unreadablePolicy;
  if (entry.kind === "id") return entry.id.kind.startsWith("Staged") ? null : policyKey(entry.id);
  if (/^(?:[^/]*\/)?staged:/.test(entry.name)) return null;
  return policyKey({ tier, name: entry.name, namespace: "", kind: "" });
}
