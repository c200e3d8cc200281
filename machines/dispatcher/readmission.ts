/**
 * Which nodes are made anew that the log does not know: those that joined in records that it lost. Without this they would be
 * refused for ever, and what they run would have no owner.
 *
 * N1: only after an operator accepted a loss, and only with a certificate that is valid from that moment or earlier: who has it
 *     was a node once.
 * N2: nobody whom the cluster has removed, as far as it knows; the write rests on the cluster's object, so that a removal
 *     in the meantime prevents it.
 * N3: as a worker, whatever its certificate says, and never a manager's process.
 * N4: it has to renew its certificate at once: then the log knows the certificate again, which a removal, a renewal and the
 *     rotation of the root need.
 */
import { Basis, Kind, Operation, StoreObject, type Cluster, type Manager } from "../../proto/gen/messages.ts";
import { timeMs } from "../../proto/time.ts";
import { forgottenNode } from "../certificates/issuance.ts";

/** A node that the log does not know, as its certificate describes it. */
export interface UnknownNode {
  readonly id: string;
  /** From when on the certificate is valid, in milliseconds since the epoch; undefined where that is not known. */
  readonly certifiedFromMs: number | undefined;
}

/** What makes the node anew; null for one that stays unknown. */
export function readmission(
  { id, certifiedFromMs }: UnknownNode,
  cluster: Cluster,
  managers: Iterable<Manager>,
): Operation | null {
  if (certifiedFromMs === undefined || Object.hasOwn(cluster.blacklistedCertificates, id)) return null;
  let acceptedMs = 0;
  for (const manager of managers) {
    if (manager.id === id) return null;
    acceptedMs = Math.max(acceptedMs, timeMs(manager.lossAccepted));
  }
  if (acceptedMs === 0 || certifiedFromMs > acceptedMs) return null;
  const version = cluster.meta?.version?.index ?? 0;
  return Operation.create({
    create: StoreObject.create({ node: forgottenNode(id, cluster) }),
    basis: [Basis.create({ kind: Kind.KIND_CLUSTER, id: cluster.id, version })],
  });
}
