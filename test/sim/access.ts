/**
 * Whom a simulated manager serves, and for how long: the real decisions of `edges/grpc/`, over the simulated network.
 *
 * S90: nothing is sent to who shows the certificate of a node that this manager's replica has for removed, nor, by a method of
 *      managers, to one that it has for a worker; also not on what was open before, and not in the turn of that commit.
 * S92: nothing is sent to who showed a certificate that has expired, also not on what was open before.
 */
import { CertifiedConnections } from "../../edges/grpc/certified-connections.ts";
import { accessByPath, authorize, type Caller, type Membership } from "../../edges/grpc/roles.ts";
import { NodeRole } from "../../proto/gen/messages.ts";
import type { Clock } from "../../runtime/ports.ts";
import type { Peer } from "../../runtime/rpc.ts";
import type { SimIdentity } from "../../runtime/sim/rpc.ts";
import type { SimGate } from "../../runtime/sim/rpc-server.ts";
import type { Store } from "../../runtime/store/store.ts";

/** Of S92, in milliseconds: a clock that drifts measures what is left by itself. */
const expiryToleranceMs = 1_000;

export interface SimAccessOptions {
  readonly clock: Clock;
  readonly membership: Membership;
  readonly store: Store;
  readonly onWrong: (claim: string) => void;
  readonly mark: (name: string) => void;
}

/** S90, from what the replica has alone. */
function wrongReceiver(store: Store, { identity }: Peer, path: string): string | null {
  const access = accessByPath.get(path);
  if (identity === null || access === undefined || access === "anyone") return null;
  const { nodeId, role } = identity;
  for (const { blacklistedCertificates } of store.all("cluster"))
    if (nodeId in blacklistedCertificates) return `S90: ${path} sends to node ${nodeId}, which was removed`;
  if (access === "worker-or-manager") return null;
  const isWorker = role !== "swarm-manager" || store.get("node", nodeId)?.role === NodeRole.WORKER;
  return isWorker ? `S90: ${path} sends to node ${nodeId}, which is a worker` : null;
}

/** The end of the certificate that the peer showed; null: it has none. */
function endOf({ identity }: Peer): number | null {
  return (identity as SimIdentity)?.notAfterMs ?? null;
}

export function simGate({ clock, mark, membership, onWrong, store }: SimAccessOptions): SimGate {
  const connections = new CertifiedConnections<{ readonly caller: Caller; readonly end: () => void }>({
    clock,
    membership,
    rootPem: "",
    handshakeTimeoutMs: 0,
    end: ({ end }) => {
      mark("access.ended");
      end();
    },
  });
  const callerOf = (peer: Peer): Caller => {
    const { identity } = peer;
    // Who does not know yet what the cluster is called, as one who asks for keys before it has the log: a certificate would say it.
    const named =
      identity === null || identity.organization !== ""
        ? peer
        : { ...peer, identity: { ...identity, organization: membership.organization() } };
    return {
      // Simulated certificates are as old as the simulation.
      peer: { ...named, certifiedFromMs: 0 },
      anonymous: { ...peer, identity: null },
      rejection: null,
      isCertified: identity !== null,
      notAfterMs: endOf(peer),
    };
  };
  return {
    // The JSON API has rules of its own.
    admit: (peer, path) => {
      const access = accessByPath.get(path);
      return access === undefined ? peer : authorize(access, callerOf(peer), membership);
    },
    opened: (peer, end) => {
      const connection = { caller: callerOf(peer), end };
      connections.add(connection, () => true);
      return { closed: () => connections.remove(connection) };
    },
    sends: (peer, path) => {
      const claim = wrongReceiver(store, peer, path);
      if (claim !== null) onWrong(claim);
      const end = endOf(peer);
      if (end !== null && clock.now() > end + expiryToleranceMs)
        onWrong(`S92: ${path} sends to node ${peer.identity?.nodeId ?? ""}, whose certificate has expired`);
    },
  };
}
