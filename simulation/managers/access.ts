/**
 * Decides whom a simulated manager serves, and for how long: the real rules of `edges/grpc/`, over the simulated network.
 *
 * S90: nothing is sent to a peer with the certificate of a node that this manager's replica has removed, nor, by a method for
 *      managers, to one that it has as a worker; this also holds for streams that were open before, from the commit on.
 * S92: nothing is sent to a peer whose certificate has expired, also on streams that were open before.
 */
import { CertifiedConnections } from "../../edges/grpc/certified-connections.ts";
import { accessByPath, authorize, type Caller, type Membership } from "../../edges/grpc/roles.ts";
import { NodeRole } from "../../proto/gen/messages.ts";
import type { Clock } from "../../runtime/ports/index.ts";
import type { Peer } from "../../runtime/ports/rpc.ts";
import type { SimIdentity } from "../../runtime/sim/rpc.ts";
import type { CallGate } from "../../runtime/calls/served.ts";
import type { Store } from "../../runtime/store/store.ts";

/** Tolerance of S92, in milliseconds: a drifting clock measures the remaining time by itself. */
const expiryToleranceMs = 1_000;

interface SimAccessOptions {
  readonly clock: Clock;
  readonly membership: Membership;
  readonly store: Store;
  readonly onWrong: (claim: string) => void;
  readonly mark: (name: string) => void;
}

/** S90, by the replica alone. */
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

/** Expiry of the peer's certificate; null without one. */
function endOf({ identity }: Peer): number | null {
  return (identity as SimIdentity)?.notAfterMs ?? null;
}

export function simGate({ clock, mark, membership, onWrong, store }: SimAccessOptions): CallGate {
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
    // A peer without the cluster's id, such as one that asks for keys before it has the log: a certificate would contain it.
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
    // The JSON API has its own rules.
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
