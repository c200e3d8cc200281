/**
 * Files of a context on another machine, in its own folder beside `contexts.json`: the trusted roots (`ca.pem`) and, after a
 * login, the user's certificate with its key (`credentials.pem`).
 *
 * RC1: the key is only in a file that its owner alone can read, in a folder that its owner alone can enter.
 */
import { mkdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { replaceFileSync } from "../../runtime/system/whole-file.ts";
import { contextsFolder } from "../contexts.ts";
import { UserError } from "../../lib/user-error.ts";

const [rootsFile, credentialsFile] = ["ca.pem", "credentials.pem"];

export interface UserCredentials {
  /** The user's certificate chain. */
  readonly certificatePem: string;
  readonly keyPem: string;
}

const folderOf = (context: string): string => join(contextsFolder(), "contexts", context);

function write(folder: string, file: string, content: string): void {
  const path = join(folder, file);
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    replaceFileSync(path, content);
  } catch (error) {
    throw new UserError(`cannot write ${path}: ${(error as Error).message}`, { cause: error });
  }
}

function read(path: string): string | null {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw new UserError(`cannot read ${path}: ${(error as Error).message}`, { cause: error });
  }
}

/** Certificate and key from one PEM text, in any order. Throws UserError when one of them is missing. */
export function parseCredentials(text: string, where: string): UserCredentials {
  const keyPem = /-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?-----END [A-Z ]*PRIVATE KEY-----\n?/.exec(text)?.[0];
  const certificates = text.match(/-----BEGIN CERTIFICATE-----[\s\S]*?-----END CERTIFICATE-----\n?/g) ?? [];
  if (keyPem === undefined || certificates.length === 0)
    throw new UserError(`${where} must contain a certificate and its private key in PEM format`);
  return { keyPem, certificatePem: certificates.join("") };
}

export function saveRoots(context: string, rootPem: string): void {
  write(folderOf(context), rootsFile, rootPem);
}

/** Throws UserError when they are missing. */
export function rootsOf(context: string): string {
  const found = read(join(folderOf(context), rootsFile));
  if (found === null)
    throw new UserError(
      `the root certificate of context "${context}" is missing: remove the context and create it again`,
    );
  return found;
}

export function saveCredentials(context: string, credentials: UserCredentials): void {
  writeCredentials(folderOf(context), credentials);
}

/** Writes to another folder, for an admin to hand over to a user. */
export function writeCredentials(folder: string, { certificatePem, keyPem }: UserCredentials): void {
  write(folder, credentialsFile, certificatePem + keyPem);
}

export function writeRoots(folder: string, rootPem: string): void {
  write(folder, rootsFile, rootPem);
}

/** Null before a login. Throws UserError, also when others can read them (RC1). */
export function credentialsOf(context: string): UserCredentials | null {
  const path = join(folderOf(context), credentialsFile);
  const text = read(path);
  if (text === null) return null;
  if ((statSync(path).mode & 0o077) !== 0)
    throw new UserError(
      `${path} is readable by other users: log in again with 'muster login ${context}', or run 'chmod 600'`,
    );
  return parseCredentials(text, path);
}

/** False when there were none. */
export function forgetCredentials(context: string): boolean {
  const path = join(folderOf(context), credentialsFile);
  const existed = read(path) !== null;
  rmSync(path, { force: true });
  return existed;
}

export function forgetContext(context: string): void {
  rmSync(folderOf(context), { recursive: true, force: true });
}
