/**
 * Task networks of one simulated node.
 *
 * S41: a task that is started in a network finds its link there (checked by the driver, in drivers.ts).
 * S42: at rest a node has namespaces, links and driver networks only for tasks that run on it.
 */
import { runningOn, type SimAgent } from "./nodes.ts";

/** S42; null if it holds. A namespace's name ends with its task's id. */
export function findStrayNetworks(agents: readonly SimAgent[]): string | null {
  for (const agent of agents) {
    if (agent.network === null) continue;
    const running = runningOn(agent);
    const places = [...agent.network.namespaces.keys(), ...agent.network.links.values()];
    const stray = places.find((path) => !running.some((id) => path.endsWith(id)));
    if (stray !== undefined) return `S42: ${agent.machine.name} has ${stray} without a running task`;
  }
  return null;
}
