/** The public status of a node's manager process. Never stored: computed from the manager's record when read. */
import { ManagerStatus, Node, RaftMemberStatus_Reachability, type Manager } from "../../proto/gen/messages.ts";

export function withManagerStatus(node: Node, manager: Manager | undefined, leaderId: string): Node {
  if (manager === undefined) return node.managerStatus === null ? node : Node.patch(node, { managerStatus: null });
  return Node.patch(node, {
    managerStatus: ManagerStatus.create({
      addr: manager.addr,
      leader: manager.alive && manager.id === leaderId,
      reachability: manager.alive ? RaftMemberStatus_Reachability.REACHABLE : RaftMemberStatus_Reachability.UNREACHABLE,
    }),
  });
}
