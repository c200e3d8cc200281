/**
 * Keys of NATS whose signatures are made by OpenSSL: the library's own code needs up to 60 ms for one of the two that each answer to the
 * authorization callout has, in the thread that serves everything else (ADR 60).
 */
import { createPrivateKey, sign } from "node:crypto";
import { createAccount, type KeyPair } from "@nats-io/jwt";

/** RFC 4648: the alphabet of keys in NATS. */
const base32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
/** RFC 8410: what precedes the 32 bytes of an Ed25519 key in PKCS #8. */
const pkcs8Prefix = Buffer.from("302e020100300506032b657004220420", "hex");
/** A seed begins with two bytes for its kind, and ends with two of a checksum. */
const [seedFrom, seedTo] = [2, 34];

function bytesOf(text: string): Uint8Array {
  const bytes: number[] = [];
  let [held, bits] = [0, 0];
  for (const letter of text) {
    held = ((held << 5) | base32.indexOf(letter)) & 0xfff;
    bits += 5;
    if (bits < 8) continue;
    bits -= 8;
    bytes.push((held >> bits) & 0xff);
  }
  return Uint8Array.from(bytes);
}

/** A new account's key. */
export function createSigningAccount(): KeyPair {
  const pair = createAccount();
  const seed = bytesOf(new TextDecoder().decode(pair.getSeed())).subarray(seedFrom, seedTo);
  const key = createPrivateKey({ key: Buffer.concat([pkcs8Prefix, seed]), format: "der", type: "pkcs8" });
  const [publicKey, privateKey] = [pair.getPublicKey(), pair.getPrivateKey()];
  return Object.assign(Object.create(pair) as KeyPair, {
    getPublicKey: () => publicKey,
    // For each token the library checks that there is one.
    getPrivateKey: () => privateKey,
    sign: (input: Uint8Array): Uint8Array => sign(null, input, key),
  });
}
