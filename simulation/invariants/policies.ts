/**
 * Invariants of network policy at rest, on every READY node.
 *
 * L6: the node has exactly the policy state that a calculation from the store alone gives.
 * L7: so has its driver, whatever happened to earlier driver processes; and the node reports that it is in sync.
 */
import { calculateNode, clusterFacts } from "../../machines/policy/calculate.ts";
import { difference, isEmptyUpdate, type NodeState } from "../../machines/policy/node-state.ts";
import { DataplaneReport, NodeStatus_State } from "../../proto/gen/messages.ts";
import type { Store } from "../../runtime/store/store.ts";
import type { SimDataplanes } from "../nodes/policies.ts";

/** L6, L7: a node that does not have its policy state yet, or null. */
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
    if (told === null) return `L6: ${name} has no policy state`;
    const wanted = calculateNode(facts, id);
    const rest = difference(told, wanted);
    if (!isEmptyUpdate(rest)) return `L6: ${name} lacks ${JSON.stringify(rest).slice(0, 300)}`;
    const unlike = dataplanes.differenceOf(name, wanted) ?? findUnreported(store, id, wanted);
    if (unlike !== null) return `L7: the driver of ${name}: ${unlike}`;
  }
  return null;
}

function findUnreported(store: Store, nodeId: string, wanted: NodeState): string | null {
  const value = store.get("resource", nodeId)?.payload?.value ?? null;
  if (value === null) return "the node has not reported its state";
  const { endpoints, state } = DataplaneReport.decode(value);
  if (state !== "in-sync") return `the node is reported as ${state}`;
  const up = endpoints.filter(({ status }) => status === "up").map(({ id }) => id);
  const isSame = up.length === wanted.endpoints.size && up.every((id) => wanted.endpoints.has(id));
  return isSame ? null : `endpoints ${up.join()} are reported up, of ${[...wanted.endpoints.keys()].join()}`;
}
