/** The processes that should answer: every manager, and the Muster agents of nodes that are ready. */
import { isManagersNode } from "../../machines/manager/role.ts";
import { NodeStatus_State, type Node } from "../../proto/gen/messages.ts";

/** Only a Muster agent reports task drivers; a Docker Engine has no actors to show. */
const runsAgent = ({ description }: Node): boolean =>
  (description?.engine?.plugins ?? []).some(({ type }) => type === "Driver");

/** Ids of processes, each with its hostname. */
export function expectedProcesses(nodes: readonly Node[]): ReadonlyMap<string, string> {
  const expected = new Map<string, string>();
  for (const node of nodes) {
    if (node.status?.state !== NodeStatus_State.READY) continue;
    const hostname = node.description?.hostname ?? "";
    if (isManagersNode(node)) expected.set(`manager-${node.id}`, hostname);
    else if (runsAgent(node)) expected.set(`node-${node.id}`, hostname);
  }
  return expected;
}
