/** Flags with the keys of a backup: under what it is encrypted, and what opens it. */
import { UsageError, UserError } from "../../lib/user-error.ts";
import { identityProblem, recipientProblem, type Opening, type Wrapping } from "../../runtime/backup/envelope.ts";
import { contentFrom } from "../content.ts";
import { secretFrom } from "../secret-file.ts";

/** Characters: a thief of the file can try passphrases without limit. */
const passphraseCharsMin = 12;

export const passphraseFlag = {
  "passphrase-file": {
    type: "string",
    value: "FILE",
    help: "File whose first line is the passphrase of the backup; - reads standard input",
    completes: "file",
  },
} as const;

export const recipientFlag = {
  recipient: {
    type: "string",
    multiple: true,
    value: "AGE",
    help: "Public key of age (age1…) to encrypt the backup for, instead of a passphrase",
  },
} as const;

export const identityFlag = {
  identity: {
    type: "string",
    multiple: true,
    value: "FILE",
    help: "File with secret keys of age, as age-keygen writes it, to open the backup with",
    completes: "file",
  },
} as const;

interface PassphraseValues {
  readonly "passphrase-file"?: string | undefined;
}

/** Rejects with UsageError and UserError. */
export async function wrappingOf(
  values: PassphraseValues & { readonly recipient?: readonly string[] | undefined },
  names = { passphrase: "--passphrase-file", recipient: "--recipient" },
): Promise<Wrapping> {
  const { "passphrase-file": file, recipient: recipients = [] } = values;
  if ((file === undefined) === (recipients.length === 0))
    throw new UsageError(
      `set either ${names.passphrase} or ${names.recipient}: a backup has every secret of the cluster, and is always encrypted`,
    );
  for (const recipient of recipients) {
    const problem = await recipientProblem(recipient);
    if (problem !== null)
      throw new UsageError(`invalid argument "${recipient}" for "${names.recipient}" flag: ${problem}`);
  }
  if (file === undefined) return { kind: "recipients", recipients };
  const passphrase = secretFrom(file, "passphrase");
  if (passphrase.length < passphraseCharsMin)
    throw new UserError(
      `the passphrase has ${passphrase.length} characters: use at least ${passphraseCharsMin}, since whoever has the file can guess without limit`,
    );
  return { kind: "passphrase", passphrase };
}

/** Rejects with UserError. Without either flag, whoever opens the file reports which one it needs. */
export async function openingOf(
  values: PassphraseValues & { readonly identity?: readonly string[] | undefined },
): Promise<Opening> {
  const { "passphrase-file": file, identity: files = [] } = values;
  return {
    passphrase: file === undefined ? null : secretFrom(file, "passphrase"),
    identities: (await Promise.all(files.map(identitiesIn))).flat(),
  };
}

async function identitiesIn(path: string): Promise<readonly string[]> {
  const lines = Buffer.from(contentFrom(path)).toString("utf8").split(/\r?\n/);
  const identities = lines.map((line) => line.trim()).filter((line) => line !== "" && !line.startsWith("#"));
  for (const identity of identities) {
    const problem = await identityProblem(identity);
    // Not the line itself: it may be another secret.
    if (problem !== null) throw new UserError(`cannot use ${path}: a line is not an identity: ${problem}`);
  }
  if (identities.length === 0) throw new UserError(`${path} has no identity: ${(await identityProblem("")) ?? ""}`);
  return identities;
}
