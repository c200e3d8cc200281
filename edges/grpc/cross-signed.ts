/**
 * The check of a certificate, a manager's or a node's, where OpenSSL has refused it for a reason that does not count here:
 *
 * - While the cluster's root is rotated, a manager shows a leaf of the new root with a certificate in which the old root
 *   vouches for the new one (docs/reference/swarm-worker-protocol.md §3.6). Both roots have the same name, and SwarmKit's
 *   cross-certificate does not say which key signed it, so OpenSSL takes it for self-signed and gives up.
 * - What a manager signed while its clock was ahead is not valid yet by anybody else's clock (ADR 35).
 */
import type { X509Certificate } from "node:crypto";
import type { TLSSocket } from "node:tls";
import { describeCertificate, isInForce } from "../../runtime/pki/index.ts";

/** Extended key usages (RFC 5280 §4.2.1.12), which OpenSSL would have asked for. */
const serverAuth = "1.3.6.1.5.5.7.3.1";
const clientAuth = "1.3.6.1.5.5.7.3.2";

const secondLooks: ReadonlySet<string> = new Set(["SELF_SIGNED_CERT_IN_CHAIN", "CERT_NOT_YET_VALID"]);

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
 * True when OpenSSL refused the peer's chain for being self-signed or not valid yet, and it leads to one of the roots after
 * all, with no certificate of it expired. With `serverName` the first must carry that name.
 */
export function isTrustedAfterAll(socket: TLSSocket, rootPem: string, serverName: string | null): boolean {
  if (!secondLooks.has(refusalOf(socket))) return false;
  const chain = chainOf(socket);
  const [leaf] = chain;
  // Typed as strings alone; absent where the certificate names no usage, which admits each.
  const usages = leaf?.keyUsage as readonly string[] | undefined;
  if (usages?.includes(serverName === null ? clientAuth : serverAuth) === false) return false;
  if (serverName !== null && leaf?.checkHost(serverName) === undefined) return false;
  return leadsToRoot(chain, rootPem, Date.now());
}

function leadsToRoot(chain: readonly X509Certificate[], rootPem: string, nowMs: number): boolean {
  const facts = describeCertificate(chain.map(String).join(""), rootPem);
  return facts.kind === "certificate" && isInForce(facts, rootPem, nowMs);
}

/** Typed as an Error: an Error with a code on a client's socket, and OpenSSL's code as a text on a server's. */
function refusalOf(socket: TLSSocket): string {
  const refusal = socket.authorizationError as (Error & { readonly code?: string }) | string | null;
  return typeof refusal === "string" ? refusal : (refusal?.code ?? "");
}

/** Whether the certificate that the peer showed when it connected leads to one of these roots, and has not expired at that time. */
export function isVouchedFor(socket: TLSSocket, rootPem: string, nowMs: number): boolean {
  return leadsToRoot(chainOf(socket), rootPem, nowMs);
}
