/** Checks of a node's spec changes and removal. */
import { isReady } from "../node.ts";
import { BlacklistedCertificate, NodeRole, type Node, type NodeSpec, type Manager } from "../../proto/gen/messages.ts";
import { isManagersNode } from "../manager/role.ts";
import { invalid, refuse, type Refusal } from "../refusal.ts";
import { timestampOf } from "../../proto/time.ts";

/** The node's standing among the managers. */
export interface Managership {
  /** Its record; undefined if no manager process ever started under this id, or it was demoted since. */
  readonly manager: Manager | undefined;
  /** Number of other managers that are not demoted. */
  readonly others: number;
  /** Number of those that are running. */
  readonly othersAlive: number;
}

const daySeconds = 86_400;
/** How long after its certificate's expiry a removed node stays blacklisted (SwarmKit's). */
const blacklistGraceMs = 7 * daySeconds * 1_000;

export function checkNodeUpdate(node: Node, spec: NodeSpec, managership: Managership): Refusal | null {
  if (![0, 1, 2].includes(spec.availability)) return invalid(`unknown availability ${spec.availability}`);
  const before = node.spec?.desiredRole ?? NodeRole.WORKER;
  if (spec.desiredRole === before) return null;
  if (spec.desiredRole !== NodeRole.MANAGER) return checkDemotion(node, managership);
  if (isManagersNode(node)) return null;
  return refuse(
    "failed-precondition",
    `cannot promote node ${node.id}: engines and agents only run tasks; ` +
      "start a separate manager process with 'muster manager --join'",
  );
}

function checkDemotion(node: Node, { manager, others, othersAlive }: Managership): Refusal | null {
  // A node that joined with the manager token and has a manager's certificate, but runs no manager process.
  if (manager === undefined && !isManagersNode(node)) return null;
  if (others === 0) return refuse("failed-precondition", "attempting to demote the last manager of the swarm");
  if (othersAlive > 0) return null;
  return refuse("failed-precondition", "can't remove member from the raft: this would result in a loss of quorum");
}

/** `isOwn`: the manager removes its own node, because it could not start after it had joined. */
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
  if (!force && isReady(node)) {
    return refuse("failed-precondition", `node ${node.id} is not down and can't be removed`);
  }
  return null;
}

/** `notAfterMs`: expiry of the node's certificate, in milliseconds since the epoch. */
export function blacklisting(notAfterMs: number): BlacklistedCertificate {
  return BlacklistedCertificate.create({ expiry: timestampOf(notAfterMs + blacklistGraceMs) });
}
