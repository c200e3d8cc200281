/**
 * Certificate requests (PKCS#10), as engines create them and as the CA reads them: only the public key of a request is ever
 * used (docs/reference/swarm-worker-protocol.md §3.4).
 *
 * P1: a request is accepted only if its own key signed it.
 */
import { createPublicKey, generateKeyPair, sign, verify, type KeyObject } from "node:crypto";
import { promisify } from "node:util";
import { DerError, DerReader, Tag, bitString, contextTag, element, sequence, unsignedInteger } from "./der.ts";
import { attributesOf } from "./name.ts";
import { pemBlocks, toPem } from "./pem.ts";
import { algorithmByOid, algorithmForKey } from "./signature.ts";

const label = "CERTIFICATE REQUEST";
const generateKeyPairAsync = promisify(generateKeyPair);

export type CsrOutcome =
  | { readonly kind: "csr"; /** SubjectPublicKeyInfo. */ readonly publicKeyDer: Uint8Array }
  | { readonly kind: "refused"; readonly reason: string };

/** Creates a P-256 key (PKCS#8 PEM) and a request for it with an empty subject and no attributes. */
export async function createKeyAndCsr(): Promise<{ keyPem: string; csrPem: string }> {
  const { privateKey, publicKey } = await generateKeyPairAsync("ec", { namedCurve: "P-256" });
  const algorithm = algorithmForKey(publicKey);
  const body = sequence(
    unsignedInteger(Uint8Array.of(0)),
    sequence(),
    publicKey.export({ format: "der", type: "spki" }),
    element(contextTag(0)),
  );
  const request = sequence(body, algorithm.identifierDer, bitString(sign(algorithm.hash, body, privateKey)));
  return { keyPem: privateKey.export({ format: "pem", type: "pkcs8" }) as string, csrPem: toPem(request, label) };
}

function isAcceptableKey(key: KeyObject): boolean {
  const details = key.asymmetricKeyDetails;
  if (key.asymmetricKeyType === "ec")
    return ["prime256v1", "secp384r1", "secp521r1"].includes(details?.namedCurve ?? "");
  // Engines accept RSA keys of 2048 bits and more (§3.2).
  return key.asymmetricKeyType === "rsa" && (details?.modulusLength ?? 0) >= 2048;
}

/** Size of the cache of parsed requests: more than join concurrently. The oldest entry is evicted first. */
const rememberedMax = 256;
/** Longer requests are not cached; those for 4,096-bit RSA keys have 1,700 characters. */
const rememberedCharactersMax = 4_096;
const remembered = new Map<string, CsrOutcome>();

/**
 * Parses one PEM request, as text or as the bytes of a `csr` field. Never throws. Recent results are cached: the signer reads
 * the request again after it was checked, and verifying its signature costs as much as signing.
 */
export function readCsr(pem: Uint8Array | string): CsrOutcome {
  const text = typeof pem === "string" ? pem : Buffer.from(pem.buffer, pem.byteOffset, pem.length).toString("latin1");
  const known = remembered.get(text);
  if (known !== undefined) return known;
  const outcome = parseCsr(text);
  if (text.length > rememberedCharactersMax) return outcome;
  remembered.set(text, outcome);
  const [oldest] = remembered.keys();
  if (remembered.size > rememberedMax && oldest !== undefined) remembered.delete(oldest);
  return outcome;
}

/** Throws DerError unless each is an identifier with a set of values, which are not used. */
function checkAttributes(attributes: DerReader): void {
  while (!attributes.isAtEnd) {
    const attribute = attributes.enter();
    attribute.read(Tag.oid);
    const values = attribute.enter(Tag.set);
    while (!values.isAtEnd) values.read();
    attribute.finish();
  }
}

function parseCsr(text: string): CsrOutcome {
  const [der, ...more] = pemBlocks(text, label);
  if (der === undefined || more.length > 0) return { kind: "refused", reason: "not one PEM certificate request" };
  try {
    const outer = new DerReader(der);
    const request = outer.enter();
    outer.finish();
    const body = request.read(Tag.sequence);
    const algorithm = algorithmByOid(request.enter().read(Tag.oid).contents);
    const signature = request.read(Tag.bitString).contents;
    request.finish();
    const fields = new DerReader(body.contents);
    if (fields.read(Tag.integer).contents.some((byte) => byte !== 0))
      return { kind: "refused", reason: "version not accepted" };
    // The form of a name; its texts are not used.
    Array.from(attributesOf(fields.read(Tag.sequence).raw));
    const publicKeyDer = fields.read(Tag.sequence).raw;
    if (!fields.isAtEnd) checkAttributes(fields.enter(contextTag(0)));
    fields.finish();
    if (algorithm === null || signature[0] !== 0)
      return { kind: "refused", reason: "signature algorithm not accepted" };
    const key = createPublicKey({ key: Buffer.from(publicKeyDer), format: "der", type: "spki" });
    if (!isAcceptableKey(key)) return { kind: "refused", reason: "public key type or size not accepted" };
    if (algorithm.keyType !== key.asymmetricKeyType || !verify(algorithm.hash, body.raw, key, signature.subarray(1))) {
      return { kind: "refused", reason: "not signed by its own key" };
    }
    return { kind: "csr", publicKeyDer: Uint8Array.from(publicKeyDer) };
  } catch (error) {
    return {
      kind: "refused",
      reason: error instanceof DerError ? `not a certificate request: ${error.message}` : "not a usable public key",
    };
  }
}
