/** The rules by which a node gets a certificate (SwarmKit's): who may ask, what is written, and when it counts as done. */
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

/** Configured lifetimes below the least are taken for mistakes. */
export function validitySecondsOf(cluster: Cluster): number {
  const configured = cluster.spec?.caConfig?.nodeCertExpiry?.seconds ?? 0;
  return configured < certificateExpirySecondsMin ? certificateExpirySeconds : configured;
}

export function roleName(role: NodeRole): "swarm-worker" | "swarm-manager" {
  return role === NodeRole.MANAGER ? "swarm-manager" : "swarm-worker";
}

/** A node as it is written when it joins with a valid token. */
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

/** A node that has a certificate of which the log knows nothing any more: a worker that has to renew it. */
export function forgottenNode(id: string, cluster: Cluster): Node {
  const role = NodeRole.WORKER;
  const availability = NodeSpec_Availability.ACTIVE;
  const node = joiningNode({ id, role, csr: new Uint8Array(0), availability, cluster });
  const status = IssuanceStatus.create({ state: IssuanceStatus_State.ROTATE });
  return Node.patch(node, { certificate: Certificate.create({ role, cn: id, status }) });
}

/** A request by a node that has a certificate already: its observed role decides what it gets. */
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

/** True while the signer owes this node a certificate. */
export function isUnsigned(node: Node): boolean {
  const state = issuanceState(node);
  return (
    node.spec?.membership === NodeSpec_Membership.ACCEPTED &&
    (state === IssuanceStatus_State.PENDING || state === IssuanceStatus_State.RENEW)
  );
}

/** True when asking for the status again would bring nothing new: whoever waits for it is answered. */
export function isSettled(node: Node): boolean {
  const state = issuanceState(node);
  return (
    state === IssuanceStatus_State.ISSUED ||
    state === IssuanceStatus_State.FAILED ||
    state === IssuanceStatus_State.ROTATE
  );
}
