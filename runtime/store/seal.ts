/**
 * Sealing: nobody without the key can read the data, or change it undetected. AES-256-GCM, not under the given key but under
 * one derived from it with the first half of the nonce, which each process draws again after a number of seals: so neither the
 * number of records nor two leaders that seal different records for one place of the log repeat a GCM nonce under one key.
 *
 * E1: data sealed for one place (a sequence, a name) does not open at another.
 */
// From node:, as in record.ts: WebCrypto is asynchronous, but applying a record must not be.
import { createCipheriv, createDecipheriv, createHmac, createSecretKey, hash, type KeyObject } from "node:crypto";
import { Sealed } from "../../proto/gen/messages.ts";
import type { Random } from "../ports/index.ts";
import { equalBytes } from "./record.ts";

/** Size of every key here: AES-256. */
export const sealKeyBytes = 32;
const choiceBytes = 16;
const nonceBytes = 12;
export const sealTagBytes = 16;
/** The choice of the derived key, and GCM's own nonce. */
export const sealNonceBytes = choiceBytes + nonceBytes;
const cipher = "aes-256-gcm";

/**
 * Maximum size that sealing adds to a record: nonce, tag, a key id of at most 32 characters, and the tags and lengths of both
 * messages.
 */
export const sealOverheadBytes = 112;

interface SealingKey {
  readonly id: string;
  readonly key: Uint8Array;
}

/** Seals per derived key. With random 96-bit nonces, the chance of a collision among this many is 2^-57. */
const choiceUsesMax = 2 ** 20;

interface Chosen {
  readonly choice: Uint8Array;
  /** As Node's KeyObject: with raw bytes, creating a cipher takes three times as long. */
  readonly key: KeyObject;
  uses: number;
}

/** Derived keys that are kept for opening: one for each process whose messages arrive in turns, such as every manager. */
const openingMax = 8;

/**
 * By the given key: the derived key that seals now, and those that opened last, in the order of arrival, newest first. Both save an HMAC, half of the
 * cost of sealing.
 */
const sealing = new WeakMap<Uint8Array, Chosen>();
const opening = new WeakMap<Uint8Array, Chosen[]>();

function chosenKey(key: Uint8Array, choice: Uint8Array): KeyObject {
  return createSecretKey(createHmac("sha256", key).update("muster seal 1\0").update(choice).digest());
}

function choiceFor(key: Uint8Array, random: Random): Chosen {
  let chosen = sealing.get(key);
  if (chosen === undefined || chosen.uses >= choiceUsesMax) {
    const choice = random.bytes(choiceBytes);
    chosen = { choice, key: chosenKey(key, choice), uses: 0 };
    sealing.set(key, chosen);
  }
  chosen.uses += 1;
  return chosen;
}

function chosenFor(key: Uint8Array, nonce: Uint8Array): KeyObject {
  const choice = nonce.subarray(0, choiceBytes);
  let known = opening.get(key);
  if (known === undefined) opening.set(key, (known = []));
  const at = known.findIndex((each) => equalBytes(each.choice, choice));
  if (at >= 0) return (known[at] as Chosen).key;
  // A copy: the nonce is a view of a whole record.
  const chosen = { choice: Uint8Array.from(choice), key: chosenKey(key, choice), uses: 0 };
  known.unshift(chosen);
  if (known.length > openingMax) known.pop();
  return chosen.key;
}

/** `purpose` and `place` are not stored: opening requires the same values. */
export interface SealedFor {
  /** The kind of thing. */
  readonly purpose: "record" | "snapshot" | "key file" | "message";
  /** Its identity within that kind. */
  readonly place: string;
}

/** Seals data piece by piece. */
interface DataSealer {
  readonly nonce: Uint8Array;
  /** The sealed bytes of this piece. */
  add(data: Uint8Array): Uint8Array;
  /** The bytes to append after all that `add` returned. */
  end(): Uint8Array;
}

/** Opens data piece by piece. Output of `add` must not be used before `end` has returned true. */
interface DataOpener {
  add(data: Uint8Array): Uint8Array;
  end(): boolean;
}

