/**
 * The cluster's certificate authority: creates the root and signs node certificates with the fields that stock engines
 * require (docs/reference/swarm-worker-protocol.md §3.2, §3.3). Certificates are written from a DER template rather than
 * through an ASN.1 object model: signing for 1,000 nodes that join together takes a fraction of a second of CPU.
 *
 * P2: the issuer's name in a node certificate is byte for byte the signer's subject; Go compares them raw.
 */
import {
  createHash,
  createPrivateKey,
  generateKeyPair,
  randomBytes,
  sign,
  X509Certificate,
  type KeyObject,
} from "node:crypto";
import { promisify } from "node:util";
import { certificateLabel, certificateParts, type NodeRoleName } from "./certificate.ts";
import { readCsr } from "./csr.ts";
import {
  DerReader,
  Tag,
  bitString,
  contextTag,
  directoryString,
  element,
  oid,
  sequence,
  time,
  unsignedInteger,
} from "./der.ts";
import { pemBlocks, toPem } from "./pem.ts";
import { algorithmForKey, type SignatureAlgorithm } from "./signature.ts";

const generateKeyPairAsync = promisify(generateKeyPair);

const minuteMs = 60_000;
/** 20 years, as in SwarmKit's root. */
const rootValiditySeconds = 630_720_000;
/** SwarmKit's root starts 5 minutes early, for clocks that are behind. */
const rootBackdateMs = 5 * minuteMs;
/** SwarmKit's node certificates start an hour early; their validity is counted from the signing. */
const nodeBackdateMs = 60 * minuteMs;
/** 158 random bits: positive, and within the 20 bytes that RFC 5280 §4.1.2.2 allows a serial number. */
const serialBytes = 20;

const trueDer = element(Tag.boolean, Uint8Array.of(0xff));

export function extension(dotted: string, isCritical: boolean, value: Uint8Array): Uint8Array {
  const octets = element(Tag.octetString, value);
  return isCritical ? sequence(oid(dotted), trueDer, octets) : sequence(oid(dotted), octets);
}

// keyUsage bits are numbered from the top: digitalSignature 0, keyEncipherment 2; keyCertSign 5, cRLSign 6.
const nodeKeyUsage = extension("2.5.29.15", true, bitString(Uint8Array.of(0b1010_0000), 5));
const rootKeyUsage = extension("2.5.29.15", true, bitString(Uint8Array.of(0b0000_0110), 1));
const rootBasicConstraints = extension("2.5.29.19", true, sequence(trueDer));
const nodeBasicConstraints = extension("2.5.29.19", true, sequence());
/** Server and client authentication: every engine, workers included, checks its own new certificate for serverAuth. */
const nodeExtendedKeyUsage = extension(
  "2.5.29.37",
  false,
  sequence(oid("1.3.6.1.5.5.7.3.1"), oid("1.3.6.1.5.5.7.3.2")),
);
const versionThree = element(contextTag(0), unsignedInteger(Uint8Array.of(2)));

const oidCommonName = oid("2.5.4.3");
const oidOrganization = oid("2.5.4.10");
const oidOrganizationalUnit = oid("2.5.4.11");

export function nameAttribute(type: Uint8Array, value: string): Uint8Array {
  return element(Tag.set, sequence(type, directoryString(value)));
}

/** Hash of the key's bits, without tag and unused-bits byte (RFC 5280 §4.2.1.2, method 1; an identifier, not for security). */
export function keyIdentifier(publicKeyDer: Uint8Array): Uint8Array {
  const spki = new DerReader(publicKeyDer).enter();
  spki.read(Tag.sequence);
  return createHash("sha1").update(spki.read(Tag.bitString).contents.subarray(1)).digest();
}

export function subjectKeyIdentifier(id: Uint8Array): Uint8Array {
  return extension("2.5.29.14", false, element(Tag.octetString, id));
}

interface Template {
  readonly issuerDer: Uint8Array;
  readonly subjectDer: Uint8Array;
  readonly publicKeyDer: Uint8Array;
  readonly notBeforeMs: number;
  readonly notAfterMs: number;
  readonly extensions: readonly Uint8Array[];
}

export function signCertificate(template: Template, key: KeyObject, algorithm: SignatureAlgorithm): Uint8Array {
  const serial = randomBytes(serialBytes);
  serial[0] = ((serial[0] as number) & 0x7f) | 0x01;
  const body = sequence(
    versionThree,
    unsignedInteger(serial),
    algorithm.identifierDer,
    template.issuerDer,
    sequence(time(template.notBeforeMs), time(template.notAfterMs)),
    template.subjectDer,
    template.publicKeyDer,
    element(contextTag(3), sequence(...template.extensions)),
  );
  return sequence(body, algorithm.identifierDer, bitString(sign(algorithm.hash, body, key)));
}

function floorToMinute(atMs: number): number {
  return Math.floor(atMs / minuteMs) * minuteMs;
}

interface RootOptions {
  readonly nowMs?: number;
  /** Common name; default `swarm-ca`. */
  readonly name?: string;
  /** Default: 20 years from `nowMs`. */
  readonly validity?: { readonly notBeforeMs: number; readonly notAfterMs: number };
}

