/**
 * Root rotation: the requirements for a new root, the certificate by which the old root vouches for the new one, and the
 * request for such a certificate to an external CA that holds the old root's key.
 *
 * P3: a cross-certificate has exactly the new root's name, key, validity and key identifier, so that one node certificate
 *     leads to either root.
 */
import { createPrivateKey, sign, X509Certificate, type KeyObject } from "node:crypto";
import { loadSigner, signCertificate } from "./authority.ts";
import {
  basicConstraintsOid,
  certificateLabel,
  certificateParts,
  hasUnknownCritical,
  type CertificateExtension,
} from "./certificate.ts";
import { DerError, DerReader, Tag, bitString, contextTag, element, oid, sequence, unsignedInteger } from "./der.ts";
import { attributeType, firstAttribute } from "./name.ts";
import { pemBlocks, toPem } from "./pem.ts";
import { algorithmByOid, algorithmForKey } from "./signature.ts";

export type RootOutcome =
  | {
      readonly kind: "root";
      /** In canonical form, as compared, hashed and sent to nodes. */
      readonly certificatePem: string;
      /** Number of certificates in the PEM; a cluster's root must be a single one. */
      readonly count: number;
      readonly notAfterMs: number;
    }
  | { readonly kind: "refused"; readonly reason: string };

/** Identifies an issuer: the name that node certificates contain, and the key that distinguishes two issuers. */
export interface IssuerName {
  readonly subjectDer: Uint8Array;
  readonly publicKeyDer: Uint8Array;
}

const authorityKeyIdOid = Buffer.from([0x55, 0x1d, 0x23]);

/** The certificates of a PEM text in canonical form, without anything else in it. Empty if there are none. */
export function normalizePem(pem: string): string {
  return pemBlocks(pem, certificateLabel)
    .map((der) => toPem(der, certificateLabel))
    .join("");
}

/** The certificates after the first one of a chain, each as a separate text. */
export function intermediatesOf(chainPem: string): readonly string[] {
  return pemBlocks(chainPem, certificateLabel)
    .slice(1)
    .map((der) => toPem(der, certificateLabel));
}

function refused(reason: string): RootOutcome {
  return { kind: "refused", reason };
}

/** Why a certificate cannot be a root, in Go's words where Go has some; null if it can. */
function objection(certificate: X509Certificate, nowMs: number): string | null {
  const fields = new DerReader(certificate.raw).enter();
  fields.read(Tag.sequence);
  if (algorithmByOid(fields.enter().read(Tag.oid).contents) === null) return "unsupported signature algorithm";
  if (nowMs < certificate.validFromDate.getTime() || nowMs > certificate.validToDate.getTime())
    return "error while validating Root CA Certificate: x509: certificate has expired or is not yet valid";
  if (!certificate.ca || !certificate.checkIssued(certificate) || !certificate.verify(certificate.publicKey))
    return "error while validating Root CA Certificate: x509: certificate signed by unknown authority";
  if (hasUnknownCritical(certificateParts(certificate.raw)))
    return "error while validating Root CA Certificate: x509: unhandled critical extension";
  return null;
}

/** A key whose type and size every engine can verify; null for any other text. */
function usableKey(keyPem: string): KeyObject | null {
  try {
    const key = createPrivateKey(keyPem);
    return key.asymmetricKeyType === "ec" || key.asymmetricKeyType === "rsa" ? key : null;
  } catch {
    return null;
  }
}

/**
 * Checks whether certificates (PEM) can be a cluster's root, with their key (PEM) if given. Texts are SwarmKit's. Never throws.
 */
