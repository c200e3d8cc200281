/** Why a server could not be connected to, from the library's errors and Node's. */
import { NatsError } from "nats";
import { NatsProblem, textOf } from "./errors.ts";

/** Node's codes for a certificate that leads to no authority that it knows. */
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
      `The nats-server at ${where} refuses these credentials: check user and password.`,
      { cause: error },
    );
  }
  return new NatsProblem("unreachable", `The nats-server at ${where} could not be connected to (${reasonOf(error)}).`, {
    cause: error,
  });
}

function reasonOf(error: unknown): string {
  const code = (error as NodeJS.ErrnoException | null)?.code ?? "";
  if (unknownAuthority.has(code)) return "its certificate leads to no CA that is known here: name its CA's certificate";
  if (/^ERR_SSL_.*ALERT/.test(code)) {
    const alert = /alert ([a-z ]+)/.exec(textOf(error))?.[1] ?? "alert";
    return alert === "protocol version"
      ? "it does not speak TLS 1.2"
      : `it wants a client's certificate of its CA, and says '${alert}'`;
  }
  if (error instanceof NatsError && code === "SERVER_OPT_NA") return "it speaks no TLS";
  // The library has the reason one level down.
  if (error instanceof NatsError && error.chainedError !== undefined)
    return `${error.message}: ${textOf(error.chainedError)}`;
  return textOf(error);
}

export function asDialProblem(error: unknown): NatsProblem {
  return error instanceof NatsProblem ? error : new NatsProblem("unreachable", textOf(error), { cause: error });
}
