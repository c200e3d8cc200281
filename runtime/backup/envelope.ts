/**
 * The encryption of backups: the age format, so that an operator can also open one with the `age` command. Its key is wrapped
 * under a passphrase, or for recipients whose secret keys no manager has.
 *
 * EN1: nothing of a file is passed on before its authenticity is checked, chunk by chunk of 64 KiB; a file without its last chunk
 *      is rejected.
 *
 * The library is loaded when it is first used: a start of a manager does not need its fifty modules.
 */
import { createCipheriv, createDecipheriv, randomBytes, scrypt } from "node:crypto";
import { ReadableStream } from "node:stream/web";
import type { Identity, Recipient, Stanza } from "age-encryption";
import { PartFileError } from "../part-file.ts";

/** Under what the key of a backup is wrapped. */
export type Wrapping =
  | { readonly kind: "passphrase"; readonly passphrase: string }
  /** age's public keys, `age1…`; each of their secret keys opens the file. */
  | { readonly kind: "recipients"; readonly recipients: readonly string[] };

/** The secrets that may open a backup; both may be set. */
export interface Opening {
  readonly passphrase: string | null;
  /** age's secret keys, `AGE-SECRET-KEY-1…`. */
  readonly identities: readonly string[];
}

/** OWASP's Password Storage Cheat Sheet: N = 2^17, r = 8, p = 1, which takes 128 MiB and some 0.4 s. age fixes r and p. */
const scryptLogN = 17;
/** Limits what a file from elsewhere can make this process spend: 1 GiB, as the library does. */
const scryptLogNMax = 20;
const scryptBlock = 8;
/** age's label in the salt. */
const scryptLabel = "age-encryption.org/v1/scrypt";
const saltBytes = 16;
const keyBytes = 32;
const tagBytes = 16;
const cipher = "chacha20-poly1305";
/** A wrapping key is used once. */
const nonce = Buffer.alloc(12);

/** The first line of a file. */
const versionLine = /^age-encryption\.org\/v([^\n]*)\n/;
const versionLineStart = "age-encryption.org/v";

/** Why it is not a recipient; null if it is one. */
export async function recipientProblem(text: string): Promise<string | null> {
  const { Encrypter } = await import("age-encryption");
  try {
    new Encrypter().addRecipient(text);
    return null;
  } catch {
    return 'expected a public key of age, such as "age1…" (age-keygen -y prints it)';
  }
}

/** Why it is not an identity; null if it is one. */
export async function identityProblem(text: string): Promise<string | null> {
  const { Decrypter } = await import("age-encryption");
  try {
    new Decrypter().addIdentity(text);
    return null;
  } catch {
    return 'expected a secret key of age, "AGE-SECRET-KEY-1…" (age-keygen makes one)';
  }
}

/** Rejects as `chunks` does. */
export async function* encrypted(
  chunks: AsyncIterable<Uint8Array>,
  wrapping: Wrapping,
): AsyncGenerator<Uint8Array, void> {
  const { Encrypter } = await import("age-encryption");
  const encrypter = new Encrypter();
  if (wrapping.kind === "passphrase") encrypter.addRecipient(new PassphraseRecipient(wrapping.passphrase));
  else for (const recipient of wrapping.recipients) encrypter.addRecipient(recipient);
  yield* (await encrypter.encrypt(streamOf(chunks))) as unknown as AsyncIterable<Uint8Array>;
}

/** EN1. Rejects with PartFileError, and as `chunks` does. */
export async function* decrypted(
  chunks: AsyncIterable<Uint8Array>,
  opening: Opening,
): AsyncGenerator<Uint8Array, void> {
  // Errors of reading the file are not damage.
  let reading: unknown = null;
  const begun = await beginning(chunks);
  demandAge(begun.first);
  async function* source(): AsyncGenerator<Uint8Array> {
    try {
      yield begun.first;
      yield* begun.rest;
    } catch (error) {
      reading = error;
      throw error;
    }
  }
  const passphrase = new PassphraseIdentity(opening.passphrase);
  const { Decrypter } = await import("age-encryption");
  const decrypter = new Decrypter();
  decrypter.addIdentity(passphrase);
  for (const identity of opening.identities) decrypter.addIdentity(identity);
  try {
    yield* (await decrypter.decrypt(streamOf(source()))) as unknown as AsyncIterable<Uint8Array>;
  } catch (error) {
    if (reading !== null) throw reading;
    if (error instanceof PartFileError) throw error;
    const { message } = error as Error;
    if (!/no identity matched/.test(message))
      throw new PartFileError("damaged", "it is truncated, or was changed after it was made", { cause: error });
    throw new PartFileError("locked", whyLocked(passphrase.isAsked, opening), { cause: error });
  }
}

