/** Files with which clients of NATS show who they are: `.creds`, or the seed of an nkey. */
import { credsAuthenticator, nkeyAuthenticator, type Authenticator } from "nats";
import { NatsProblem } from "./errors.ts";

/** Throws NatsProblem `unusable`. */
export function authenticatorOf(contents: string): Authenticator {
  const [text, encoder] = [contents.trim(), new TextEncoder()];
  try {
    const authenticator = text.includes("BEGIN NATS USER JWT")
      ? // Its last line needs its end.
        credsAuthenticator(encoder.encode(`${text}\n`))
      : nkeyAuthenticator(encoder.encode(text));
    // The library reads the contents only when it signs.
    authenticator("a nonce");
    return authenticator;
  } catch (error) {
    throw new NatsProblem("unusable", "expected a .creds file of NATS, or the seed of an nkey", { cause: error });
  }
}
