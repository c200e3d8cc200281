/** A copy of the scheduler's bookkeeping, built from the store: for plans, which must not touch the real one. */
import { groupKey, NodeSet } from "../../machines/scheduling/node-set.ts";
import { timeMs } from "../../proto/time.ts";
import { TaskState } from "../../proto/gen/messages.ts";
import type { Store } from "../../runtime/store/store.ts";

/** Takes about 2 µs for each node and task. */
export function placementView(store: Store): NodeSet {
  const nodes = new NodeSet();
  for (const volume of store.all("volume")) nodes.volumes.put(volume);
  for (const node of store.all("node")) nodes.put(node);
  for (const task of store.all("task")) {
    nodes.follow(task);
    const state = task.status?.state;
    if (task.nodeId === "" || (state !== TaskState.FAILED && state !== TaskState.REJECTED)) continue;
    const at = timeMs(task.status?.appliedAt ?? task.status?.timestamp ?? null);
    nodes.find(task.nodeId)?.recordFailure(groupKey(task), at);
  }
  return nodes;
}
