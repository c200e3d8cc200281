/** What this folder throws: never an error of the library. */

/**
 * `unreachable`: no server answered; `unauthorized`: it refused the credentials; `unusable`: it cannot carry a cluster
 * (no JetStream, too old, a stream of ours that is not as it must be); `unavailable`: it did not answer in time, so the
 * call may have taken effect; `refused`: it said no; `closed`: this link was closed by its owner.
 */
export type NatsFailure = "unreachable" | "unauthorized" | "unusable" | "unavailable" | "refused" | "closed";

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
 * Throws outside of the caller. What a handler throws is a broken invariant and has to end the process; thrown into the
 * library's parser it would only end the reading of that connection, in silence.
 */
export function crash(error: unknown): void {
  setImmediate(() => {
    throw error;
  });
}

export function textOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
