/** Why a server could not be connected to, from the library's errors. */
import { NatsError } from "nats";
import { NatsProblem, textOf } from "./errors.ts";

export function dialProblem(error: unknown, where: string): NatsProblem {
  if (error instanceof NatsError && (error.isAuthError() || error.isAuthTimeout())) {
    return new NatsProblem(
      "unauthorized",
      `The nats-server at ${where} refuses these credentials: check user and password.`,
      { cause: error },
    );
  }
  return new NatsProblem("unreachable", `The nats-server at ${where} could not be connected to (${textOf(error)}).`, {
    cause: error,
  });
}

export function asDialProblem(error: unknown): NatsProblem {
  return error instanceof NatsProblem ? error : new NatsProblem("unreachable", textOf(error), { cause: error });
}
