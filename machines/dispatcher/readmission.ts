/**
 * Which nodes that the log does not know are recreated: those that joined in records that it lost. Otherwise they would be
 * refused forever, and their tasks would have no owner.
 *
 * N1: only after an operator accepted a loss, and only with a certificate that is valid from that moment or earlier: its
 *     holder was a node once.
 * N2: never a node that the cluster has removed, as far as it knows; the write depends on the version of the cluster object,
 *     so a concurrent removal prevents it.
 * N3: as a worker, whatever its certificate says, and never a manager's process.
 * N4: the node must renew its certificate at once: then the log knows the certificate again, which removal, renewal and root
 *     rotation need.
 */
import { Basis, Kind, Operation, StoreObject, type Cluster, type Manager } from "../../proto/gen/messages.ts";
import { timeMs } from "../../proto/time.ts";
import { forgottenNode } from "../certificates/issuance.ts";

/** A node that the log does not know, as described by its certificate. */
interface UnknownNode {
  readonly id: string;
  /** Start of the certificate's validity, in milliseconds since the epoch; undefined if unknown. */
  readonly certifiedFromMs: number | undefined;
}

/** The operations that recreate the node; null if it stays unknown. */
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
