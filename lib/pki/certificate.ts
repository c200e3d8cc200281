/** Reads certificates from other parties: whom they name, who signed them, and when to renew them. */
import { X509Certificate } from "node:crypto";
import { DerReader, Tag, contextTag } from "./der.ts";
import { attributeType, firstAttribute } from "./name.ts";
import { pemBlocks } from "./pem.ts";

export const certificateLabel = "CERTIFICATE";

export type NodeRoleName = "swarm-worker" | "swarm-manager";

export interface CertificateDescription {
  readonly kind: "certificate";
  /** CN of the subject. */
  readonly nodeId: string;
  /** OU of the subject; null if it is neither role. */
  readonly role: NodeRoleName | null;
  /** O of the subject: the cluster's id. */
  readonly organization: string;
  readonly notBeforeMs: number;
  readonly notAfterMs: number;
  /** The issuer's name, byte for byte as in the certificate: `NodeTLSInfo.cert_issuer_subject`. */
  readonly issuerSubjectDer: Uint8Array;
  /**
   * SubjectPublicKeyInfo of the issuer (`NodeTLSInfo.cert_issuer_public_key`), from the intermediates in the PEM or from
   * `rootPem`; null if neither contains the issuer.
   */
  readonly issuerPublicKeyDer: Uint8Array | null;
  /** True if the chain leads to a certificate of `rootPem` and every certificate in it is valid at `nowMs`. */
  verify(rootPem: string, nowMs: number): boolean;
}

export type CertificateOutcome = CertificateDescription | { readonly kind: "malformed"; readonly reason: string };

/** The parts of a certificate that `X509Certificate` does not expose as bytes. */
interface CertificateParts {
  readonly issuerDer: Uint8Array;
  readonly subjectDer: Uint8Array;
  readonly publicKeyDer: Uint8Array;
  readonly subjectKeyId: Uint8Array | null;
  /** Every extension, unmodified and in order. */
  readonly extensions: readonly CertificateExtension[];
}

export interface CertificateExtension {
  /** The whole Extension. */
  readonly der: Uint8Array;
  /** Contents of its OBJECT IDENTIFIER. */
  readonly oid: Uint8Array;
  /** Contents of its OCTET STRING. */
  readonly value: Uint8Array;
  readonly isCritical: boolean;
}

const subjectKeyIdOid = Buffer.from([0x55, 0x1d, 0x0e]);

/** Parses a DER certificate into its parts. Throws DerError. */
export function certificateParts(der: Uint8Array): CertificateParts {
  const fields = new DerReader(der).enter().enter();
  if (fields.peekTag() === contextTag(0)) fields.read();
  fields.read(Tag.integer);
  fields.read(Tag.sequence);
  const issuerDer = Uint8Array.from(fields.read(Tag.sequence).raw);
  fields.read(Tag.sequence);
  const subjectDer = Uint8Array.from(fields.read(Tag.sequence).raw);
  const publicKeyDer = Uint8Array.from(fields.read(Tag.sequence).raw);
  const extensions: CertificateExtension[] = [];
  while (!fields.isAtEnd) {
    const field = fields.read();
    if (field.tag !== contextTag(3)) continue;
    const list = new DerReader(field.contents).enter();
    while (!list.isAtEnd) extensions.push(certificateExtension(Uint8Array.from(list.read(Tag.sequence).raw)));
  }
  const keyId = extensions.find(({ oid }) => subjectKeyIdOid.equals(oid));
  const subjectKeyId =
    keyId === undefined ? null : Uint8Array.from(new DerReader(keyId.value).read(Tag.octetString).contents);
  return { issuerDer, subjectDer, publicKeyDer, subjectKeyId, extensions };
}

function certificateExtension(der: Uint8Array): CertificateExtension {
  const fields = new DerReader(der).enter();
  const oid = fields.read(Tag.oid).contents;
  const isCritical = fields.peekTag() === Tag.boolean && fields.read().contents[0] !== 0;
  return { der, oid, value: fields.read(Tag.octetString).contents, isCritical };
}

function isCurrent(certificate: X509Certificate, nowMs: number): boolean {
  return certificate.validFromDate.getTime() <= nowMs && nowMs <= certificate.validToDate.getTime();
}

function isIssuedBy(certificate: X509Certificate, issuer: X509Certificate): boolean {
  return issuer.ca && certificate.checkIssued(issuer) && certificate.verify(issuer.publicKey);
}

/**
 * Extensions that may be critical. OpenSSL processes keyUsage (15), subjectAltName (17), basicConstraints (19) and extKeyUsage
 * (37), here or in the TLS handshake; cRLDistributionPoints (31) and certificatePolicies (32) restrict nothing.
 */
const knownCritical: readonly Buffer[] = [15, 17, 19, 31, 32, 37].map((last) => Buffer.from([0x55, 0x1d, last]));

export const basicConstraintsOid = Buffer.from([0x55, 0x1d, 0x13]);

/** Whether a critical extension restricts the certificate in a way that nothing here enforces (RFC 5280 §4.2). */
export function hasUnknownCritical({ extensions }: CertificateParts): boolean {
  return extensions.some((each) => each.isCritical && !knownCritical.some((known) => known.equals(each.oid)));
}

