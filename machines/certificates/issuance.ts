/** SwarmKit's rules for issuing node certificates: who may request one, what is written, and when it is complete. */
import {
  Certificate,
  IssuanceStatus,
  IssuanceStatus_State,
  Node,
  NodeRole,
  NodeSpec,
  NodeSpec_Membership,
  NodeSpec_Availability,
  type Cluster,
} from "../../proto/gen/messages.ts";
import { certificateExpirySecondsMin } from "../validation/cluster.ts";
import { networkDefaults } from "../allocation/network-defaults.ts";

/** 90 days: SwarmKit's default lifetime of a node certificate. */
export const certificateExpirySeconds = 90 * 86_400;

/** Configured lifetimes below the minimum are treated as mistakes. */
export function validitySecondsOf(cluster: Cluster): number {
  const configured = cluster.spec?.caConfig?.nodeCertExpiry?.seconds ?? 0;
  return configured < certificateExpirySecondsMin ? certificateExpirySeconds : configured;
}

export function roleName(role: NodeRole): "swarm-worker" | "swarm-manager" {
  return role === NodeRole.MANAGER ? "swarm-manager" : "swarm-worker";
}

/** The object of a node that joins with a valid token. */
export function joiningNode(options: {
  readonly id: string;
  readonly role: NodeRole;
  readonly csr: Uint8Array;
  readonly availability: NodeSpec_Availability;
  readonly cluster: Cluster;
}): Node {
  const { id, role, csr, availability, cluster } = options;
  return Node.create({
    id,
    role,
    spec: NodeSpec.create({ desiredRole: role, membership: NodeSpec_Membership.ACCEPTED, availability }),
    certificate: Certificate.create({
      role,
      csr,
      cn: id,
      status: IssuanceStatus.create({ state: IssuanceStatus_State.PENDING }),
    }),
    VXLANUDPPort: cluster.VXLANUDPPort || networkDefaults.dataPathPort,
  });
}

/** A node that has a certificate but no longer exists in the log: a worker that must renew. */
export function forgottenNode(id: string, cluster: Cluster): Node {
  const role = NodeRole.WORKER;
  const availability = NodeSpec_Availability.ACTIVE;
  const node = joiningNode({ id, role, csr: new Uint8Array(0), availability, cluster });
  const status = IssuanceStatus.create({ state: IssuanceStatus_State.ROTATE });
  return Node.patch(node, { certificate: Certificate.create({ role, cn: id, status }) });
}

/** A request from a node that already has a certificate: its observed role decides what it gets. */
export function renewal(node: Node, csr: Uint8Array): Certificate {
  return Certificate.patch(node.certificate ?? Certificate.create({}), {
    role: node.role,
    csr,
    cn: node.id,
    status: IssuanceStatus.create({ state: IssuanceStatus_State.RENEW }),
  });
}

export function issuanceState(node: Node): IssuanceStatus_State {
  return node.certificate?.status?.state ?? IssuanceStatus_State.UNKNOWN;
}

/** Whether the signer still has to issue this node's certificate. */
export function isUnsigned(node: Node): boolean {
  const state = issuanceState(node);
  return (
    node.spec?.membership === NodeSpec_Membership.ACCEPTED &&
    (state === IssuanceStatus_State.PENDING || state === IssuanceStatus_State.RENEW)
  );
}

/** Whether the status is final until the node sends another request: callers that wait for it are answered. */
export function isSettled(node: Node): boolean {
  const state = issuanceState(node);
  return (
    state === IssuanceStatus_State.ISSUED ||
    state === IssuanceStatus_State.FAILED ||
    state === IssuanceStatus_State.ROTATE
  );
}
