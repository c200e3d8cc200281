/** The only detail in statuses of the driver protocol: whether to retry (reference §4, §5.3). */
import { Any, RecoverableError, Status as StatusMessage } from "../proto/gen/nomad.ts";
import { RpcError, Status } from "./ports/rpc.ts";

const typeUrl = "type.googleapis.com/hashicorp.nomad.plugins.shared.structs.RecoverableError";

/** A failure after which the host's restart policy may start the same task again. */
export function recoverableError(message: string): RpcError {
  const details = StatusMessage.encode(
    StatusMessage.create({
      code: Status.FAILED_PRECONDITION,
      message,
      details: [
        Any.create({
          type_url: typeUrl,
          value: RecoverableError.encode(RecoverableError.create({ recoverable: true })),
        }),
      ],
    }),
  );
  return new RpcError(Status.FAILED_PRECONDITION, message, { details });
}

/** Whether a plugin reports a failure as recoverable. Only the first detail counts. */
export function isRecoverable(error: RpcError): boolean {
  if (error.details === null) return false;
  try {
    const [first] = StatusMessage.decode(error.details).details;
    return first?.type_url === typeUrl && RecoverableError.decode(first.value).recoverable;
  } catch {
    return false;
  }
}
