import type { NetworkTask } from "../../proto/gen/messages.ts";
import type { NetworksState } from "../networks/state.ts";

/** Whether packets can travel between a node's tasks and another task: it is on this node, or behind a tunnel. */
export function isReached({ nodes }: NetworksState, { nodeId }: NetworkTask, ownNodeId: string): boolean {
  return nodeId === ownNodeId || nodes.get(nodeId)?.hasTunnel === true;
}
