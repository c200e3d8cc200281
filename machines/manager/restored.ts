/**
 * The first change of a cluster that was founded again, from a backup or from one manager's copy of the log: what that says about
 * processes was true of its time.
 *
 * RD1: nodes count as UNKNOWN, without a session, until they register: only then are their tasks known to run. They have
 *      `restoredGraceMs` (`machines/dispatcher/node-watch.machine.ts`), since the managers may be elsewhere now.
 * RD2: the managers of the past are workers that are DOWN: nobody waits for them, asks them for keys or sends nodes to them, and
 *      they can be removed. A manager that founds the cluster from its own copy stays a manager.
 */
import {
  Change,
  Kind,
  Node,
  NodePatch,
  NodeRole,
  NodeSpec,
  NodeStatus,
  NodeStatus_State,
  Removal,
  StoreObject,
  type Manager,
  type Session,
} from "../../proto/gen/messages.ts";
import { isReady } from "../node.ts";
import { isManagersNode } from "./role.ts";

interface RestoredState {
  all(table: "manager"): Iterable<Manager>;
  all(table: "node"): Iterable<Node>;
  all(table: "session"): Iterable<Session>;
}

/** `own`: the manager that continues from its copy; null after a restore. */
export function changesOfRestore(state: RestoredState, own: string | null = null): readonly Change[] {
  const how = own === null ? "was restored from a backup" : "was continued from one manager's copy";
  const changes: Change[] = [];
  for (const { id } of state.all("manager")) if (id !== own) changes.push(removal(Kind.KIND_MANAGER, id));
  for (const { id } of state.all("session")) changes.push(removal(Kind.KIND_SESSION, id));
  for (const node of state.all("node")) {
    if (node.id === own) continue;
    if (isManagersNode(node))
      changes.push(Change.create({ put: StoreObject.create({ node: formerManager(node, how) }) }));
    else if (isReady(node))
      changes.push(Change.create({ node: NodePatch.create({ id: node.id, status: awaited(node, how) }) }));
  }
  return changes;
}

function removal(kind: Kind, id: string): Change {
  return Change.create({ remove: Removal.create({ kind, id }) });
}

/** RD1 */
function awaited({ status }: Node, how: string): NodeStatus {
  return NodeStatus.create({
    state: NodeStatus_State.UNKNOWN,
    message: `the cluster ${how}, and the node has not registered since`,
    addr: status?.addr ?? "",
  });
}

/** RD2 */
function formerManager(node: Node, how: string): Node {
  return Node.patch(node, {
    role: NodeRole.WORKER,
    spec: NodeSpec.patch(node.spec ?? NodeSpec.create(), { desiredRole: NodeRole.WORKER }),
    managerStatus: null,
    status: NodeStatus.create({
      state: NodeStatus_State.DOWN,
      message: `a manager from before the cluster ${how}`,
      addr: node.status?.addr ?? "",
    }),
  });
}