/** How a cluster's log, snapshots and bus are sealed. Simulations that do not test it have a cheaper way (simulation/rehearsal/). */
export interface Sealing {
  sealer(key: Uint8Array, random: Random, sealedFor: SealedFor): DataSealer;
  /** `tag`: the last 16 bytes of the ciphertext, which must not be passed to `add`. Throws for a nonce of the wrong length. */
  opener(key: Uint8Array, nonce: Uint8Array, tag: Uint8Array, sealedFor: SealedFor): DataOpener;
}

/** The only one of real managers. */
export const aesSealing: Sealing = {
  sealer: (key, random, sealedFor) => new Sealer(key, random, sealedFor),
  opener: (key, nonce, tag, sealedFor) => new Opener(key, nonce, tag, sealedFor),
};

class Sealer implements DataSealer {
  readonly nonce: Uint8Array;
  readonly #cipher;

  constructor(key: Uint8Array, random: Random, { purpose, place }: SealedFor) {
    const chosen = choiceFor(key, random);
    const nonce = random.bytes(nonceBytes);
    this.nonce = new Uint8Array(sealNonceBytes);
    this.nonce.set(chosen.choice);
    this.nonce.set(nonce, choiceBytes);
    this.#cipher = createCipheriv(cipher, chosen.key, nonce);
    this.#cipher.setAAD(Buffer.from(`${purpose}\0${place}`));
  }

  add(data: Uint8Array): Uint8Array {
    return this.#cipher.update(data);
  }

  end(): Uint8Array {
    return Buffer.concat([this.#cipher.final(), this.#cipher.getAuthTag()]);
  }
}

class Opener implements DataOpener {
  readonly #decipher;

  constructor(key: Uint8Array, nonce: Uint8Array, tag: Uint8Array, { purpose, place }: SealedFor) {
    if (nonce.length !== sealNonceBytes) throw new RangeError("wrong length of the nonce");
    this.#decipher = createDecipheriv(cipher, chosenFor(key, nonce), nonce.subarray(choiceBytes), {
      authTagLength: sealTagBytes,
    });
    this.#decipher.setAAD(Buffer.from(`${purpose}\0${place}`));
    this.#decipher.setAuthTag(tag);
  }

  add(data: Uint8Array): Uint8Array {
    return this.#decipher.update(data);
  }

  end(): boolean {
    try {
      this.#decipher.final();
      return true;
    } catch {
      return false;
    }
  }
}

export function splitTag(ciphertext: Uint8Array): { readonly body: Uint8Array; readonly tag: Uint8Array } | null {
  if (ciphertext.length < sealTagBytes) return null;
  const at = ciphertext.length - sealTagBytes;
  return { body: ciphertext.subarray(0, at), tag: ciphertext.subarray(at) };
}

export function seal(
  key: SealingKey,
  data: Uint8Array,
  random: Random,
  sealedFor: SealedFor,
  sealing = aesSealing,
): Sealed {
  const sealer = sealing.sealer(key.key, random, sealedFor);
  const ciphertext = Buffer.concat([sealer.add(data), sealer.end()]);
  return Sealed.create({ keyId: key.id, nonce: sealer.nonce, ciphertext });
}

/** The same as consecutive pieces, without copying. */
export function sealPieces(key: SealingKey, data: Uint8Array, random: Random, sealedFor: SealedFor, sealing: Sealing) {
  const sealer = sealing.sealer(key.key, random, sealedFor);
  return { keyId: key.id, nonce: sealer.nonce, pieces: [sealer.add(data), sealer.end()] };
}

/** Null if it was not sealed under this key for this place (E1). */
export function open(
  key: Uint8Array,
  { nonce, ciphertext }: Pick<Sealed, "nonce" | "ciphertext">,
  sealedFor: SealedFor,
  sealing = aesSealing,
): Uint8Array | null {
  const split = splitTag(ciphertext);
  if (split === null || nonce.length !== sealNonceBytes) return null;
  const opener = sealing.opener(key, nonce, split.tag, sealedFor);
  const data = opener.add(split.body);
  return opener.end() ? data : null;
}

/** Identifies a key without revealing anything about it: 64 bits of a hash, in hex. Empty for no key. */
export function fingerprint(key: Uint8Array): string {
  if (key.length === 0) return "";
  return hash("sha256", Buffer.concat([Buffer.from("muster unlock key\0"), key]), "hex").slice(0, 16);
}
