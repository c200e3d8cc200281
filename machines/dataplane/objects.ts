/**
 * The wanted state of one node's dataplane driver, as objects that are added, changed and removed: the output of the policy
 * calculation and the driver's input, for every generation of the protocol.
 */
import type {
  HostEndpoint,
  HostEndpointID,
  IPAMPool,
  IPSetUpdate_IPSetType,
  Policy,
  PolicyID,
  Profile,
  ProfileID,
  WorkloadEndpoint,
  WorkloadEndpointID,
} from "../../proto/gen/felix.ts";

export type DataplaneObject =
  | {
      readonly kind: "ip-set";
      readonly id: string;
      readonly type: IPSetUpdate_IPSetType;
      /** Addresses of both families, prefixes, or `ADDRESS,PROTOCOL:PORT`, by the type. */
      readonly members: readonly string[];
    }
  | { readonly kind: "policy"; readonly id: PolicyID; readonly policy: Policy }
  | { readonly kind: "profile"; readonly id: ProfileID; readonly profile: Profile }
  | { readonly kind: "workload"; readonly id: WorkloadEndpointID; readonly endpoint: WorkloadEndpoint }
  | { readonly kind: "host"; readonly id: HostEndpointID; readonly endpoint: HostEndpoint }
  | { readonly kind: "node"; readonly hostname: string; readonly ipv4Addr: string }
  | { readonly kind: "pool"; readonly id: string; readonly pool: IPAMPool };

/** An object's kind and id: what its removal needs. */
export type DataplaneRef =
  | { readonly kind: "ip-set" | "pool"; readonly id: string }
  | { readonly kind: "policy"; readonly id: PolicyID }
  | { readonly kind: "profile"; readonly id: ProfileID }
  | { readonly kind: "workload"; readonly id: WorkloadEndpointID }
  | { readonly kind: "host"; readonly id: HostEndpointID }
  | { readonly kind: "node"; readonly hostname: string };

export type DataplaneDelta =
  /** Adds the object, or replaces the one with its id. */
  | { readonly kind: "put"; readonly object: DataplaneObject }
  /** For a set that was put; no member is in both lists. */
  | {
      readonly kind: "members";
      readonly id: string;
      readonly added: readonly string[];
      readonly removed: readonly string[];
    }
  | { readonly kind: "removed"; readonly ref: DataplaneRef };

export function keyOf(ref: DataplaneRef): string {
  switch (ref.kind) {
    case "ip-set":
    case "pool":
      return `${ref.kind} ${ref.id}`;
    case "policy":
      return `policy ${ref.id.tier}/${ref.id.name}`;
    case "profile":
      return `profile ${ref.id.name}`;
    case "workload":
      return ["workload", ref.id.orchestratorId, ref.id.workloadId, ref.id.endpointId].join(" ");
    case "host":
      return `host ${ref.id.endpointId}`;
    case "node":
      return `node ${ref.hostname}`;
  }
}