/** How many intermediates that are not self-issued may be below the authority (RFC 5280 §4.2.1.9). Throws DerError. */
function pathLengthMax({ extensions }: CertificateParts): number {
  const found = extensions.find(({ oid }) => basicConstraintsOid.equals(oid));
  if (found === undefined) return Infinity;
  const fields = new DerReader(found.value).enter();
  if (fields.peekTag() === Tag.boolean) fields.read();
  if (fields.isAtEnd) return Infinity;
  return fields.read(Tag.integer).contents.reduce((sum, byte) => sum * 256 + byte, 0);
}

function isSelfIssued({ issuerDer, subjectDer }: CertificateParts): boolean {
  return Buffer.compare(issuerDer, subjectDer) === 0;
}

/**
 * Walks from the leaf through the intermediates to one of the roots, visiting each at most once. Throws DerError. P4: no
 * certificate on the way is restricted by an unknown critical extension, and no authority has more intermediates below it than
 * it allows.
 */
function leadsTo(chain: readonly X509Certificate[], roots: readonly X509Certificate[], nowMs: number): boolean {
  let at = chain[0] as X509Certificate;
  if (hasUnknownCritical(certificateParts(at.raw))) return false;
  /** Intermediates so far that count. */
  let depth = 0;
  const mayIssue = (issuer: X509Certificate): boolean => {
    if (!isIssuedBy(at, issuer)) return false;
    const about = certificateParts(issuer.raw);
    return !hasUnknownCritical(about) && depth <= pathLengthMax(about);
  };
  const unused = new Set(chain.slice(1));
  for (;;) {
    if (!isCurrent(at, nowMs)) return false;
    if (roots.some((root) => isCurrent(root, nowMs) && mayIssue(root))) return true;
    const next = [...unused].find(mayIssue);
    if (next === undefined) return false;
    unused.delete(next);
    at = next;
    if (!isSelfIssued(certificateParts(at.raw))) depth += 1;
  }
}

/** The certificates of a PEM text in their order, the same for all who read it. Throws if one is malformed. */
export function certificatesOf(pem: string): readonly X509Certificate[] {
  return pemBlocks(pem, certificateLabel).map((der) => new X509Certificate(der));
}

/** Describes the first certificate of `pem`; the others are its intermediates. Never throws. */
export function describeCertificate(pem: string, rootPem = ""): CertificateOutcome {
  try {
    const chain = certificatesOf(pem);
    const leaf = chain[0];
    if (leaf === undefined) return { kind: "malformed", reason: "not a PEM certificate" };
    const issuer = [...chain.slice(1), ...certificatesOf(rootPem)].find((candidate) => isIssuedBy(leaf, candidate));
    const { issuerDer, subjectDer } = certificateParts(leaf.raw);
    const ou = firstAttribute(subjectDer, attributeType.organizationalUnit);
    return {
      kind: "certificate",
      nodeId: firstAttribute(subjectDer, attributeType.commonName),
      role: ou === "swarm-worker" || ou === "swarm-manager" ? ou : null,
      organization: firstAttribute(subjectDer, attributeType.organization),
      notBeforeMs: leaf.validFromDate.getTime(),
      notAfterMs: leaf.validToDate.getTime(),
      issuerSubjectDer: issuerDer,
      issuerPublicKeyDer: issuer === undefined ? null : certificateParts(issuer.raw).publicKeyDer,
      verify: (roots, nowMs) => {
        try {
          return leadsTo(chain, certificatesOf(roots), nowMs);
        } catch {
          return false; // an unparsable root vouches for nothing
        }
      },
    };
  } catch {
    return { kind: "malformed", reason: "not a certificate" };
  }
}

/**
 * True if the certificate leads to one of the roots and has not expired. Start dates in the future are accepted throughout the
 * chain: a machine whose clock is ahead issues certificates that start ahead, and its peers cannot wait for hours. Nobody signs
 * a certificate before its intended use, so the start date protects nothing.
 */
export function isInForce(certificate: CertificateDescription, rootPem: string, nowMs: number): boolean {
  const { notAfterMs } = certificate;
  return nowMs <= notAfterMs && (certificate.verify(rootPem, nowMs) || certificate.verify(rootPem, notAfterMs));
}

/** Whether the chain leads to one of the roots, and its first certificate has not expired at that time. Never throws. */
export function isChainVouchedFor(chainPem: string, rootPem: string, nowMs: number): boolean {
  const facts = describeCertificate(chainPem, rootPem);
  return facts.kind === "certificate" && isInForce(facts, rootPem, nowMs);
}

const minuteMs = 60_000;

/**
 * When to renew (docs/reference/swarm-worker-protocol.md §3.5): at a whole minute drawn from [50 %, 80 %) of the validity, so
 * that nodes that joined together do not renew together. `fraction` is uniform in [0, 1). A past time means: renew now.
 */
export function renewalInstant(
  validity: { readonly notBeforeMs: number; readonly notAfterMs: number },
  fraction: number,
): number {
  const minutes = Math.floor((validity.notAfterMs - validity.notBeforeMs) / minuteMs);
  // Integer arithmetic: 0.8 is not exact in binary, and 0.8 * 10 must not become 7.
  const from = Math.floor(minutes / 2);
  const to = Math.floor((minutes * 4) / 5);
  return validity.notBeforeMs + (from + Math.floor(fraction * Math.max(0, to - from))) * minuteMs;
}
