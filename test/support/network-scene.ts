/** The networks of a node's tasks as a manager sends them, in short notation. Ids are names; the node itself is `one`. */
import type { NetworksState } from "../../machines/networks/state.ts";
import { AttachedNetwork, AttachedSubnet, NetworkNode, NetworkService, NetworkTask } from "../../proto/gen/messages.ts";

interface SceneService {
  readonly name: string;
  readonly network: string;
  /** Empty: it has none. */
  readonly virtualAddress: string;
  readonly aliases?: readonly string[];
}

export interface SceneTask {
  readonly id: string;
  readonly service: string;
  readonly slot: number;
  readonly network: string;
  readonly address: string;
  readonly node?: string;
  readonly ready?: boolean;
  readonly hostname?: string;
  readonly aliases?: readonly string[];
}

interface Scene {
  /** Subnets by name. */
  readonly networks: Readonly<Record<string, string>>;
  readonly services: readonly SceneService[];
  readonly tasks: readonly SceneTask[];
}

export function networkScene({ networks, services, tasks }: Scene): NetworksState {
  const byKey = <Each extends { readonly key: string }>(all: readonly Each[]): Map<string, Each> =>
    new Map(all.map((each) => [each.key, each]));
  const byId = <Each extends { readonly id: string }>(all: readonly Each[]): Map<string, Each> =>
    new Map(all.map((each) => [each.id, each]));
  return {
    networks: byId(
      Object.entries(networks).map(([name, subnet]) =>
        AttachedNetwork.create({ id: name, name, subnets: [AttachedSubnet.create({ subnet })] }),
      ),
    ),
    // Engines have no tunnels.
    nodes: byId(["one", "two", "engine"].map((id) => NetworkNode.create({ id, name: id, hasTunnel: id !== "engine" }))),
    services: byKey(
      services.map(({ aliases = [], name, network, virtualAddress }) =>
        NetworkService.create({
          key: `${name}/${network}`,
          networkId: network,
          serviceId: name,
          name,
          aliases: [...aliases],
          virtualAddress,
        }),
      ),
    ),
    tasks: byKey(
      tasks.map(({ address, aliases = [], hostname = "", id, network, node = "one", ready = true, service, slot }) =>
        NetworkTask.create({
          key: `${id}/${network}`,
          networkId: network,
          taskId: id,
          name: `${service}.${slot}.${id}`,
          serviceId: service,
          nodeId: node,
          addresses: [address],
          aliases: [...aliases],
          hostname,
          ready,
        }),
      ),
    ),
  };
}
