/**
 * One call on the client. Like its counterpart on the server it is found through a property of the HTTP/2 stream, so
 * that a process may hold thousands of streams with one set of listeners.
 *
 * Stages: open → ended (the receiver was told, or the caller cancelled).
 *
 * K1: the receiver is told the end exactly once, and never after `cancel`.
 */
import { constants, type ClientHttp2Stream, type IncomingHttpHeaders } from "node:http2";
import { RpcError, Status } from "../../runtime/rpc.ts";
import { FrameReader, frame, frameHeader, joinedBytesMax, type FrameReceiver } from "./framing.ts";
import { decodeStatusMessage, parseStatus, statusOfHttp, statusOfReset } from "./status.ts";

export interface ClientReceiver extends FrameReceiver {
  /** Throws RpcError for a message that is malformed, which ends the call. */
  onFrame(message: Uint8Array): void;
  /** Null for status OK. */
  onEnd(error: RpcError | null): void;
}

/** Answers why a stream ended without a status: the connection's failure, or null when the connection is fine. */
export interface ConnectionHealth {
  connectionError(): RpcError | null;
}

/** Assignments of a full node, and lists of a large cluster, are far over what a request may be. */
const messageBytesMax = 64 * 1024 * 1024;

const nothing = new Uint8Array(0);

const callOf = Symbol("ClientCall");
type CallStream = ClientHttp2Stream & { [callOf]?: ClientCall };

function onHeaders(this: CallStream, headers: IncomingHttpHeaders): void {
  this[callOf]?.takeHeaders(headers);
}
function onData(this: CallStream, chunk: Buffer): void {
  this[callOf]?.receive(chunk);
}
function onEnd(this: CallStream): void {
  this[callOf]?.received();
}
function onClose(this: CallStream): void {
  this[callOf]?.closed();
}
function onError(this: CallStream, error: Error): void {
  this[callOf]?.broken(error);
}

export class ClientCall {
  readonly #stream: ClientHttp2Stream;
  readonly #receiver: ClientReceiver;
  readonly #health: ConnectionHealth;
  readonly #reader: FrameReader;
  #deadline: NodeJS.Timeout | null = null;
  #status: { readonly code: Status; readonly message: string } | null = null;
  #streamError: Error | null = null;
  #isEnded = false;

  constructor(stream: ClientHttp2Stream, receiver: ClientReceiver, timeoutMs: number | null, health: ConnectionHealth) {
    this.#stream = stream;
    this.#receiver = receiver;
    this.#health = health;
    this.#reader = new FrameReader(messageBytesMax, receiver);
    (stream as CallStream)[callOf] = this;
    stream.on("response", onHeaders);
    stream.on("trailers", onHeaders);
    stream.on("data", onData);
    stream.on("end", onEnd);
    stream.on("close", onClose);
    stream.on("error", onError);
    if (timeoutMs !== null) {
      this.#deadline = setTimeout(
        () => this.fail(new RpcError(Status.DEADLINE_EXCEEDED, `no answer within ${timeoutMs} ms`)),
        timeoutMs,
      );
    }
  }

  write(message: Uint8Array): void {
    const stream = this.#stream;
    if (this.#isEnded || stream.destroyed || stream.writableEnded) return;
    if (message.length <= joinedBytesMax) {
      stream.write(frame(message));
      return;
    }
    stream.write(frameHeader(message.length));
    stream.write(message);
  }

  finishWriting(): void {
    if (!this.#stream.destroyed && !this.#stream.writableEnded) this.#stream.end();
  }

  /** Resets the stream; the receiver is not told. */
  cancel(): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    this.#release();
  }

  /** Resets the stream and tells the receiver. */
  fail(error: RpcError): void {
    if (this.#isEnded) return;
    this.#end(error);
    this.#release();
  }

  #release(): void {
    if (this.#deadline !== null) clearTimeout(this.#deadline);
    const stream = this.#stream;
    if (stream.destroyed) return;
    // Node ends the sending half of a stream that is closed, so that the peer would take a cancelled client stream for a
    // finished one. With a write under way the end waits behind it, and the reset goes out first.
    if (!stream.writableEnded) stream.write(nothing);
    stream.close(constants.NGHTTP2_CANCEL);
  }

  #end(error: RpcError | null): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    if (this.#deadline !== null) clearTimeout(this.#deadline);
    this.#receiver.onEnd(error);
  }

  /** The first headers, which carry the status too when there is nothing else, or the trailers. */
  takeHeaders(headers: IncomingHttpHeaders): void {
    const httpStatus = Number(headers[":status"] ?? 200); // trailers have none
    const code = headers["grpc-status"];
    if (code !== undefined) {
      const message = headers["grpc-message"];
      this.#status = {
        code: parseStatus(String(code)),
        message: message === undefined ? "" : decodeStatusMessage(String(message)),
      };
    } else if (httpStatus !== 200) {
      this.fail(new RpcError(statusOfHttp(httpStatus), `the peer answered HTTP status ${httpStatus}`));
    }
  }

  receive(chunk: Uint8Array): void {
    if (this.#isEnded) return;
    let problem;
    try {
      problem = this.#reader.push(chunk);
    } catch (error) {
      // What the receiver itself got wrong is not the peer's fault, and not to be hidden.
      if (!(error instanceof RpcError)) throw error;
      this.fail(error);
      return;
    }
    if (problem === "compressed")
      this.fail(new RpcError(Status.UNIMPLEMENTED, "compressed messages are not supported"));
    else if (problem === "too-large")
      this.fail(new RpcError(Status.RESOURCE_EXHAUSTED, `response longer than ${messageBytesMax} bytes`));
  }

  /** The peer has sent everything. Trailers came before this. */
  received(): void {
    const status = this.#status;
    if (this.#isEnded || status === null) return; // without a status, the close tells why
    if (status.code !== Status.OK) this.#end(new RpcError(status.code, status.message));
    else if (!this.#reader.isBetweenMessages) this.#end(new RpcError(Status.INTERNAL, "response cut short"));
    else this.#end(null);
  }

  broken(error: Error): void {
    this.#streamError = error;
  }

  closed(): void {
    if (this.#isEnded) return;
    if (this.#status !== null) {
      this.received();
      return;
    }
    const failure = this.#health.connectionError();
    if (failure !== null) {
      this.#end(failure);
      return;
    }
    const code = this.#stream.rstCode ?? constants.NGHTTP2_NO_ERROR;
    const reason =
      code === constants.NGHTTP2_NO_ERROR
        ? "the stream ended without a status"
        : `the peer reset the stream (code ${code})`;
    this.#end(new RpcError(statusOfReset(code), reason, { cause: this.#streamError ?? undefined }));
  }
}
