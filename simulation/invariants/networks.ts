/**
 * Invariants of allocated resources.
 *
 * S16: no two of the services, unfinished tasks and nodes have the same address.
 * S17: no two networks share addresses or a VXLAN id, and no two services a published port.
 * S18: at rest everything that can be allocated is allocated, and each node has an address in exactly the networks of its
 *      tasks and the ingress network.
 * S19: at rest the leader's allocator holds exactly what the store contains: nothing leaks.
 */
import {
  allocationProblem,
  defaultPoolsOf,
  isAllocated,
  isNodeLocal,
  vxlanIdsOf,
} from "../../machines/allocation/network.ts";
import { SubnetSpace } from "../../machines/allocation/subnets.ts";
import { parseCidr } from "../../lib/ip-address.ts";
import { isEnded, observedState } from "../../machines/task.ts";
import { PortConfig_PublishMode } from "../../proto/gen/messages.ts";
import type { Commit, Store } from "../../runtime/store/store.ts";

interface Held {
  readonly addresses: number;
  readonly subnets: number;
  readonly vxlanIds: number;
  readonly ports: number;
}

/** S16, S17; checks only relevant changes. */
export function checkNetworks(commit: Commit, store: Store): string | null {
  const concerns = commit.changes.some(({ action, object, old, table }) => {
    if (action === "remove") return false;
    if (table === "task") return object.networks.length > 0 && object.networks !== (old === null ? null : old.networks);
    if (table === "node") return object.attachments !== (old === null ? null : old.attachments);
    return table === "network" || table === "service";
  });
  const found = concerns ? heldIn(store) : null;
  return typeof found === "string" ? found : null;
}

/** The resources that the store contains, or what is wrong with them. */
function heldIn(store: Store): Held | string {
  const holders = new Map<string, string>();
  const networks = new Map([...store.all("network")].map((network) => [network.id, network]));
  const hold = (owner: string, networkId: string, address: string): string | null => {
    const other = holders.get(`${networkId} ${address}`);
    holders.set(`${networkId} ${address}`, owner);
    return other === undefined ? null : `S16: ${address} of network ${networkId} is held by ${other} and ${owner}`;
  };
  const ports = new Map<string, string>();
  for (const { id, endpoint } of store.all("service")) {
    for (const { networkId, addr } of endpoint?.virtualIps ?? []) {
      const problem = addr === "" || !networks.has(networkId) ? null : hold(`service ${id}`, networkId, addr);
      if (problem !== null) return problem;
    }
    for (const { protocol, publishedPort, publishMode } of endpoint?.ports ?? []) {
      if (publishMode !== PortConfig_PublishMode.INGRESS) continue;
      const key = `${protocol}/${publishedPort}`;
      if (ports.has(key)) return `S17: port ${key} is published by ${ports.get(key)} and ${id}`;
      ports.set(key, id);
    }
  }
  for (const task of store.all("task")) {
    if (isEnded(observedState(task))) continue;
    for (const { network, addresses } of task.networks) {
      if (network === null || addresses.length === 0) continue;
      networks.set(network.id, network);
      const problem = hold(`task ${task.id}`, network.id, addresses[0] ?? "");
      if (problem !== null) return problem;
    }
  }
  for (const node of store.all("node")) {
    for (const { network, addresses } of node.attachments) {
      if (network === null) continue;
      networks.set(network.id, network);
      const problem = hold(`node ${node.id}`, network.id, addresses[0] ?? "");
      if (problem !== null) return problem;
    }
  }
  const subnets = new SubnetSpace();
  const ids = new Map<number, string>();
  for (const network of networks.values()) {
    if (!isAllocated(network) || isNodeLocal(network)) continue;
    for (const { subnet } of network.ipam?.configs ?? []) {
      const prefix = parseCidr(subnet);
      if (prefix === null || !subnets.claim(network.id, prefix))
        return `S17: ${subnet} of ${network.id} is another's too`;
    }
    for (const id of vxlanIdsOf(network.driverState)) {
      if (ids.has(id)) return `S17: VXLAN id ${id} belongs to ${ids.get(id)} and ${network.id}`;
      ids.set(id, network.id);
    }
  }
  return { addresses: holders.size, subnets: subnets.count, vxlanIds: ids.size, ports: ports.size };
}

/** S18: why allocation is not at rest, or null. */
export function findUnallocated(store: Store): string | null {
  const [cluster] = store.all("cluster");
  for (const network of store.all("network")) {
    if (isAllocated(network)) continue;
    const problem = allocationProblem(network, store.all("network"), defaultPoolsOf(cluster));
    if (problem === "") return `S18: network ${network.id} could be allocated but is not`;
  }
  const ingress = [...store.all("network")].filter(({ spec }) => spec?.ingress === true);
  for (const node of store.all("node")) {
    const wanted = new Set(ingress.map(({ id }) => id));
    for (const task of store.tasksByNode(node.id)) {
      if (isEnded(observedState(task))) continue;
      for (const { network } of task.networks)
        if (network !== null && store.get("network", network.id)) wanted.add(network.id);
    }
    const has = new Set(node.attachments.map(({ network }) => network?.id ?? ""));
    if (has.size !== wanted.size || [...wanted].some((id) => !has.has(id)))
      return `S18: node ${node.id} has addresses in ${[...has].join(" ")}, but should have them in ${[...wanted].join(" ")}`;
  }
  return null;
}

/** S19: `held` reads the leader's gauge. */
export function findLost(store: Store, held: (kind: string) => number): string | null {
  const stored = heldIn(store);
  if (typeof stored === "string") return stored;
  for (const [kind, count] of Object.entries(stored) as [string, number][])
    if (held(kind) !== count) return `S19: the leader holds ${held(kind)} ${kind}, but ${count} are stored`;
  return null;
}
