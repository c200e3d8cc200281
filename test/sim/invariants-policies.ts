/**
 * What must hold of network policy at rest.
 *
 * L6: every node that is READY was told exactly what is calculated from nothing of what the store says.
 */
import { calculateNode, clusterFacts } from "../../machines/policy/calculate.ts";
import { difference, isEmptyUpdate } from "../../machines/policy/node-state.ts";
import { NodeStatus_State } from "../../proto/gen/messages.ts";
import type { Store } from "../../runtime/store/store.ts";
import type { SimDataplanes } from "./policies.ts";

/** L6; a node that has not been told yet what it is to know, or null. */
export function findUntold(store: Store, dataplanes: SimDataplanes): string | null {
  const facts = clusterFacts({
    tasks: store.all("task"),
    services: store.all("service"),
    nodes: store.all("node"),
    resources: store.all("resource"),
    managers: store.all("manager"),
  });
  for (const { description, id, status } of store.all("node")) {
    const name = description?.hostname ?? "";
    if (status?.state !== NodeStatus_State.READY || !dataplanes.isServing(name)) continue;
    const told = dataplanes.stateOf(name);
    if (told === undefined) return `L6: ${name} was told nothing of network policy`;
    const rest = difference(told, calculateNode(facts, id));
    if (!isEmptyUpdate(rest)) return `L6: ${name} was not told ${JSON.stringify(rest).slice(0, 300)}`;
  }
  return null;
}
