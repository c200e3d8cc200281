/** Calls that fail, with their gRPC status. */

const statuses = { notFound: 5, permissionDenied: 7, aborted: 10, unimplemented: 12 } as const;

export class CallError extends Error {
  readonly status: number;

  constructor(status: number, text: string) {
    super(text === "" ? `the call failed with status ${status}` : text);
    this.status = status;
  }

  get isGone(): boolean {
    return this.status === statuses.notFound;
  }
  get isDenied(): boolean {
    return this.status === statuses.permissionDenied;
  }
  get isUnknownMethod(): boolean {
    return this.status === statuses.unimplemented;
  }
  /** Another change of the object came first. */
  get isConflict(): boolean {
    return this.status === statuses.aborted || this.message.includes("out of sequence");
  }
}

/** The connection ended before the answer, so the outcome is unknown. */
export class LostCallError extends CallError {}
