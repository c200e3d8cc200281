/** Why connecting to a server failed, from the library's errors and Node's. */
import { NatsError } from "nats";
import { NatsProblem, textOf } from "./errors.ts";

/** Node's codes for a certificate from an unknown authority. */
const unknownAuthority: ReadonlySet<string> = new Set([
  "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
  "UNABLE_TO_GET_ISSUER_CERT",
  "UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
  "SELF_SIGNED_CERT_IN_CHAIN",
  "DEPTH_ZERO_SELF_SIGNED_CERT",
]);

export function dialProblem(error: unknown, where: string): NatsProblem {
  if (error instanceof NatsError && (error.isAuthError() || error.isAuthTimeout())) {
    return new NatsProblem(
      "unauthorized",
      `the nats-server at ${where} rejected the credentials: check user and password`,
      { cause: error },
    );
  }
  return new NatsProblem("unreachable", `cannot connect to the nats-server at ${where} (${reasonOf(error)})`, {
    cause: error,
  });
}

/** Whether a server and this process have certificates of different CAs, according to either of them. */
export function isOfOtherAuthority(error: unknown): boolean {
  for (let each = error; each instanceof Error; each = each.cause) {
    const { code = "" } = each as NodeJS.ErrnoException;
    if (unknownAuthority.has(code) || /^ERR_SSL_.*ALERT/.test(code)) return true;
  }
  return false;
}

function reasonOf(error: unknown): string {
  const code = (error as NodeJS.ErrnoException | null)?.code ?? "";
  if (unknownAuthority.has(code)) return "its certificate is signed by an unknown CA: specify the CA's certificate";
  if (/^ERR_SSL_.*ALERT/.test(code)) {
    const alert = /alert ([a-z ]+)/.exec(textOf(error))?.[1] ?? "alert";
    return alert === "protocol version"
      ? "it does not support TLS 1.2"
      : `it requires a client certificate from its CA, and reports "${alert}"`;
  }
  if (error instanceof NatsError && code === "SERVER_OPT_NA") return "it does not support TLS";
  // The library nests the reason one level down.
  if (error instanceof NatsError && error.chainedError !== undefined)
    return `${error.message}: ${textOf(error.chainedError)}`;
  return textOf(error);
}

export function asDialProblem(error: unknown): NatsProblem {
  return error instanceof NatsProblem ? error : new NatsProblem("unreachable", textOf(error), { cause: error });
}
