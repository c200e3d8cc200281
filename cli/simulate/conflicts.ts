/**
 * Mistakes of plans that managers would refuse although each object is valid by itself: names, ports and subnets that are in use.
 * Found here, they have a place in a file, and nothing is run.
 */
import { checkNetworkConflicts, checkNetworkSpec } from "../../machines/validation/network.ts";
import { checkPortConflicts } from "../../machines/validation/service.ts";
import {
  Driver,
  IPAMConfig,
  IPAMOptions,
  Network,
  Service,
  type NetworkSpec,
  type ServiceSpec,
} from "../../proto/gen/messages.ts";

const nameOf = ({ annotations }: { readonly annotations: { readonly name: string } | null }): string =>
  annotations?.name ?? "";

/** Another name that managers take for the same: they ignore case. Undefined: there is none. */
export function sameName(name: string, others: Iterable<string>): string | undefined {
  for (const other of others) if (other.toLowerCase() === name.toLowerCase()) return other;
  return undefined;
}

/** Why the service cannot publish its ports beside the others; null: it can. */
export function portProblem(spec: ServiceSpec, others: Iterable<ServiceSpec>): string | null {
  const services: Service[] = [];
  for (const other of others)
    if (nameOf(other) !== nameOf(spec)) services.push(Service.create({ id: nameOf(other), spec: other }));
  const refusal = checkPortConflicts(spec, nameOf(spec), services);
  return refusal === null ? null : refusal.message.replace(/ \([^)]*\)/, "");
}

/** Why managers would not create the network after the others; null: they would. */
export function networkProblem(spec: NetworkSpec, others: readonly NetworkSpec[]): string | null {
  const name = nameOf(spec);
  const same = sameName(name, others.map(nameOf));
  if (same !== undefined) return `has the same name as '${same}' for managers, which ignore case`;
  const network = Network.create({ id: name, spec });
  const refusal = checkNetworkSpec(spec) ?? checkNetworkConflicts(network, others.map(allocated), undefined);
  return refusal?.message ?? null;
}

/** A network with the subnets that it asks for; it would have a gateway in each. */
function allocated(spec: NetworkSpec): Network {
  const configs = (spec.ipam?.configs ?? []).map((config) => IPAMConfig.patch(config, { gateway: config.subnet }));
  const ipam = IPAMOptions.create({ configs: configs.filter(({ subnet }) => subnet !== "") });
  return Network.create({ id: nameOf(spec), spec, driverState: spec.driverConfig ?? Driver.create({}), ipam });
}
