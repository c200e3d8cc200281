/**
 * Explains why a network is waiting, and why a node is waiting in its networks. Uses only stored objects, so any manager can
 * answer.
 */
import { Reason, type Cluster, type Network, type Node, type Service, type Task } from "../../proto/gen/messages.ts";
import { AddressSpace } from "../allocation/addresses.ts";
import {
  allocationProblem,
  defaultPoolsOf,
  driverOf,
  isAllocated,
  isNodeLocal,
  vxlanIdsOf,
} from "../allocation/network.ts";
import { keptForNodes, type NodesOfNetwork } from "../allocation/holders.ts";
import { isEnded, isWanted, observedState } from "../task.ts";
import { nameOf } from "../allocation/networks.ts";

interface NetworkView {
  readonly networks: Iterable<Network>;
  readonly services: Iterable<Service>;
  readonly tasks: Iterable<Task>;
  readonly nodes: Iterable<Node>;
  readonly cluster: Cluster | undefined;
}

export function explainNetwork(network: Network, view: NetworkView): readonly Reason[] {
  const since = network.meta?.createdAt ?? null;
  if (!isAllocated(network)) {
    const problem = allocationProblem(network, view.networks, defaultPoolsOf(view.cluster));
    if (problem === "")
      return [
        Reason.create({
          since,
          waitingFor: "the allocator",
          wokenBy: "the allocator's next round, which is due now",
        }),
      ];
    return [
      Reason.create({
        since,
        waitingFor: `a subnet and a VXLAN id: ${problem}`,
        wokenBy: "the removal of another network, or other default address pools",
      }),
    ];
  }
  if (isNodeLocal(network))
    return [
      Reason.create({
        since,
        waitingFor: `nothing: each node creates this network itself, with driver ${driverOf(network)}`,
      }),
    ];
  const subnets = (network.ipam?.configs ?? []).map(({ subnet }) => subnet).join(", ");
  const ids = vxlanIdsOf(network.driverState).join(", ");
  // Each is iterated twice.
  const [tasks, nodes] = [[...view.tasks], [...view.nodes]];
  const { held, stopping } = addressesHeld(network, view.services, tasks, nodes);
  const room = roomOf(network, held);
  const kept = keptForNodes(nodesOf(network, tasks, nodes));
  const leaving = stopping === 0 ? "" : `, ${stopping} of them by tasks that are stopping`;
  const facts = `subnet ${subnets}, VXLAN id ${ids}, ${held.length} addresses in use${leaving}`;
  if (room > kept) return [Reason.create({ since, waitingFor: `nothing: it is allocated (${facts}, ${room} free)` })];
  return [
    Reason.create({
      since,
      waitingFor:
        room > 0
          ? `a free address: the remaining ones are reserved for nodes that run or may run its tasks (${facts}, ${room} free)`
          : `a free address: all are in use (${facts})`,
      wokenBy: "the end of a task, or the removal of a service that uses it",
    }),
  ];
}

function addressesHeld(
  network: Network,
  services: Iterable<Service>,
  tasks: readonly Task[],
  nodes: readonly Node[],
): { readonly held: readonly string[]; readonly stopping: number } {
  const held: string[] = [];
  let stopping = 0;
  for (const { endpoint } of services)
    for (const vip of endpoint?.virtualIps ?? []) if (vip.networkId === network.id) held.push(vip.addr);
  for (const task of tasks) {
    if (isEnded(observedState(task))) continue;
    for (const attachment of task.networks) {
      if (attachment.network?.id !== network.id) continue;
      held.push(...attachment.addresses);
      if (!isWanted(task)) stopping += 1;
    }
  }
  for (const { attachments } of nodes)
    for (const attachment of attachments) if (attachment.network?.id === network.id) held.push(...attachment.addresses);
  return { held, stopping };
}

/** `unplaced` counts one more task, to tell whether another task could get an address. */
function nodesOf({ id }: Network, tasks: readonly Task[], nodes: readonly Node[]): NodesOfNetwork {
  const expecting = new Set<string>();
  let unplaced = 1;
  for (const task of tasks) {
    if (isEnded(observedState(task))) continue;
    const { networks, nodeId } = task;
    if (!networks.some(({ addresses, network }) => network?.id === id && addresses.length > 0)) continue;
    if (nodeId === "") unplaced += 1;
    else expecting.add(nodeId);
  }
  let joined = 0;
  for (const { attachments, id: nodeId } of nodes) {
    if (!attachments.some(({ network }) => network?.id === id)) continue;
    joined += 1;
    expecting.delete(nodeId);
  }
  return { nodes: nodes.length, joined, expecting: expecting.size, unplaced };
}

function roomOf(network: Network, held: readonly string[]): number {
  const space = new AddressSpace(network.ipam?.configs ?? []);
  for (const address of held) space.claim(address);
  return space.room;
}

/** The networks in which the node still needs an address; empty if it has all. */
export function explainNodeNetworks(node: Node, tasks: Iterable<Task>, networks: Iterable<Network>): readonly Reason[] {
  const wanted = new Map<string, Network>();
  for (const network of networks)
    if (network.spec?.ingress === true && isAllocated(network)) wanted.set(network.id, network);
  for (const task of tasks) {
    if (isEnded(observedState(task))) continue;
    for (const { network, addresses } of task.networks)
      if (network !== null && addresses.length > 0) wanted.set(network.id, network);
  }
  for (const { network } of node.attachments) wanted.delete(network?.id ?? "");
  return [...wanted.values()].map((network) =>
    Reason.create({
      waitingFor: `an address for its load balancer in network ${nameOf(network)}; until then, its tasks there are rejected`,
      since: node.meta?.updatedAt ?? null,
      wokenBy: "the allocator's next round, or an address of that network that becomes free",
    }),
  );
}
