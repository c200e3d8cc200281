/** The cluster's objects of a stack, by the stack's label. */
import {
  ControlService,
  ListConfigsRequest,
  ListNetworksRequest,
  ListSecretsRequest,
  ListServicesRequest,
  ListServicesRequest_Filters,
  type Annotations,
  type Config,
  type Network,
  type Secret,
  type Service,
} from "../../proto/gen/messages.ts";
import type { ManagerClient } from "../manager-client.ts";
import { UserError } from "../../lib/user-error.ts";
import { stackLabel } from "./names.ts";

const methods = ControlService.methods;

interface Named {
  readonly id: string;
  readonly spec: { readonly annotations: Annotations | null } | null;
}

export function nameOf({ spec }: Named): string {
  return spec?.annotations?.name ?? "";
}

function stackOf({ spec }: Named): string | undefined {
  return spec?.annotations?.labels[stackLabel];
}

export interface Held {
  readonly services: readonly Service[];
  readonly networks: readonly Network[];
  readonly secrets: readonly Secret[];
  readonly configs: readonly Config[];
}

async function servicesOf(client: ManagerClient, stack: string): Promise<readonly Service[]> {
  const filters = ListServicesRequest_Filters.create({ labels: { [stackLabel]: stack } });
  const { services } = await client.call(methods.ListServices, ListServicesRequest.create({ filters }));
  return services.toSorted(byName);
}

/** The stack's services, and all other objects of the cluster, since their names are shared. */
export async function surroundings(client: ManagerClient, stack: string): Promise<Held> {
  const [services, { networks }, { secrets }, { configs }] = await Promise.all([
    servicesOf(client, stack),
    client.call(methods.ListNetworks, ListNetworksRequest.create({})),
    client.call(methods.ListSecrets, ListSecretsRequest.create({})),
    client.call(methods.ListConfigs, ListConfigsRequest.create({})),
  ]);
  return { services, networks, secrets, configs };
}

/** Only objects with the stack's label. */
export function ownOf(held: Held, stack: string): Held {
  const own = <Item extends Named>(items: readonly Item[]): readonly Item[] =>
    items.filter((item) => stackOf(item) === stack).toSorted(byName);
  return {
    services: own(held.services),
    networks: own(held.networks),
    secrets: own(held.secrets),
    configs: own(held.configs),
  };
}

function byName(a: Named, b: Named): number {
  return nameOf(a) < nameOf(b) ? -1 : nameOf(a) > nameOf(b) ? 1 : 0;
}

/** The services of a stack; throws UserError if there are none. */
export async function servicesFound(client: ManagerClient, stack: string): Promise<readonly Service[]> {
  const services = await servicesOf(client, stack);
  if (services.length === 0) throw new UserError(`nothing found in stack: ${stack}`);
  return services;
}
