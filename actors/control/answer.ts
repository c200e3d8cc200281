/** The only place where outcomes are mapped to gRPC statuses. */
import type { Refusal, RefusalKind } from "../../machines/refusal.ts";
import { ErrorCode } from "../../runtime/error-codes.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import type { ProposeOutcome } from "../../runtime/store/store.ts";

const statusOfRefusal: { readonly [Kind in RefusalKind]: Status } = {
  "invalid-argument": Status.INVALID_ARGUMENT,
  "not-found": Status.NOT_FOUND,
  "already-exists": Status.ALREADY_EXISTS,
  "permission-denied": Status.PERMISSION_DENIED,
  "failed-precondition": Status.FAILED_PRECONDITION,
  aborted: Status.ABORTED,
  unimplemented: Status.UNIMPLEMENTED,
};

/** ABORTED is gRPC's status for "read again and decide again"; SwarmKit answers UNKNOWN, which tells a client nothing. */
const statusOfCode: { readonly [Code in ErrorCode]: Status } = {
  [ErrorCode.notLeader]: Status.UNAVAILABLE,
  [ErrorCode.outOfSequence]: Status.ABORTED,
  [ErrorCode.exists]: Status.ALREADY_EXISTS,
  [ErrorCode.nameTaken]: Status.ALREADY_EXISTS,
  [ErrorCode.notFound]: Status.NOT_FOUND,
  [ErrorCode.tooLarge]: Status.RESOURCE_EXHAUSTED,
  [ErrorCode.malformed]: Status.INVALID_ARGUMENT,
  [ErrorCode.logUnavailable]: Status.UNAVAILABLE,
  [ErrorCode.logFull]: Status.UNAVAILABLE,
  [ErrorCode.foreignTask]: Status.PERMISSION_DENIED,
  [ErrorCode.sessionChanged]: Status.ABORTED,
  [ErrorCode.staleEpoch]: Status.UNAVAILABLE,
  [ErrorCode.portTaken]: Status.INVALID_ARGUMENT,
  [ErrorCode.referenceMissing]: Status.INVALID_ARGUMENT,
  [ErrorCode.inUse]: Status.FAILED_PRECONDITION,
  [ErrorCode.referenced]: Status.INVALID_ARGUMENT,
  [ErrorCode.ingressMissing]: Status.FAILED_PRECONDITION,
  [ErrorCode.wrongLevel]: Status.FAILED_PRECONDITION,
  [ErrorCode.unknownDeadline]: Status.UNAVAILABLE,
};

export function rejection({ kind, message }: Refusal): RpcError {
  return new RpcError(statusOfRefusal[kind], message);
}

/** Throws the refusal of a check, if any. */
export function demand(refusal: Refusal | null): void {
  if (refusal !== null) throw rejection(refusal);
}

/** SwarmKit's `invalid argument` for a request that lacks a required field. */
export function demandGiven(...fields: readonly unknown[]): void {
  if (fields.some((field) => field === null || field === "")) {
    throw new RpcError(Status.INVALID_ARGUMENT, "invalid argument");
  }
}

/** The same with a message that names the missing field. */
export function demandId(id: string, message: string): void {
  if (id === "") throw new RpcError(Status.INVALID_ARGUMENT, message);
}

export function notFound(noun: string, id: string): RpcError {
  return new RpcError(Status.NOT_FOUND, `${noun} ${id} not found`);
}

/** The error for the caller of a proposal that was not committed. */
export function failure(outcome: Exclude<ProposeOutcome, { readonly kind: "committed" }>): RpcError {
  if (outcome.kind === "unavailable") {
    const doubt = outcome.maybe ? "; the change may still happen: check before trying again" : "";
    return new RpcError(Status.UNAVAILABLE, `no leader accepted the change in time: ${outcome.message}${doubt}`);
  }
  const message = outcome.code === ErrorCode.outOfSequence ? "update out of sequence" : outcome.message;
  return new RpcError(statusOfCode[outcome.code], message);
}
