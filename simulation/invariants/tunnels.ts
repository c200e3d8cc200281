/**
 * Invariants of the tunnels between simulated nodes.
 *
 * S48: at rest each node has routes to exactly those tasks on other nodes that share a network with its own tasks: packets for
 *      each arrive at the task's node, and only that node may send packets from its address. So two tasks of a network reach
 *      each other, and no route outlives its task.
 */
import { isEnded, observedState } from "../../machines/task.ts";
import { NodeStatus_State, TaskState, type Task } from "../../proto/gen/messages.ts";
import type { Store } from "../../runtime/store/store.ts";
import type { SimAgent } from "../nodes/nodes.ts";

/** S48; null if it holds. */
export function findUnrouted(store: Store, agents: readonly SimAgent[]): string | null {
  const addresses = new Map(agents.map(({ address, machine: { name } }) => [name, address]));
  for (const agent of agents) {
    const node = [...store.all("node")].find(({ description }) => description?.hostname === agent.machine.name);
    if (agent.network === null || node?.status?.state !== NodeStatus_State.READY) continue;
    const own = new Set(
      [...store.all("task")].filter((task) => task.nodeId === node.id && isThere(task)).flatMap(networksOf),
    );
    const wanted = new Map<string, string>();
    for (const task of store.all("task")) {
      const other = store.get("node", task.nodeId);
      if (other === undefined || other.id === node.id || other.status?.state === NodeStatus_State.DOWN) continue;
      if (!isThere(task)) continue;
      for (const { addresses: given, network } of task.networks)
        for (const each of own.has(network?.id ?? "") ? given : [])
          wanted.set(each.split("/")[0] ?? "", addresses.get(other.description?.hostname ?? "") ?? "nowhere");
    }
    const problem = differenceOf(agent, wanted);
    if (problem !== null) return `S48: ${agent.machine.name} ${problem}`;
  }
  return null;
}

function isThere(task: Task): boolean {
  return observedState(task) >= TaskState.ASSIGNED && !isEnded(observedState(task));
}

function networksOf({ networks }: Task): readonly string[] {
  return networks.filter(({ addresses }) => addresses.length > 0).map(({ network }) => network?.id ?? "");
}

function differenceOf({ network }: SimAgent, wanted: ReadonlyMap<string, string>): string | null {
  if (network === null) return null;
  const { tunnel } = network;
  const reached = tunnel.reached();
  for (const [task, end] of wanted)
    if (reached.get(task) !== end) return `leads to ${task} at ${reached.get(task) ?? "nobody"}, but it is at ${end}`;
  for (const [task, end] of reached)
    if (!wanted.has(task)) return `leads to ${task} at ${end}, but no task of its networks has that address`;
  if (new Set(wanted.values()).size !== tunnel.peers.size)
    return `knows ${[...tunnel.peers].join(" ")}, but tasks are at ${[...new Set(wanted.values())].join(" ")}`;
  const heard = tunnel.elements("inet muster-tunnel-0123abcd", "remote4");
  return heard.size === wanted.size
    ? null
    : `hears ${[...heard].join(", ")}, but there are ${[...wanted.keys()].join()}`;
}
