/** What may be asked of a node: its spec's changes and its removal. A manager's log membership is its own process. */
import {
  BlacklistedCertificate,
  NodeRole,
  NodeStatus_State,
  type Node,
  type NodeSpec,
  type Manager,
} from "../../proto/gen/messages.ts";
import { invalid, refuse, type Refusal } from "../refusal.ts";
import { timestampOf } from "../service-update.ts";

/** How the node stands among the managers. */
export interface Managership {
  /** Its record, when a manager process was ever started under this id and not demoted since. */
  readonly manager: Manager | undefined;
  /** Of all managers. */
  readonly count: number;
}

const daySeconds = 86_400;
/** A removed node stays refused this long after its certificate would have ended anyway (SwarmKit's). */
const blacklistGraceMs = 7 * daySeconds * 1_000;

export function checkNodeUpdate(node: Node, spec: NodeSpec, { manager, count }: Managership): Refusal | null {
  if (![0, 1, 2].includes(spec.availability)) return invalid(`unknown availability ${spec.availability}`);
  const before = node.spec?.desiredRole ?? NodeRole.WORKER;
  if (spec.desiredRole === before) return null;
  if (spec.desiredRole === NodeRole.MANAGER) {
    return refuse(
      "failed-precondition",
      `node ${node.id} cannot be promoted: a manager is started with 'muster manager' against the cluster's NATS`,
    );
  }
  if (manager === undefined) return null;
  if (count <= 1) return refuse("failed-precondition", "attempting to demote the last manager of the swarm");
  if (manager.alive) {
    return refuse("failed-precondition", `node ${node.id} is a running manager: stop its process before demoting it`);
  }
  return null;
}

export function checkNodeRemoval(node: Node, force: boolean, { manager }: Managership): Refusal | null {
  if (manager !== undefined) {
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
