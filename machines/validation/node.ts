/** What may be asked of a node: its spec's changes and its removal. A manager's log membership is its own process. */
import {
  BlacklistedCertificate,
  NodeRole,
  NodeStatus_State,
  type Node,
  type NodeSpec,
  type Manager,
} from "../../proto/gen/messages.ts";
import { isManagersNode } from "../manager/manager-role.ts";
import { invalid, refuse, type Refusal } from "../refusal.ts";
import { timestampOf } from "../../proto/time.ts";

/** How the node stands among the managers. */
export interface Managership {
  /** Its record, when a manager process was ever started under this id and not demoted since. */
  readonly manager: Manager | undefined;
  /** Managers beside this one that were not demoted. */
  readonly others: number;
  /** Of them those that run, without this one. */
  readonly othersAlive: number;
}

const daySeconds = 86_400;
/** A removed node stays refused this long after its certificate would have ended anyway (SwarmKit's). */
const blacklistGraceMs = 7 * daySeconds * 1_000;

export function checkNodeUpdate(node: Node, spec: NodeSpec, managership: Managership): Refusal | null {
  if (![0, 1, 2].includes(spec.availability)) return invalid(`unknown availability ${spec.availability}`);
  const before = node.spec?.desiredRole ?? NodeRole.WORKER;
  if (spec.desiredRole === before) return null;
  if (spec.desiredRole !== NodeRole.MANAGER) return checkDemotion(node, managership);
  if (isManagersNode(node)) return null;
  return refuse(
    "failed-precondition",
    `node ${node.id} cannot be promoted: engines and agents run tasks, and a manager is a process of its own, ` +
      "which is started with 'muster manager --join'",
  );
}

function checkDemotion(node: Node, { manager, others, othersAlive }: Managership): Refusal | null {
  // A certificate of a manager without the process: whoever joined by the manager's token.
  if (manager === undefined && !isManagersNode(node)) return null;
  if (others === 0) return refuse("failed-precondition", "attempting to demote the last manager of the swarm");
  if (othersAlive > 0) return null;
  return refuse("failed-precondition", "can't remove member from the raft: this would result in a loss of quorum");
}

/** `isOwn`: the manager whose node it is asks itself, because it could not start after it had joined. */
export function checkNodeRemoval(
  node: Node,
  force: boolean,
  { manager, othersAlive }: Managership,
  isOwn: boolean,
): Refusal | null {
  if (manager !== undefined && !(isOwn && othersAlive > 0)) {
    return refuse(
      "failed-precondition",
      `node ${node.id} is a cluster manager and is a member of the raft cluster. It must be demoted to worker before removal`,
    );
  }
  if (!force && node.status?.state === NodeStatus_State.READY) {
    return refuse("failed-precondition", `node ${node.id} is not down and can't be removed`);
  }
  return null;
}

/** `notAfterMs`: the end of the certificate that the node holds, in milliseconds since the epoch. */
export function blacklisting(notAfterMs: number): BlacklistedCertificate {
  return BlacklistedCertificate.create({ expiry: timestampOf(notAfterMs + blacklistGraceMs) });
}
