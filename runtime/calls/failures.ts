/** The errors of calls whose request or handler fails, the same over every transport. */
import { InvariantError } from "../../lib/assert.ts";
import type { Logger } from "../ports/index.ts";
import { RpcError, Status } from "../ports/rpc.ts";

interface Failing {
  /** Path of the method. */
  readonly method: string;
  /** False if the call has ended already: nothing is logged. */
  readonly isOpen: boolean;
  readonly log: Logger;
  /** Runs a callback after the current one. */
  readonly soon: (callback: () => void) => void;
}

/**
 * The error that the caller gets for one that a handler has thrown. The text of an unexpected one is logged and not sent, since it
 * may have parts of the state. A broken invariant ends the process, not only the call.
 */
export function handlerFailure(error: unknown, { isOpen, log, method, soon }: Failing): RpcError {
  if (error instanceof RpcError) return error;
  if (error instanceof InvariantError)
    soon(() => {
      throw error;
    });
  if (isOpen) log.error({ method, err: error }, "handler failed");
  return new RpcError(Status.INTERNAL, "internal error");
}

/** The error for a call that will not have its turn. */
export function overloaded(): RpcError {
  const text = "the manager is overloaded: too many calls are waiting; try again later";
  return new RpcError(Status.UNAVAILABLE, text);
}

/** The error for bytes that are not a request. grpc-go answers INTERNAL; but the error is the caller's, and INTERNAL suggests ours. */
export function malformedRequest(error: unknown): RpcError {
  const detail = error instanceof Error ? error.message : String(error);
  return new RpcError(Status.INVALID_ARGUMENT, `malformed request: ${detail}`);
}
