/** Names of policy objects on the command line, and their JSON. */
import {
  isPolicyKind,
  policyKinds,
  readPolicyObject,
  type PolicyKind,
  type PolicyObject,
} from "../../machines/policy/objects.ts";
import { HostEndpoint, NetworkPolicy, NetworkProfile, Tier, type Resource } from "../../proto/gen/messages.ts";
import { notThere, UserError } from "../../lib/user-error.ts";

/** Referenced kinds first. */
export const kindOrder = Object.keys(policyKinds) as PolicyKind[];

export function nameOf(resource: Resource): string {
  const name = resource.annotations?.name ?? "";
  return name.startsWith(`${resource.kind}.`) ? name.slice(resource.kind.length + 1) : name;
}

export function objectJson(resource: Resource): Record<string, unknown> {
  const of = readPolicyObject(resource);
  return { kind: resource.kind, ...(of === null ? {} : { object: plain(of) }) };
}

function plain(of: PolicyObject): Record<string, unknown> {
  switch (of.kind) {
    case "NetworkPolicy":
      return NetworkPolicy.toJson(of.object);
    case "NetworkProfile":
      return NetworkProfile.toJson(of.object);
    case "HostEndpoint":
      return HostEndpoint.toJson(of.object);
    case "Tier":
      return Tier.toJson(of.object);
  }
}

/** `KIND/NAME`, the name of a policy, or any unique name. Throws UserError. */
export function findObject(resources: readonly Resource[], operand: string): Resource {
  const slash = operand.indexOf("/");
  const [kind, name] = slash < 0 ? ["", operand] : [operand.slice(0, slash), operand.slice(slash + 1)];
  if (kind !== "" && !isPolicyKind(kind))
    throw new UserError(`unknown kind "${kind}": expected one of ${kindOrder.join(", ")}`);
  const named = resources.filter((each) => nameOf(each) === name && (kind === "" || each.kind === kind));
  const found = named.length === 1 ? named[0] : named.find((each) => each.kind === "NetworkPolicy");
  if (found !== undefined) return found;
  if (named.length === 0) throw notThere("policy", operand);
  throw new UserError(`${operand} is ambiguous: ${named.map((each) => `${each.kind}/${name}`).join(", ")}`);
}