export function checkRoot(certificatePem: string, keyPem: string | null, nowMs: number): RootOutcome {
  let certificates: readonly X509Certificate[];
  let reason: string | null;
  try {
    certificates = pemBlocks(certificatePem, certificateLabel).map((der) => new X509Certificate(der));
    reason = certificates.map((each) => objection(each, nowMs)).find((each) => each !== null) ?? null;
  } catch {
    return refused("invalid root certificates: not X.509");
  }
  const [first] = certificates;
  if (first === undefined) return refused("no valid root CA certificates found");
  if (reason !== null) return refused(reason);
  if (keyPem !== null) {
    const key = usableKey(keyPem);
    if (key === null) return refused("malformed private key");
    if (!first.checkPrivateKey(key)) return refused("certificate key mismatch");
  }
  return {
    kind: "root",
    certificatePem: certificates.map(({ raw }) => toPem(raw, certificateLabel)).join(""),
    count: certificates.length,
    notAfterMs: first.validToDate.getTime(),
  };
}

/** Name and key of the first certificate; null if there is none. Never throws. */
export function issuerName(rootPem: string): IssuerName | null {
  const [der] = pemBlocks(rootPem, certificateLabel);
  if (der === undefined) return null;
  try {
    const { subjectDer, publicKeyDer } = certificateParts(der);
    return { subjectDer, publicKeyDer };
  } catch (error) {
    if (error instanceof DerError) return null;
    throw error;
  }
}

function firstDer(pem: string): Uint8Array {
  const [der] = pemBlocks(pem, certificateLabel);
  if (der === undefined) throw new Error("the new root is not PEM");
  return der;
}

/** The new root's extensions, except the authority key identifier. */
function ownExtensions(extensions: readonly CertificateExtension[]): readonly Uint8Array[] {
  return extensions.filter((each) => !authorityKeyIdOid.equals(each.oid)).map(({ der }) => der);
}

/**
 * The new root, signed by the old one. Nodes get it with certificates of the new root while they trust only the old one. Throws
 * if the old root's certificate and key do not match. P3
 */
export function crossSign(newRootPem: string, oldRootPem: string, oldKeyPem: string): string {
  const signer = loadSigner(oldRootPem, oldKeyPem);
  const der = firstDer(newRootPem);
  const { subjectDer, publicKeyDer, extensions } = certificateParts(der);
  const { validFromDate, validToDate } = new X509Certificate(der);
  const cross = signCertificate(
    {
      issuerDer: signer.subjectDer,
      subjectDer,
      publicKeyDer,
      notBeforeMs: validFromDate.getTime(),
      notAfterMs: validToDate.getTime(),
      // OpenSSL treats a certificate with equal names as self-signed unless this extension names another key.
      extensions: [...ownExtensions(extensions), signer.authorityKeyIdentifier],
    },
    signer.key,
    signer.algorithm,
  );
  return toPem(cross, certificateLabel);
}

/** The request to an external CA that holds the old root's key. */
export interface CrossSignRequest {
  /** PKCS#10 for the new root's name and key, signed by that key. */
  readonly csrPem: string;
  readonly commonName: string;
  /** Contents of the basic constraints extension, sent separately because signers ignore it in a request. */
  readonly basicConstraints: { readonly isCritical: boolean; readonly value: Uint8Array } | null;
}

/** Throws if the new root's certificate and key do not match. */
export function crossSignRequest(newRootPem: string, newKeyPem: string): CrossSignRequest {
  const signer = loadSigner(newRootPem, newKeyPem);
  const der = firstDer(newRootPem);
  const { subjectDer, publicKeyDer, extensions } = certificateParts(der);
  const algorithm = algorithmForKey(signer.key);
  const extensionRequest = sequence(
    oid("1.2.840.113549.1.9.14"),
    element(Tag.set, sequence(...ownExtensions(extensions))),
  );
  const body = sequence(
    unsignedInteger(Uint8Array.of(0)),
    subjectDer,
    publicKeyDer,
    element(contextTag(0), extensionRequest),
  );
  const request = sequence(body, algorithm.identifierDer, bitString(sign(algorithm.hash, body, signer.key)));
  const constraints = extensions.find((each) => basicConstraintsOid.equals(each.oid));
  return {
    csrPem: toPem(request, "CERTIFICATE REQUEST"),
    commonName: firstAttribute(subjectDer, attributeType.commonName),
    basicConstraints:
      constraints === undefined ? null : { isCritical: constraints.isCritical, value: constraints.value },
  };
}
