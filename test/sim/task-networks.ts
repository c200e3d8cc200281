/**
 * The networks of the tasks of one simulated node.
 *
 * S41: a task that is started in a network finds its link there (looked at by the driver, in drivers.ts).
 * S42: at rest there is no namespace, link or driver's network on a node but those of tasks that run on it.
 */
import { runningOn, type SimAgent } from "./nodes.ts";

/** S42; null when it holds. Namespaces end with their task's id. */
export function findStrayNetworks(agents: readonly SimAgent[]): string | null {
  for (const agent of agents) {
    if (agent.network === null) continue;
    const running = runningOn(agent);
    const places = [...agent.network.namespaces.keys(), ...agent.network.links.values()];
    const stray = places.find((path) => !running.some((id) => path.endsWith(id)));
    if (stray !== undefined) return `S42: ${agent.machine.name} has ${stray}, and no task of it`;
  }
  return null;
}
