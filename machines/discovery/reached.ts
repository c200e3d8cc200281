import type { NetworkTask } from "../../proto/gen/messages.ts";
import type { NetworksState } from "../networks/networks-state.ts";

/** Whether packets of a node's tasks find their way to a task, and back: it is at this node, or behind a tunnel. */
export function isReached({ nodes }: NetworksState, { nodeId }: NetworkTask, ownNodeId: string): boolean {
  return nodeId === ownNodeId || nodes.get(nodeId)?.hasTunnel === true;
}
