/** Why our own nats-server cannot run. */

/** `missing`: no binary; `in-use`: the port or the data dir; `unwritable`: the data dir; `failed`: it did not start. */
type NatsServerFailure = "missing" | "in-use" | "port-taken" | "unwritable" | "failed";

/** The message is one sentence that says what to do. */
export class NatsServerProblem extends Error {
  override readonly name = "NatsServerProblem";
  readonly kind: NatsServerFailure;
  /** The port that another process has; null for other reasons. */
  readonly port: number | null;
  constructor(kind: NatsServerFailure, message: string, options: ErrorOptions & { readonly port?: number } = {}) {
    super(message, options);
    this.kind = kind;
    this.port = options.port ?? null;
  }
}
