/** What keeps a nats-server of ours from running. */

/** `missing`: no binary; `in-use`: of the port or the data dir; `unwritable`: the data dir; `failed`: it did not come up. */
export type NatsServerFailure = "missing" | "in-use" | "unwritable" | "failed";

/** Its message is one sentence that says what to do. */
export class NatsServerProblem extends Error {
  override readonly name = "NatsServerProblem";
  readonly kind: NatsServerFailure;
  constructor(kind: NatsServerFailure, message: string, options?: ErrorOptions) {
    super(message, options);
    this.kind = kind;
  }
}
