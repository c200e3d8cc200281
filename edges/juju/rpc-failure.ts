/** Translates Control's errors for the JSON API's clients. */
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import { RequestError, type ErrorCode } from "./request-error.ts";

const codeOfStatus: { readonly [status: number]: ErrorCode } = {
  [Status.INVALID_ARGUMENT]: "bad request",
  [Status.NOT_FOUND]: "not found",
  [Status.ALREADY_EXISTS]: "already exists",
  [Status.PERMISSION_DENIED]: "unauthorized access",
  [Status.RESOURCE_EXHAUSTED]: "quota limit exceeded",
  [Status.FAILED_PRECONDITION]: "operation is blocked",
  [Status.ABORTED]: "try again",
  [Status.UNIMPLEMENTED]: "not implemented",
  [Status.UNAVAILABLE]: "try again",
  [Status.DEADLINE_EXCEEDED]: "deadline exceeded",
};

/** Null for an error that is neither ours nor Control's: an internal error. */
export function requestErrorOf(error: unknown): RequestError | null {
  if (error instanceof RequestError) return error;
  return error instanceof RpcError ? new RequestError(error.message, codeOfStatus[error.code] ?? "") : null;
}
