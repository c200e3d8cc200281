/**
 * The check of a certificate, a manager's or a node's, while the cluster's root is rotated. The manager then shows a leaf of the new root
 * with a certificate in which the old root vouches for the new one (docs/reference/swarm-worker-protocol.md §3.6). Both roots
 * have the same name, and SwarmKit's cross-certificate does not say which key signed it, so OpenSSL takes it for
 * self-signed and gives up: it is the one refusal of OpenSSL's that is looked at again here.
 */
import type { X509Certificate } from "node:crypto";
import type { TLSSocket } from "node:tls";
import { describeCertificate } from "../../runtime/pki/index.ts";

/** More than any rotation makes. */
const chainLengthMax = 8;

/** The peer's chain as it came, its own certificate first. */
export function chainOf(socket: TLSSocket): readonly X509Certificate[] {
  const chain: X509Certificate[] = [];
  let at = socket.getPeerX509Certificate();
  while (at !== undefined && chain.length < chainLengthMax) {
    chain.push(at);
    at = at.issuerCertificate;
  }
  return chain;
}

/**
 * True when OpenSSL refused the peer's chain for being self-signed, and it leads to one of the roots after all, with every
 * certificate of it valid now. With `serverName` the first must carry that name.
 */
export function isCrossSigned(socket: TLSSocket, rootPem: string, serverName: string | null): boolean {
  if (String(socket.authorizationError) !== "SELF_SIGNED_CERT_IN_CHAIN") return false;
  const chain = chainOf(socket);
  if (serverName !== null && chain[0]?.checkHost(serverName) === undefined) return false;
  return leadsToRoot(chain, rootPem, Date.now());
}

function leadsToRoot(chain: readonly X509Certificate[], rootPem: string, nowMs: number): boolean {
  const facts = describeCertificate(chain.map(String).join(""), rootPem);
  return facts.kind === "certificate" && facts.verify(rootPem, nowMs);
}

/** Whether the certificate that the peer showed when it connected leads to one of these roots, and is valid at that time. */
export function isVouchedFor(socket: TLSSocket, rootPem: string, nowMs: number): boolean {
  return leadsToRoot(chainOf(socket), rootPem, nowMs);
}
