/** A graph that follows a test's cluster, as the manager's actor makes it follow the store. */
import { PolicyFeed } from "../../machines/policy/feed.ts";
import { PolicyGraph } from "../../machines/policy/graph.ts";
import type { Cluster, Step } from "./policies.ts";

interface FedGraph {
  readonly graph: PolicyGraph;
  /** Changes the cluster, then notifies the graph. */
  step(step: Step): void;
}

export function fedGraph(cluster: Cluster): FedGraph {
  const graph = new PolicyGraph();
  const feed = new PolicyFeed(graph, {
    task: (id) => cluster.task.get(id),
    service: (id) => cluster.service.get(id),
    node: (id) => cluster.node.get(id),
    nodes: () => cluster.node.values(),
    tasksByService: (id) => [...cluster.task.values()].filter(({ serviceId }) => serviceId === id),
    tasksByNode: (id) => [...cluster.task.values()].filter(({ nodeId }) => nodeId === id),
  });
  function write<Of>(table: Map<string, Of>, id: string, object: Of | null): Of | null {
    const old = table.get(id) ?? null;
    if (object === null) table.delete(id);
    else table.set(id, object);
    return old;
  }
  return {
    graph,
    step(each) {
      switch (each.table) {
        case "task":
          return feed.taskChanged(write(cluster.task, each.id, each.object), each.object);
        case "service":
          return feed.serviceChanged(write(cluster.service, each.id, each.object), each.object);
        case "node":
          return feed.nodeChanged(write(cluster.node, each.id, each.object), each.object);
        case "resource":
          return feed.resourceChanged(write(cluster.resource, each.id, each.object), each.object);
      }
    },
  };
}
