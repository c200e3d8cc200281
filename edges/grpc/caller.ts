/** Identifies the peer of a socket. */
import type { TLSSocket } from "node:tls";
import type { Peer } from "../../runtime/ports/rpc.ts";
import { userUnit } from "../../lib/pki/index.ts";
import { chainOf, isTrustedAfterAll } from "./cross-signed.ts";
import type { Carrier } from "./carried.ts";
import type { Caller } from "./roles.ts";

const localPeer: Peer = { identity: null, local: true, address: "" };

/** A process that can open the control socket has a manager's permissions. */
export const localCaller: Caller = {
  peer: localPeer,
  anonymous: localPeer,
  rejection: null,
  isCertified: false,
  notAfterMs: null,
};

function first(value: string | readonly string[] | undefined): string {
  return (typeof value === "string" ? value : value?.[0]) ?? "";
}

function isNodeRole(text: string): text is "swarm-worker" | "swarm-manager" {
  return text === "swarm-worker" || text === "swarm-manager";
}

/**
 * Reads the client certificate of a socket whose handshake is complete. `rootPem`: the trusted roots. `carrier`: of a connection that
 * did not come over TCP.
 */
export function callerOf(socket: TLSSocket, rootPem: string, carrier?: Carrier): Caller {
  // An IPv4 client of a dual-stack listener appears as ::ffff:a.b.c.d.
  const address = (carrier?.address ?? socket.remoteAddress ?? "").replace(/^::ffff:(?=\d+\.)/, "");
  const place = carrier === undefined ? {} : { site: carrier.site };
  const anonymous: Peer = { identity: null, local: false, address, ...place };
  const subject = socket.getPeerCertificate().subject as
    | Readonly<Record<"CN" | "OU" | "O" | "serialNumber", string | readonly string[] | undefined>>
    | undefined;
  if (subject === undefined && socket.getPeerX509Certificate() === undefined) {
    return { peer: anonymous, anonymous, rejection: null, isCertified: false, notAfterMs: null };
  }
  // After a canceled root rotation, a node still has a certificate of the abandoned root.
  if (!socket.authorized && !isTrustedAfterAll(socket, rootPem, null)) {
    // Typed as an Error, but on a server's socket Node sets OpenSSL's code, such as CERT_HAS_EXPIRED.
    const problem = socket.authorizationError as Error | string | null;
    const rejection = typeof problem === "string" ? problem : (problem?.message ?? "unknown reason");
    return { peer: anonymous, anonymous, rejection, isCertified: false, notAfterMs: null };
  }
  const chain = chainOf(socket);
  const notAfterMs = Math.min(...chain.map(({ validToDate }) => validToDate.getTime()));
  const name = first(subject?.CN);
  const unit = first(subject?.OU);
  const organization = first(subject?.O);
  const certified = { anonymous, rejection: null, isCertified: true, notAfterMs };
  if (unit === userUnit && name !== "") {
    const user = { name, mark: first(subject?.serialNumber), organization };
    return { ...certified, peer: { ...anonymous, user: `user-${name}` }, user };
  }
  if (name === "" || !isNodeRole(unit)) return { ...certified, peer: anonymous };
  const identity = { nodeId: name, role: unit, organization };
  const certifiedFromMs = chain[0]?.validFromDate.getTime();
  const peer: Peer = { ...anonymous, identity, certifiedFromMs };
  return { ...certified, peer };
}
