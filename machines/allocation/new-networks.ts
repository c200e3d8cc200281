/** The networks that a cluster has without being asked: the ingress network, and those that exist on each node by themselves. */
import { Annotations, Driver, IPAMOptions, Network, NetworkSpec } from "../../proto/gen/messages.ts";

/** Says that a network is one of each node's own, known to the cluster only so that services can name it. */
export const predefinedLabel = "com.docker.swarm.predefined";
/** Names of Docker's own networks that services may use; each is also the name of its driver. */
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
