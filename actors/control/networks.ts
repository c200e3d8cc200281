/**
 * Control's network methods. The allocator assigns addresses; a subnet or id that is already in use is refused here. As in
 * SwarmKit, networks that every node has by default are listed too: callers resolve names by the list, and lists for people
 * leave them out.
 */
import { matchesCommon } from "../../machines/list-filters.ts";
import {
  checkSingleIngress,
  checkNetworkUnused,
  checkNetworkRemoval,
  checkNetworkConflicts,
  checkNetworkSpec,
} from "../../machines/validation/network.ts";
import { invalid, refuse } from "../../machines/refusal.ts";
import {
  CreateNetworkResponse,
  GetNetworkResponse,
  ListNetworksResponse,
  Network,
  NodeStatus_State,
  RemoveNetworkResponse,
} from "../../proto/gen/messages.ts";
import { newId } from "../../runtime/ids.ts";
import type { Environment } from "../environment.ts";
import { demand, notFound, rejection } from "./answer.ts";
import type { ControlHandlers } from "./handlers.ts";
import { commit, creation, removal, stored } from "./write.ts";

type NetworkHandlers = Pick<ControlHandlers, "GetNetwork" | "ListNetworks" | "CreateNetwork" | "RemoveNetwork">;

export function networkHandlers(env: Environment): NetworkHandlers {
  const { store } = env;
  const random = env.random.fork("control/networks");

  function nameOf(network: Network): string {
    return network.spec?.annotations?.name ?? "";
  }

  /** By id, else by exact name. */
  function networkOf(name: string, id: string): Network {
    if (name === "" && id === "") throw rejection(invalid("invalid argument"));
    const named = name === "" ? undefined : store.byName("network", name);
    const network =
      id === "" ? (named !== undefined && nameOf(named) === name ? named : undefined) : store.get("network", id);
    if (network === undefined) throw notFound("network", id === "" ? name : id);
    return network;
  }

  return {
    GetNetwork({ name, networkId }) {
      return GetNetworkResponse.create({ network: networkOf(name, networkId) });
    },

    ListNetworks({ filters }) {
      const networks: Network[] = [];
      for (const network of store.all("network")) {
        const labels = network.spec?.annotations?.labels ?? {};
        if (filters === null || matchesCommon(filters, { id: network.id, name: nameOf(network), labels })) {
          networks.push(network);
        }
      }
      return ListNetworksResponse.create({ networks });
    },

    async CreateNetwork({ spec }, call) {
      demand(checkNetworkSpec(spec));
      if (spec === null) throw rejection(invalid("invalid argument"));
      demand(checkSingleIngress(spec, store.all("network")));
      const name = spec.annotations?.name ?? "";
      if (store.byName("network", name) !== undefined) {
        throw rejection(
          refuse("already-exists", `name conflicts with an existing object: network ${name} already exists`),
        );
      }
      const network = Network.create({ id: newId(random), spec });
      const [cluster] = store.all("cluster");
      demand(checkNetworkConflicts(network, store.all("network"), cluster));
      await commit(env, call, creation("network", network));
      return CreateNetworkResponse.create({ network: stored(env, "network", network) });
    },

    async RemoveNetwork({ name, networkId }, call) {
      const network = networkOf(name, networkId);
      const isLost = (id: string): boolean => store.get("node", id)?.status?.state === NodeStatus_State.DOWN;
      demand(checkNetworkRemoval(network, store.all("service"), (serviceId) => store.tasksByService(serviceId)));
      demand(checkNetworkUnused(network, store.all("task"), isLost));
      await commit(env, call, removal("network", network.id));
      return RemoveNetworkResponse.create({});
    },
  };
}
