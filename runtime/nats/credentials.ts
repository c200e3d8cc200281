/** Files with which clients of NATS show who they are: `.creds`, or the seed of an nkey. */
import { credsAuthenticator, nkeyAuthenticator, nkeys, type Authenticator } from "nats";
import { NatsProblem } from "./errors.ts";

/** Throws NatsProblem `unusable`. */
export function authenticatorOf(contents: string): Authenticator {
  const bytes = new TextEncoder().encode(contents);
  if (contents.includes("BEGIN NATS USER JWT")) return credsAuthenticator(bytes);
  const seed = new TextEncoder().encode(contents.trim());
  try {
    nkeys.fromSeed(seed);
  } catch (error) {
    throw new NatsProblem("unusable", "expected a .creds file of NATS, or the seed of an nkey", { cause: error });
  }
  return nkeyAuthenticator(seed);
}
