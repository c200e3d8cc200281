/**
 * Certificates by which two processes on one machine authenticate each other: each creates its own, hands it over through a
 * channel that only the other can read, and then trusts exactly that one (Nomad's plugins, reference §1.3).
 */
import { generateKeyPair } from "node:crypto";
import { promisify } from "node:util";
import { extension, keyIdentifier, nameAttribute, signCertificate, subjectKeyIdentifier } from "./authority.ts";
import { certificateLabel } from "./certificate.ts";
import { Tag, bitString, element, oid, sequence } from "./der.ts";
import { toPem } from "./pem.ts";
import { algorithmForKey } from "./signature.ts";

export interface LocalIdentity {
  readonly certificatePem: string;
  readonly certificateDer: Uint8Array;
  /** PKCS#8. */
  readonly keyPem: string;
}

/** go-plugin's validity: from half a minute ago, for clocks that differ, to 30 years ahead. */
const backdateMs = 30_000;
const validityMs = 262_980 * 3_600_000;

const trueDer = element(Tag.boolean, Uint8Array.of(0xff));

/**
 * Creates a key with a self-signed certificate for `localhost`, valid for both ends of a connection. `nowMs` since the epoch.
 */
export async function createLocalIdentity(nowMs: number): Promise<LocalIdentity> {
  const { privateKey, publicKey } = await promisify(generateKeyPair)("ec", { namedCurve: "P-256" });
  const name = sequence(
    nameAttribute(oid("2.5.4.10"), "HashiCorp"), // Go peers do not check this; their own certificates contain it
    nameAttribute(oid("2.5.4.3"), "localhost"),
  );
  const publicKeyDer = publicKey.export({ format: "der", type: "spki" });
  const certificateDer = signCertificate(
    {
      issuerDer: name,
      subjectDer: name,
      publicKeyDer,
      notBeforeMs: nowMs - backdateMs,
      notAfterMs: nowMs + validityMs,
      extensions: [
        // It is its own root, so it needs certSign (bit 5) besides digitalSignature (0), keyEncipherment (2), keyAgreement (4).
        extension("2.5.29.15", true, bitString(Uint8Array.of(0b1010_1100), 2)),
        extension("2.5.29.37", false, sequence(oid("1.3.6.1.5.5.7.3.2"), oid("1.3.6.1.5.5.7.3.1"))),
        extension("2.5.29.19", true, sequence(trueDer)),
        subjectKeyIdentifier(keyIdentifier(publicKeyDer)),
        extension("2.5.29.17", false, sequence(element(0x82, Buffer.from("localhost", "latin1")))),
      ],
    },
    privateKey,
    algorithmForKey(privateKey),
  );
  return {
    certificatePem: toPem(certificateDer, certificateLabel),
    certificateDer,
    keyPem: privateKey.export({ format: "pem", type: "pkcs8" }) as string,
  };
}
