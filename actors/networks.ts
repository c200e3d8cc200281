/** The Networks service of every manager: streams to each follower node which tasks are in its tasks' networks, and where. */
import { NetworkFeed } from "../machines/networks/feed.ts";
import { NetworkGraph } from "../machines/networks/graph.ts";
import { networkPiecesOf } from "../machines/networks/pieces.ts";
import type { NetworksService } from "../proto/gen/messages.ts";
import type { ServiceHandlers } from "../runtime/ports/rpc.ts";
import type { Environment, Running } from "./environment.ts";
import { createNodeViews } from "./node-views.ts";

interface NetworksActor extends Running {
  readonly handlers: ServiceHandlers<typeof NetworksService>;
}

/** `isCurrent`: whether this manager's replica has caught up with the log. */
export function createNetworks(env: Environment, isCurrent: () => boolean): NetworksActor {
  const { store } = env;
  const views = createNodeViews(env, {
    gauge: "muster_network_followers",
    help: "Nodes to which this manager streams the members of their tasks' networks.",
    isCurrent,
    piecesOf: networkPiecesOf,
    calculate: () => {
      const graph = new NetworkGraph();
      const find = (target: string) => store.get("network", target) ?? store.byName("network", target);
      const feed = new NetworkFeed(graph, find);
      for (const node of store.all("node")) feed.nodeChanged(null, node);
      for (const service of store.all("service")) feed.serviceChanged(null, service);
      for (const task of store.all("task")) feed.taskChanged(null, task);
      const watching = store.watch(({ changes }) => {
        for (const { action, object, old, table } of changes) {
          const isGone = action === "remove";
          if (table === "task") feed.taskChanged(isGone ? object : old, isGone ? null : object);
          else if (table === "service") feed.serviceChanged(isGone ? object : old, isGone ? null : object);
          else if (table === "node") feed.nodeChanged(isGone ? object : old, isGone ? null : object);
        }
      });
      return {
        follow: (nodeId, onDirty) => graph.follow(nodeId, onDirty),
        unfollow: (view) => graph.unfollow(view),
        stop: () => watching.unsubscribe(),
      };
    },
  });
  return {
    handlers: { Follow: ({ version }, sink, call) => views.follow(version, sink, call) },
    stop: () => views.stop(),
  };
}
