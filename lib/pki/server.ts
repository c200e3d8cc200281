/** Certificates for servers that clients outside of the cluster dial, with fixed names and the server's addresses. */
import { generateKeyPair } from "node:crypto";
import { isIPv4, isIPv6 } from "node:net";
import { promisify } from "node:util";
import {
  extension,
  keyIdentifier,
  loadSigner,
  nameAttribute,
  signCertificate,
  subjectKeyIdentifier,
} from "./authority.ts";
import { certificateLabel } from "./certificate.ts";
import { bitString, element, oid, sequence } from "./der.ts";
import { toPem } from "./pem.ts";

export interface ServerIdentityRequest {
  /** PEM; if it contains several certificates, the first one signs. */
  readonly rootCertificatePem: string;
  readonly rootKeyPem: string;
  /** The first becomes the subject's common name; all become alternative names. */
  readonly names: readonly [string, ...string[]];
  /** IPv4 and IPv6 addresses. */
  readonly addresses: readonly string[];
  readonly nowMs: number;
  readonly validityMs: number;
  /** Start of the validity; default: an hour before `nowMs`. */
  readonly notBeforeMs?: number;
  /** Whether it also authenticates a client. Default false, so that nodes' services reject it as a client certificate. */
  readonly isClient?: boolean;
}

/** The validity starts an hour early, as in node certificates, for clocks that are behind. */
const backdateMs = 3_600_000;

const serverAuth = oid("1.3.6.1.5.5.7.3.1");
const clientAuth = oid("1.3.6.1.5.5.7.3.2");

/** The bytes of an iPAddress (RFC 5280 §4.2.1.6); null for an invalid address. */
function addressBytes(address: string): Uint8Array | null {
  if (isIPv4(address)) return Uint8Array.from(address.split(".").map(Number));
  if (!isIPv6(address) || address.includes("%")) return null;
  // The URL parser normalizes every notation, including IPv4 suffixes.
  const [head = "", tail] = new URL(`http://[${address}]`).hostname.slice(1, -1).split("::");
  const groups = (text: string): number[] =>
    text === "" ? [] : text.split(":").map((group) => Number.parseInt(group, 16));
  const [first, last] = [groups(head), groups(tail ?? "")];
  const zeros = tail === undefined ? 0 : 8 - first.length - last.length;
  const all = [...first, ...Array<number>(zeros).fill(0), ...last];
  return Uint8Array.from(all.flatMap((group) => [group >> 8, group & 0xff]));
}

/** Creates a P-256 key and a leaf signed by the root. Throws if root and key do not match. */
export async function createServerIdentity(
  request: ServerIdentityRequest,
): Promise<{ readonly certificatePem: string; readonly keyPem: string; readonly notAfterMs: number }> {
  const signer = loadSigner(request.rootCertificatePem, request.rootKeyPem);
  const { privateKey, publicKey } = await promisify(generateKeyPair)("ec", { namedCurve: "P-256" });
  const publicKeyDer = publicKey.export({ format: "der", type: "spki" });
  const notAfterMs = request.nowMs + request.validityMs;
  const alternatives = [
    // dNSName is [2] IMPLICIT IA5String, iPAddress [7] IMPLICIT OCTET STRING.
    ...request.names.map((name) => element(0x82, Buffer.from(name, "latin1"))),
    ...request.addresses
      .map(addressBytes)
      .filter((bytes) => bytes !== null)
      .map((bytes) => element(0x87, bytes)),
  ];
  const der = signCertificate(
    {
      issuerDer: signer.subjectDer,
      subjectDer: sequence(nameAttribute(oid("2.5.4.3"), request.names[0])),
      publicKeyDer,
      notBeforeMs: request.notBeforeMs ?? request.nowMs - backdateMs,
      notAfterMs,
      extensions: [
        // digitalSignature
        extension("2.5.29.15", true, bitString(Uint8Array.of(0b1000_0000), 7)),
        extension("2.5.29.37", false, sequence(serverAuth, ...(request.isClient === true ? [clientAuth] : []))),
        extension("2.5.29.19", true, sequence()),
        subjectKeyIdentifier(keyIdentifier(publicKeyDer)),
        signer.authorityKeyIdentifier,
        extension("2.5.29.17", false, sequence(...alternatives)),
      ],
    },
    signer.key,
    signer.algorithm,
  );
  return {
    certificatePem: toPem(der, certificateLabel),
    keyPem: privateKey.export({ format: "pem", type: "pkcs8" }) as string,
    notAfterMs,
  };
}