function whyLocked(isUnderPassphrase: boolean, { identities, passphrase }: Opening): string {
  if (!isUnderPassphrase)
    return identities.length === 0
      ? "it is encrypted for age recipients: set --identity to a file with the secret key of one of them"
      : "it is encrypted for other age recipients: set --identity to a file with the secret key of one of them";
  return passphrase === null
    ? "it is encrypted under a passphrase: set --passphrase-file"
    : "wrong passphrase: it is encrypted under another one";
}

function streamOf(chunks: AsyncIterable<Uint8Array>): globalThis.ReadableStream<Uint8Array> {
  return ReadableStream.from(chunks) as unknown as globalThis.ReadableStream<Uint8Array>;
}

/** At least the first line, if the file has one. */
async function beginning(
  chunks: AsyncIterable<Uint8Array>,
): Promise<{ readonly first: Uint8Array; readonly rest: AsyncIterable<Uint8Array> }> {
  const iterator = chunks[Symbol.asyncIterator]();
  let first: Buffer = Buffer.alloc(0);
  while (first.length <= versionLineStart.length) {
    const next = await iterator.next();
    if (next.done === true) break;
    first = Buffer.concat([first, next.value]);
  }
  return { first, rest: { [Symbol.asyncIterator]: () => iterator } };
}

/** Throws PartFileError. */
function demandAge(first: Uint8Array): void {
  const text = Buffer.from(first.subarray(0, 256)).toString("latin1");
  if (text === "") throw new PartFileError("truncated", "it is empty");
  if (text.length <= versionLineStart.length && versionLineStart.startsWith(text))
    throw new PartFileError("truncated", "it is truncated: it ends within its first bytes");
  if (!text.startsWith(versionLineStart))
    throw new PartFileError("foreign", "it is not a backup of Muster ('muster backup' makes one)");
  const [, version = "1"] = versionLine.exec(text) ?? [];
  if (version !== "1")
    throw new PartFileError("future", `its encryption is version ${version} of age: use a newer Muster`);
}

/** age's scrypt recipient by Node's scrypt, which works off the event loop: the library's own blocks a manager for a second. */
class PassphraseRecipient implements Recipient {
  readonly #passphrase: string;

  constructor(passphrase: string) {
    this.#passphrase = passphrase;
  }

  async wrapFileKey(fileKey: Uint8Array): Promise<Stanza[]> {
    const salt = randomBytes(saltBytes);
    const sealer = createCipheriv(cipher, await derived(this.#passphrase, salt, scryptLogN), nonce, {
      authTagLength: tagBytes,
    });
    const { Stanza } = await import("age-encryption");
    const body = Buffer.concat([sealer.update(fileKey), sealer.final(), sealer.getAuthTag()]);
    return [new Stanza(["scrypt", unpadded(salt), String(scryptLogN)], body)];
  }
}

class PassphraseIdentity implements Identity {
  readonly #passphrase: string | null;
  /** Whether the file is encrypted under a passphrase. */
  isAsked = false;

  constructor(passphrase: string | null) {
    this.#passphrase = passphrase;
  }

  async unwrapFileKey(stanzas: Stanza[]): Promise<Uint8Array | null> {
    const stanza = stanzas.find(({ args }) => args[0] === "scrypt");
    if (stanza === undefined) return null;
    this.isAsked = true;
    if (this.#passphrase === null) return null;
    const [, salt = "", logN = ""] = stanza.args;
    // With another recipient beside it, somebody else might have made the file.
    if (stanzas.length > 1 || !/^[1-9]\d?$/.test(logN) || stanza.body.length !== saltBytes + tagBytes)
      throw new PartFileError("damaged", "it is damaged: its header cannot be read");
    if (Number(logN) > scryptLogNMax)
      throw new PartFileError(
        "damaged",
        `its passphrase takes more work than the limit (scrypt 2^${logN}, at most 2^${scryptLogNMax}): open it with 'age', and encrypt it again`,
      );
    const key = await derived(this.#passphrase, Buffer.from(salt, "base64"), Number(logN));
    const opener = createDecipheriv(cipher, key, nonce, { authTagLength: tagBytes });
    const at = stanza.body.length - tagBytes;
    opener.setAuthTag(stanza.body.subarray(at));
    const fileKey = opener.update(stanza.body.subarray(0, at));
    try {
      opener.final();
      return fileKey;
    } catch {
      return null;
    }
  }
}

function derived(passphrase: string, salt: Uint8Array, logN: number): Promise<Buffer> {
  const options = { N: 2 ** logN, r: scryptBlock, p: 1, maxmem: 2 ** logN * scryptBlock * 128 + 2 ** 20 };
  return new Promise((resolve, reject) => {
    scrypt(passphrase, Buffer.concat([Buffer.from(scryptLabel), salt]), keyBytes, options, (error, key) => {
      if (error === null) resolve(key);
      else reject(error);
    });
  });
}

function unpadded(bytes: Buffer): string {
  return bytes.toString("base64").replace(/=+$/, "");
}
