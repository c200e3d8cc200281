/** The networks that a cluster has by default: the ingress network, and the node-local ones. */
import { Annotations, Driver, IPAMOptions, Network, NetworkSpec } from "../../proto/gen/messages.ts";

/** Marks a node-local network, known to the cluster only so that services can refer to it. */
export const predefinedLabel = "com.docker.swarm.predefined";
/** Docker's own networks that services may use; each has the name of its driver. */
export const predefinedNames = ["bridge", "host"] as const;
const ingressName = "ingress";

/** The network over which each node reaches the published ports of all services. */
export function ingressNetwork(id: string): Network {
  return Network.create({
    id,
    spec: NetworkSpec.create({
      annotations: Annotations.create({ name: ingressName }),
      driverConfig: Driver.create({}),
      ipam: IPAMOptions.create({ driver: Driver.create({}) }),
      ingress: true,
    }),
  });
}

export function predefinedNetwork(id: string, name: (typeof predefinedNames)[number]): Network {
  return Network.create({
    id,
    spec: NetworkSpec.create({
      annotations: Annotations.create({ name, labels: { [predefinedLabel]: "true" } }),
      driverConfig: Driver.create({ name }),
    }),
  });
}

export function isPredefined(network: Network): boolean {
  return network.spec?.annotations?.labels[predefinedLabel] !== undefined;
}
