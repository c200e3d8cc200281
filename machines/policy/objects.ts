/** Policy objects in the store: payloads of resources whose kind is the message's name. */
import {
  Any,
  HostEndpoint,
  NetworkPolicy,
  NetworkProfile,
  Tier,
  type PolicyOrder,
  type Resource,
} from "../../proto/gen/messages.ts";

export type PolicyObject =
  | { readonly kind: "NetworkPolicy"; readonly object: NetworkPolicy }
  | { readonly kind: "NetworkProfile"; readonly object: NetworkProfile }
  | { readonly kind: "HostEndpoint"; readonly object: HostEndpoint }
  | { readonly kind: "Tier"; readonly object: Tier };

export type PolicyKind = PolicyObject["kind"];

/** Descriptions by kind, in the order of application: objects come before those that refer to them. */
export const policyKinds: Readonly<Record<PolicyKind, string>> = {
  Tier: "Tiers of network policies, evaluated in order.",
  NetworkProfile: "Rules for traffic that no network policy decides, named by services.",
  HostEndpoint: "Interfaces of nodes that network policies protect.",
  NetworkPolicy: "Rules for the traffic of the endpoints that a selector chooses.",
};

/** Kind of the Resource with a node's report about its dataplane; its id is the node's. */
export const reportKind = "muster.dataplane";

/** The tier of policies that name none, and its order if no object defines it. */
export const defaultTier = "default";
export const defaultTierOrder = 1_000_000;

const typePrefix = "type.googleapis.com/muster.v1.";

export function isPolicyKind(kind: string): kind is PolicyKind {
  return Object.hasOwn(policyKinds, kind);
}

export function resourceNameOf(kind: PolicyKind, name: string): string {
  return `${kind}.${name}`;
}

export function encodePolicyObject(of: PolicyObject): Any {
  const type_url = typePrefix + of.kind;
  switch (of.kind) {
    case "NetworkPolicy":
      return Any.create({ type_url, value: NetworkPolicy.encode(of.object) });
    case "NetworkProfile":
      return Any.create({ type_url, value: NetworkProfile.encode(of.object) });
    case "HostEndpoint":
      return Any.create({ type_url, value: HostEndpoint.encode(of.object) });
    case "Tier":
      return Any.create({ type_url, value: Tier.encode(of.object) });
  }
}

/** Null if it is not a policy object, or cannot be decoded. */
export function readPolicyObject({ kind, payload }: Pick<Resource, "kind" | "payload">): PolicyObject | null {
  if (!isPolicyKind(kind) || payload === null || payload.type_url !== typePrefix + kind) return null;
  try {
    switch (kind) {
      case "NetworkPolicy":
        return { kind, object: NetworkPolicy.decode(payload.value) };
      case "NetworkProfile":
        return { kind, object: NetworkProfile.decode(payload.value) };
      case "HostEndpoint":
        return { kind, object: HostEndpoint.decode(payload.value) };
      case "Tier":
        return { kind, object: Tier.decode(payload.value) };
    }
  } catch {
    return null;
  }
}

/** Objects without an order come last. */
export function orderOf(order: PolicyOrder | null): number {
  return order?.value ?? Number.POSITIVE_INFINITY;
}

/** By order, then by name. */
export function compareOrder(
  a: { readonly order: number; readonly name: string },
  b: { readonly order: number; readonly name: string },
): number {
  if (a.order !== b.order) return a.order < b.order ? -1 : 1;
  return a.name < b.name ? -1 : a.name > b.name ? 1 : 0;
}