/** Creates a self-signed root with a new P-256 key (PKCS#8 PEM). */
export async function createRoot(options: RootOptions = {}): Promise<{ certificatePem: string; keyPem: string }> {
  const { privateKey, publicKey } = await generateKeyPairAsync("ec", { namedCurve: "P-256" });
  const name = sequence(nameAttribute(oidCommonName, options.name ?? "swarm-ca"));
  const publicKeyDer = publicKey.export({ format: "der", type: "spki" });
  const earlyMs = floorToMinute((options.nowMs ?? Date.now()) - rootBackdateMs);
  const validity = options.validity ?? { notBeforeMs: earlyMs, notAfterMs: earlyMs + rootValiditySeconds * 1_000 };
  const der = signCertificate(
    {
      issuerDer: name,
      subjectDer: name,
      publicKeyDer,
      ...validity,
      extensions: [rootKeyUsage, rootBasicConstraints, subjectKeyIdentifier(keyIdentifier(publicKeyDer))],
    },
    privateKey,
    algorithmForKey(privateKey),
  );
  return {
    certificatePem: toPem(der, certificateLabel),
    keyPem: privateKey.export({ format: "pem", type: "pkcs8" }) as string,
  };
}

/** The parts of a signer that are the same for all certificates. */
interface Signer {
  readonly certificatePem: string;
  readonly keyPem: string;
  readonly key: KeyObject;
  readonly algorithm: SignatureAlgorithm;
  readonly subjectDer: Uint8Array;
  readonly authorityKeyIdentifier: Uint8Array;
}

/** Throws if certificate or key is not PEM, or they do not match. */
export function loadSigner(certificatePem: string, keyPem: string): Signer {
  const der = pemBlocks(certificatePem, certificateLabel)[0];
  if (der === undefined) throw new Error("the root certificate is not PEM");
  const key = createPrivateKey(keyPem);
  if (!new X509Certificate(der).checkPrivateKey(key))
    throw new Error("the root key does not match the root certificate");
  const parts = certificateParts(der);
  const keyId = parts.subjectKeyId ?? keyIdentifier(parts.publicKeyDer);
  return {
    certificatePem,
    keyPem,
    key,
    algorithm: algorithmForKey(key),
    subjectDer: parts.subjectDer,
    // AuthorityKeyIdentifier.keyIdentifier is [0] IMPLICIT OCTET STRING: a primitive context tag.
    authorityKeyIdentifier: extension("2.5.29.35", false, sequence(element(0x80, keyId))),
  };
}

let lastSigner: Signer | null = null;

/** Caches signers: loading a key costs more than signing. A process signs with one root, or two during a rotation. */
function signerFor(certificatePem: string, keyPem: string): Signer {
  if (lastSigner?.certificatePem !== certificatePem || lastSigner.keyPem !== keyPem)
    lastSigner = loadSigner(certificatePem, keyPem);
  return lastSigner;
}

export interface IssueRequest {
  readonly csrPem: Uint8Array | string;
  /** The signer. If it contains several certificates, the first one signs. */
  readonly rootCertificatePem: string;
  readonly rootKeyPem: string;
  readonly nodeId: string;
  readonly role: NodeRoleName;
  /** The cluster's id. */
  readonly organization: string;
  /** Counted from `nowMs`; the certificate also covers the preceding hour. */
  readonly validitySeconds: number;
  readonly nowMs: number;
  /** Cross-certificates to append after the leaf during a root rotation. */
  readonly intermediatesPem?: string;
}

/** DNS names that a node answers to: managers are also dialled as the CA (§3.1). */
function subjectAltNames(role: NodeRoleName, nodeId: string): Uint8Array {
  const names = role === "swarm-manager" ? [role, nodeId, "swarm-ca"] : [role, nodeId];
  // dNSName is [2] IMPLICIT IA5String.
  return extension("2.5.29.17", false, sequence(...names.map((name) => element(0x82, Buffer.from(name, "latin1")))));
}

/**
 * Signs a node certificate and returns its PEM chain: leaf, then intermediates. Rejects with an Error if the request is
 * invalid (check expected failures with `readCsr` first) or the root and its key do not match.
 */
export async function issue(request: IssueRequest): Promise<string> {
  const csr = readCsr(request.csrPem);
  if (csr.kind === "refused") throw new Error(csr.reason);
  const signer = signerFor(request.rootCertificatePem, request.rootKeyPem);
  const leaf = signCertificate(
    {
      issuerDer: signer.subjectDer,
      subjectDer: sequence(
        nameAttribute(oidOrganization, request.organization),
        nameAttribute(oidOrganizationalUnit, request.role),
        nameAttribute(oidCommonName, request.nodeId),
      ),
      publicKeyDer: csr.publicKeyDer,
      notBeforeMs: floorToMinute(request.nowMs - nodeBackdateMs),
      notAfterMs: floorToMinute(request.nowMs) + request.validitySeconds * 1_000,
      extensions: [
        nodeKeyUsage,
        nodeExtendedKeyUsage,
        nodeBasicConstraints,
        subjectKeyIdentifier(keyIdentifier(csr.publicKeyDer)),
        signer.authorityKeyIdentifier,
        subjectAltNames(request.role, request.nodeId),
      ],
    },
    signer.key,
    signer.algorithm,
  );
  return toPem(leaf, certificateLabel) + (request.intermediatesPem ?? "");
}
