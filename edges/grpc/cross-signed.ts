/**
 * Checks a manager's or node's certificate that OpenSSL has rejected for a reason that does not count here:
 *
 * - During a rotation of the cluster's root, a manager shows a leaf of the new root together with a certificate in which the
 *   old root vouches for the new one (docs/reference/swarm-worker-protocol.md §3.6). Both roots have the same name, and
 *   SwarmKit's cross-certificate does not say which key signed it, so OpenSSL considers it self-signed and gives up.
 * - A certificate that a manager signed while its clock was ahead is not valid yet by any other clock (ADR 35).
 */
import type { X509Certificate } from "node:crypto";
import type { TLSSocket } from "node:tls";
import { isChainVouchedFor } from "../../lib/pki/index.ts";

/** Extended key usages (RFC 5280 §4.2.1.12) that OpenSSL would have required. */
const usages = { server: "1.3.6.1.5.5.7.3.1", client: "1.3.6.1.5.5.7.3.2" };

const secondLooks: ReadonlySet<string> = new Set(["SELF_SIGNED_CERT_IN_CHAIN", "CERT_NOT_YET_VALID"]);

/** Longer than the chain of any rotation. */
export const chainLengthMax = 8;

/** Whether the certificate may authenticate a server or a client. */
export function permits(certificate: X509Certificate, usage: keyof typeof usages): boolean {
  // Typed as strings, but absent if the certificate names no usage, which permits all.
  const permitted = certificate.keyUsage as readonly string[] | undefined;
  return permitted?.includes(usages[usage]) !== false;
}

/** The peer's chain as received, its own certificate first. */
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
 * True if OpenSSL rejected the peer's chain as self-signed or not valid yet, but the chain leads to one of the roots and none
 * of its certificates has expired. With `serverName`, the first certificate must carry that name.
 */
export function isTrustedAfterAll(socket: TLSSocket, rootPem: string, serverName: string | null): boolean {
  if (!secondLooks.has(refusalOf(socket))) return false;
  const chain = chainOf(socket);
  const [leaf] = chain;
  if (leaf !== undefined && !permits(leaf, serverName === null ? "client" : "server")) return false;
  if (serverName !== null && leaf?.checkHost(serverName) === undefined) return false;
  return leadsToRoot(chain, rootPem, Date.now());
}

function leadsToRoot(chain: readonly X509Certificate[], rootPem: string, nowMs: number): boolean {
  return isChainVouchedFor(chain.map(String).join(""), rootPem, nowMs);
}

/** Typed as an Error: on a client's socket an Error with a code, on a server's OpenSSL's code as a string. */
function refusalOf(socket: TLSSocket): string {
  const refusal = socket.authorizationError as (Error & { readonly code?: string }) | string | null;
  return typeof refusal === "string" ? refusal : (refusal?.code ?? "");
}

/** Whether the certificate that the peer showed on connecting leads to one of these roots and is not expired at that time. */
export function isVouchedFor(socket: TLSSocket, rootPem: string, nowMs: number): boolean {
  return leadsToRoot(chainOf(socket), rootPem, nowMs);
}
