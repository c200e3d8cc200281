/** Errors of this folder, which never throws the library's. */

/**
 * `unreachable`: no server answered; `unauthorized`: it rejected the credentials; `unusable`: it cannot host a cluster (no
 * JetStream, too old, an unsuitable stream under one of our names); `unavailable`: it did not answer in time, so the call may
 * have taken effect; `refused`: it rejected the call; `closed`: the owner closed this link.
 */
type NatsFailure = "unreachable" | "unauthorized" | "unusable" | "unavailable" | "refused" | "closed";

/** Its message is one sentence for an operator. */
export class NatsProblem extends Error {
  override readonly name = "NatsProblem";
  readonly kind: NatsFailure;
  constructor(kind: NatsFailure, message: string, options?: ErrorOptions) {
    super(message, options);
    this.kind = kind;
  }
}

/**
 * Throws outside of the caller. An error in a handler is a broken invariant and must end the process; thrown into the library's
 * parser, it would only end the reading of that connection, silently.
 */
export function crash(error: unknown): void {
  setImmediate(() => {
    throw error;
  });
}

export function textOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
