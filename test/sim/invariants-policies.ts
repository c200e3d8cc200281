/**
 * What must hold of network policy at rest, on every node that is READY.
 *
 * L6: it was told exactly what is calculated from nothing of what the store says.
 * L7: so was its driver, whatever became of drivers before; and the node says that it is in sync.
 */
import { calculateNode, clusterFacts } from "../../machines/policy/calculate.ts";
import { difference, isEmptyUpdate, type NodeState } from "../../machines/policy/node-state.ts";
import { DataplaneReport, NodeStatus_State } from "../../proto/gen/messages.ts";
import type { Store } from "../../runtime/store/store.ts";
import type { SimDataplanes } from "./policies.ts";

/** L6, L7; a node that has not been told yet what it is to know, or null. */
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
    if (told === null) return `L6: ${name} was told nothing of network policy`;
    const wanted = calculateNode(facts, id);
    const rest = difference(told, wanted);
    if (!isEmptyUpdate(rest)) return `L6: ${name} was not told ${JSON.stringify(rest).slice(0, 300)}`;
    const unlike = dataplanes.differenceOf(name, wanted) ?? findUnreported(store, id, wanted);
    if (unlike !== null) return `L7: the driver of ${name}: ${unlike}`;
  }
  return null;
}

function findUnreported(store: Store, nodeId: string, wanted: NodeState): string | null {
  const value = store.get("resource", nodeId)?.payload?.value ?? null;
  if (value === null) return "the cluster was told nothing of it";
  const { endpoints, state } = DataplaneReport.decode(value);
  if (state !== "in-sync") return `the cluster believes that it is ${state}`;
  const up = endpoints.filter(({ status }) => status === "up").map(({ id }) => id);
  const isSame = up.length === wanted.endpoints.size && up.every((id) => wanted.endpoints.has(id));
  return isSame
    ? null
    : `the cluster believes that endpoints ${up.join()} are up, of ${[...wanted.endpoints.keys()].join()}`;
}
