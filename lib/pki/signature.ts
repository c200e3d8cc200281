/** The signature algorithms in use: those that every engine verifies (docs/reference/swarm-worker-protocol.md §1.2). */
import type { KeyObject } from "node:crypto";
import { Tag, element, oid, sequence } from "./der.ts";

export interface SignatureAlgorithm {
  readonly keyType: "ec" | "rsa";
  /** Digest name for `node:crypto`. */
  readonly hash: "sha256" | "sha384" | "sha512";
  /** AlgorithmIdentifier as encoded in a certificate. */
  readonly identifierDer: Uint8Array;
  readonly oidDer: Uint8Array;
}

function algorithm(keyType: "ec" | "rsa", hash: SignatureAlgorithm["hash"], dotted: string): SignatureAlgorithm {
  const oidDer = oid(dotted);
  // RSA's identifiers carry a NULL parameter, ECDSA's none (RFC 4055, RFC 5758).
  const identifierDer = keyType === "rsa" ? sequence(oidDer, element(0x05)) : sequence(oidDer);
  return { keyType, hash, identifierDer, oidDer };
}

const ecdsaSha256 = algorithm("ec", "sha256", "1.2.840.10045.4.3.2");
const ecdsaSha384 = algorithm("ec", "sha384", "1.2.840.10045.4.3.3");
const ecdsaSha512 = algorithm("ec", "sha512", "1.2.840.10045.4.3.4");
const rsaSha256 = algorithm("rsa", "sha256", "1.2.840.113549.1.1.11");
const rsaSha384 = algorithm("rsa", "sha384", "1.2.840.113549.1.1.12");
const rsaSha512 = algorithm("rsa", "sha512", "1.2.840.113549.1.1.13");

/** The algorithm for a key, with a digest about as strong as the key. Throws for a key that is neither ECDSA nor RSA. */
export function algorithmForKey(key: KeyObject): SignatureAlgorithm {
  if (key.asymmetricKeyType === "rsa") return rsaSha256;
  if (key.asymmetricKeyType !== "ec")
    throw new Error(`unsupported CA key type ${key.asymmetricKeyType}: use ECDSA or RSA`);
  switch (key.asymmetricKeyDetails?.namedCurve) {
    case "secp384r1":
      return ecdsaSha384;
    case "secp521r1":
      return ecdsaSha512;
    default:
      return ecdsaSha256;
  }
}

/** The algorithm whose OBJECT IDENTIFIER has these contents; null if it is not accepted. */
export function algorithmByOid(contents: Uint8Array): SignatureAlgorithm | null {
  const der = Buffer.from(element(Tag.oid, contents));
  return (
    [ecdsaSha256, ecdsaSha384, ecdsaSha512, rsaSha256, rsaSha384, rsaSha512].find((known) =>
      der.equals(known.oidDer),
    ) ?? null
  );
}
