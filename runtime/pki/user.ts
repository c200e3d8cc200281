/**
 * Certificates of users, who drive managers from other machines. They differ from nodes' in all that those are told by:
 *
 * U1: the organizational unit is `userUnit`, the extended key usage client authentication alone, and the only alternative name
 *     one that nobody dials: what a user is called, `swarm-manager` included, makes no server of it.
 * U2: the subject's serial number is the mark of the password under which it was issued: another password voids it.
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

/** What stands for a role in a user's certificate. Nodes' say `swarm-worker` or `swarm-manager`. */
export const userUnit = "muster-user";

export interface UserCertificateRequest {
  /** PEM; of its contents only the public key counts. */
  readonly csrPem: Uint8Array | string;
  /** The signer. When it holds several certificates, the first signs. */
  readonly rootCertificatePem: string;
  readonly rootKeyPem: string;
  /** The user's name. */
  readonly name: string;
  /** U2 */
  readonly mark: string;
  /** The cluster's id. */
  readonly organization: string;
  /** Counted from `nowMs`; the certificate also covers the hour before. */
  readonly validitySeconds: number;
  readonly nowMs: number;
  /** Cross-certificates to deliver after the leaf while a root is being rotated; none when empty. */
  readonly intermediatesPem: string;
}

/** As a node's certificate, for clocks that are behind; in milliseconds. */
const backdateMs = 3_600_000;

/**
 * Signs, and returns the PEM chain: leaf, then intermediates. Throws when the request is none (ask `readCsr` first) or root and
 * key do not fit.
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

/** Until when the first certificate of a PEM text is valid, in milliseconds since the epoch; null when it holds none. */
export function validUntilMs(pem: string): number | null {
  try {
    return new X509Certificate(pem).validToDate.getTime();
  } catch {
    return null;
  }
}
