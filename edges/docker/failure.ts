/** Failures in the Engine API's terms: a status of HTTP and a message in the words of a stock engine. */
import type { ServerResponse } from "node:http";
import { jsonText } from "../../lib/template/template.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";

/** The answer is `{"message": …}` with this status. */
export class Failure extends Error {
  override readonly name = "Failure";
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

export function badRequest(message: string): Failure {
  return new Failure(400, message);
}

export function notFound(noun: string, name: string): Failure {
  return new Failure(404, `${noun} ${name} not found`);
}

/** A request that only a single engine could answer. `instead` completes the sentence. */
export function notHere(what: string, instead: string): Failure {
  return new Failure(501, `${what} belong to one engine, and this is a manager of a Muster cluster: ${instead}`);
}

/** gRPC's name of each status, and the status of HTTP that a stock engine derives from it. */
const answers: { readonly [Code in Status]: readonly [name: string, status: number] } = {
  [Status.OK]: ["OK", 500],
  [Status.CANCELLED]: ["Canceled", 500],
  [Status.UNKNOWN]: ["Unknown", 500],
  [Status.INVALID_ARGUMENT]: ["InvalidArgument", 400],
  [Status.DEADLINE_EXCEEDED]: ["DeadlineExceeded", 500],
  [Status.NOT_FOUND]: ["NotFound", 404],
  [Status.ALREADY_EXISTS]: ["AlreadyExists", 409],
  [Status.PERMISSION_DENIED]: ["PermissionDenied", 403],
  [Status.RESOURCE_EXHAUSTED]: ["ResourceExhausted", 500],
  [Status.FAILED_PRECONDITION]: ["FailedPrecondition", 400],
  // SwarmKit has no such status: an outdated version is UNKNOWN there, and clients match the text.
  [Status.ABORTED]: ["Unknown", 500],
  [Status.OUT_OF_RANGE]: ["OutOfRange", 400],
  [Status.UNIMPLEMENTED]: ["Unimplemented", 501],
  [Status.INTERNAL]: ["Internal", 500],
  [Status.UNAVAILABLE]: ["Unavailable", 503],
  [Status.DATA_LOSS]: ["DataLoss", 500],
  [Status.UNAUTHENTICATED]: ["Unauthenticated", 401],
};

/** Null for an error that is not an answer to the client, but our own fault. */
export function failureOf(error: unknown): Failure | null {
  if (error instanceof Failure) return error;
  if (!(error instanceof RpcError)) return null;
  const [name, status] = answers[error.code];
  return new Failure(status, `rpc error: code = ${name} desc = ${error.message}`);
}

/** Longest body that is discarded after an early answer, in bytes, as by Go's server; with a longer one, the connection is closed. */
const discardedBytesMax = 256 * 1024;

/** Answers a request with the failure; as plain text for clients of before 1.24. */
export function refuse(response: ServerResponse, failure: Failure, isOldClient = false): void {
  if (response.headersSent) {
    response.destroy();
    return;
  }
  const { complete, headers } = response.req;
  const { "content-length": length = "0", "transfer-encoding": encoding } = headers;
  // A client that is still sending would lose the answer if the connection were closed: Node discards the rest of a short body.
  const isShort = encoding === undefined && Number(length) <= discardedBytesMax;
  if (!complete && !isShort) response.setHeader("connection", "close");
  if (isOldClient) {
    response.writeHead(failure.status, { "content-type": "text/plain; charset=utf-8" }).end(`${failure.message}\n`);
    return;
  }
  response
    .writeHead(failure.status, { "content-type": "application/json" })
    .end(`${jsonText({ message: failure.message })}\n`);
}
