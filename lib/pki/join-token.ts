/**
 * Join tokens in SwarmKit's format (docs/reference/swarm-worker-protocol.md §1.1): a digest that pins the root certificate
 * and a secret that determines the role.
 */
import { createHash, timingSafeEqual } from "node:crypto";

const digestDigits = 50;
const secretDigits = 25;
/** Bytes of a secret: 128 bits need 25 digits in base 36. */
export const joinSecretBytes = 16;

export type JoinToken =
  | {
      readonly kind: "token";
      /** The whole token, which managers compare. */
      readonly text: string;
      /** SHA-256 of the root's PEM, in hex: 64 digits. */
      readonly digestHex: string;
      /** True if only engines in FIPS mode may use it. */
      readonly requiresFips: boolean;
    }
  | { readonly kind: "invalid" };

function base36(bytes: Uint8Array, digits: number): string {
  let value = 0n;
  for (const byte of bytes) value = (value << 8n) | BigInt(byte);
  return value.toString(36).padStart(digits, "0");
}

function sha256(bytes: Uint8Array): Buffer {
  return createHash("sha256").update(bytes).digest();
}

/** The token for a root certificate (its exact PEM bytes) and a secret of `joinSecretBytes` random bytes. */
export function makeJoinToken(rootPem: Uint8Array, secret: Uint8Array): string {
  if (secret.length !== joinSecretBytes) throw new RangeError(`a join secret has ${joinSecretBytes} bytes`);
  return `SWMTKN-1-${base36(sha256(rootPem), digestDigits)}-${base36(secret, secretDigits)}`;
}

const pattern = new RegExp(`^SWMTKN-(?:1|2-([01]))-([0-9a-z]{${digestDigits}})-([0-9a-z]{${secretDigits}})$`);

export function parseJoinToken(text: string): JoinToken {
  const match = pattern.exec(text);
  if (match === null) return { kind: "invalid" };
  let digest = 0n;
  for (const digit of match[2] as string) digest = digest * 36n + BigInt(Number.parseInt(digit, 36));
  const digestHex = digest.toString(16).padStart(64, "0");
  // 50 base-36 digits can exceed 256 bits.
  if (digestHex.length > 64) return { kind: "invalid" };
  return { kind: "token", text, digestHex, requiresFips: match[1] === "1" };
}

/** True if `rootPem` is, byte for byte, the certificate that the token pins. */
export function rootMatches(token: Extract<JoinToken, { kind: "token" }>, rootPem: Uint8Array): boolean {
  return timingSafeEqual(sha256(rootPem), Buffer.from(token.digestHex, "hex"));
}

/** Compares two secrets in constant time. */
export function isSameToken(left: string, right: string): boolean {
  return timingSafeEqual(sha256(Buffer.from(left)), sha256(Buffer.from(right)));
}
