/**
 * Certificates of users, who control managers from other machines. They differ from node certificates in everything that
 * identifies those:
 *
 * U1: the organizational unit is `userUnit`, the only extended key usage is client authentication, and the only alternative
 *     name is one that nobody dials: no user name, not even `swarm-manager`, makes the certificate usable for a server.
 * U2: the subject's serial number is the mark of the password under which it was issued: a new password voids it.
 */
import { X509Certificate } from "node:crypto";
import {
  extension,
  keyIdentifier,
  loadSigner,
  nameAttribute,
  signCertificate,
  subjectKeyIdentifier,
} from "./authority.ts";
import { certificateLabel } from "./certificate.ts";
import { readCsr } from "./csr.ts";
import { bitString, element, oid, sequence } from "./der.ts";
import { toPem } from "./pem.ts";

/** The organizational unit of users' certificates; those of nodes have `swarm-worker` or `swarm-manager`. */
export const userUnit = "muster-user";

export interface UserCertificateRequest {
  /** PEM; only its public key is used. */
  readonly csrPem: Uint8Array | string;
  /** The signer. If it contains several certificates, the first one signs. */
  readonly rootCertificatePem: string;
  readonly rootKeyPem: string;
  /** The user's name. */
  readonly name: string;
  /** U2 */
  readonly mark: string;
  /** The cluster's id. */
  readonly organization: string;
  /** Counted from `nowMs`; the certificate also covers the preceding hour. */
  readonly validitySeconds: number;
  readonly nowMs: number;
  /** Cross-certificates to append after the leaf during a root rotation; otherwise empty. */
  readonly intermediatesPem: string;
}

/** Milliseconds by which the validity starts early, as in node certificates, for clocks that are behind. */
const backdateMs = 3_600_000;

/**
 * Signs the request and returns the PEM chain: leaf, then intermediates. Throws if the request is invalid (check it with
 * `readCsr` first) or root and key do not match.
 */
export function issueUserCertificate(request: UserCertificateRequest): string {
  const csr = readCsr(request.csrPem);
  if (csr.kind === "refused") throw new Error(csr.reason);
  const signer = loadSigner(request.rootCertificatePem, request.rootKeyPem);
  const der = signCertificate(
    {
      issuerDer: signer.subjectDer,
      subjectDer: sequence(
        nameAttribute(oid("2.5.4.10"), request.organization),
        nameAttribute(oid("2.5.4.11"), userUnit),
        nameAttribute(oid("2.5.4.3"), request.name),
        nameAttribute(oid("2.5.4.5"), request.mark),
      ),
      publicKeyDer: csr.publicKeyDer,
      notBeforeMs: request.nowMs - backdateMs,
      notAfterMs: request.nowMs + request.validitySeconds * 1_000,
      extensions: [
        // digitalSignature
        extension("2.5.29.15", true, bitString(Uint8Array.of(0b1000_0000), 7)),
        extension("2.5.29.37", false, sequence(oid("1.3.6.1.5.5.7.3.2"))),
        extension("2.5.29.19", true, sequence()),
        subjectKeyIdentifier(keyIdentifier(csr.publicKeyDer)),
        signer.authorityKeyIdentifier,
        // Without a dNSName, OpenSSL would compare host names with the common name.
        extension("2.5.29.17", false, sequence(element(0x82, Buffer.from(userUnit, "latin1")))),
      ],
    },
    signer.key,
    signer.algorithm,
  );
  return toPem(der, certificateLabel) + request.intermediatesPem;
}

/** End of the validity of the first certificate in a PEM text, in milliseconds since the epoch; null if there is none. */
export function validUntilMs(pem: string): number | null {
  try {
    return new X509Certificate(pem).validToDate.getTime();
  } catch {
    return null;
  }
}
