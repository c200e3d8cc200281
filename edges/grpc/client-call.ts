/**
 * One call on the client: passes each message to its receiver, and ends the call with the status that arrived, or with one
 * that says what happened to its stream.
 *
 * Stages: open ⇄ waiting for a retry; either → ended (the receiver was notified, or the caller canceled).
 *
 * K1: the receiver is notified of the end exactly once, and never after `cancel`.
 * K3: the peer has not processed a single-message call whose stream it refused (RFC 9113 §8.7): the call is retried on the
 *     same connection, at most `refusedMax` times and within its deadline. A call of many messages ends, for its caller to restart.
 */
import { constants, type ClientHttp2Stream, type IncomingHttpHeaders } from "node:http2";
import { type Backoff, backoffMs } from "../../lib/backoff.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import { FrameReader, framed, type FrameReceiver } from "./framing.ts";
import { decodeStatusMessage, parseStatus, statusOfHttp, statusOfReset } from "./status.ts";

export interface ClientReceiver extends FrameReceiver {
  /** Throws RpcError if the message is malformed, which ends the call. */
  onFrame(message: Uint8Array): void;
  /** Null: status OK. */
  onEnd(error: RpcError | null): void;
}

/** Why a stream ended without a status: the connection's failure, or null if the connection is fine. */
interface ConnectionHealth {
  connectionError(): RpcError | null;
}

/** The assignments of a full node, and lists of a large cluster, are far larger than a request may be. */
export const messageBytesMaxDefault = 64 * 1024 * 1024;

/** K3. A peer that still refuses after these delays (310 ms in total) does so for other reasons than a burst of calls. */
const refusedMax = 5;
const refusedBackoff: Backoff = { stepMs: 10, msMax: 160 };

const nothing = new Uint8Array(0);

export class ClientCall {
  readonly #receiver: ClientReceiver;
  readonly #health: ConnectionHealth;
  readonly #reader: FrameReader;
  readonly #messageBytesMax: number;
  /** Null until the connection has accepted the call. */
  #stream: ClientHttp2Stream | null = null;
  #deadline: NodeJS.Timeout | null = null;
  #status: { readonly code: Status; readonly message: string; readonly details: Uint8Array | null } | null = null;
  #isEnded = false;
  #isPaused = false;
  /** Opens a stream for the call; null if the connection accepts no more. */
  #open: () => ClientHttp2Stream | null = () => null;
  /** The call's only message, until its answer begins; null for a call of many messages. K3 */
  #whole: Uint8Array | null = null;
  #refusals = 0;
  #retryTimer: NodeJS.Timeout | null = null;

  constructor(receiver: ClientReceiver, timeoutMs: number | null, health: ConnectionHealth, messageBytesMax: number) {
    this.#receiver = receiver;
    this.#health = health;
    this.#messageBytesMax = messageBytesMax;
    this.#reader = new FrameReader(messageBytesMax, receiver);
    if (timeoutMs !== null) {
      this.#deadline = setTimeout(
        () => this.fail(new RpcError(Status.DEADLINE_EXCEEDED, `no answer within ${timeoutMs} ms`)),
        timeoutMs,
      );
    }
  }

  /** `open` returns null if the connection accepts no more calls. */
  begin(open: () => ClientHttp2Stream | null): void {
    this.#open = open;
    const stream = open();
    this.#stream = stream;
    if (stream !== null) {
      stream.on("response", (headers) => this.#takeHeaders(headers));
      stream.on("trailers", (headers) => this.#takeHeaders(headers));
      stream.on("data", (chunk: Buffer) => this.#receive(chunk));
      stream.on("end", () => this.#received());
      // `close` follows, and the stream then has the reason.
      stream.on("error", () => {});
      stream.on("close", () => this.#closed(stream.rstCode ?? constants.NGHTTP2_NO_ERROR));
      if (this.#isPaused) stream.pause();
      return;
    }
    // Like every failure, reported only after the call that caused it has returned.
    queueMicrotask(() =>
      this.fail(
        this.#health.connectionError() ?? new RpcError(Status.UNAVAILABLE, "the connection accepts no more calls"),
      ),
    );
  }

  /** Sends the call's only message. */
  writeWhole(message: Uint8Array): void {
    this.#whole = message;
    this.write(message);
    this.finishWriting();
  }

  write(message: Uint8Array): void {
    const stream = this.#stream;
    if (this.#isEnded || stream === null || stream.destroyed || stream.writableEnded) return;
    for (const piece of framed(message)) stream.write(piece);
  }

  bufferedBytes(): number {
    return this.#isEnded ? 0 : (this.#stream?.writableLength ?? 0);
  }

  pause(): void {
    this.#isPaused = true;
    if (!this.#isEnded) this.#stream?.pause();
  }

  resume(): void {
    this.#isPaused = false;
    if (!this.#isEnded) this.#stream?.resume();
  }

  finishWriting(): void {
    const stream = this.#stream;
    if (stream !== null && !stream.destroyed && !stream.writableEnded) stream.end();
  }

  /** Resets the stream without notifying the receiver. */
  cancel(): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    this.#release();
  }

  /** Resets the stream and notifies the receiver. */
  fail(error: RpcError): void {
    if (this.#isEnded) return;
    this.#end(error);
    this.#release();
  }

  #release(): void {
    if (this.#deadline !== null) clearTimeout(this.#deadline);
    if (this.#retryTimer !== null) clearTimeout(this.#retryTimer);
    const stream = this.#stream;
    if (stream === null || stream.destroyed) return;
    // Node ends the sending half of a stream that is closed, and the peer would take a canceled client stream for a complete
    // one. While a write is pending, the end waits behind it and the reset is sent first.
    if (!stream.writableEnded) stream.write(nothing);
    stream.close(constants.NGHTTP2_CANCEL);
  }

  #end(error: RpcError | null): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    if (this.#deadline !== null) clearTimeout(this.#deadline);
    this.#receiver.onEnd(error);
  }

  #takeHeaders(headers: IncomingHttpHeaders): void {
    this.#whole = null;
    const httpStatus = Number(headers[":status"] ?? 200); // absent in trailers
    const { "grpc-status": code, "grpc-message": message = "", "grpc-status-details-bin": details } = headers;
    if (code !== undefined) {
      this.#status = {
        code: parseStatus(String(code)),
        message: decodeStatusMessage(String(message)),
        details: details === undefined ? null : Buffer.from(String(details), "base64"),
      };
    } else if (httpStatus !== 200) {
      this.fail(new RpcError(statusOfHttp(httpStatus), `the peer answered HTTP status ${httpStatus}`));
    }
  }

  #receive(chunk: Uint8Array): void {
    if (this.#isEnded) return;
    let problem;
    try {
      problem = this.#reader.push(chunk);
    } catch (error) {
      // Not the peer's fault, and not to be hidden: a bug in the receiver.
      if (!(error instanceof RpcError)) throw error;
      this.fail(error);
      return;
    }
    if (problem === "compressed")
      this.fail(new RpcError(Status.UNIMPLEMENTED, "compressed messages are not supported"));
    else if (problem === "too-large")
      this.fail(new RpcError(Status.RESOURCE_EXHAUSTED, `response longer than ${this.#messageBytesMax} bytes`));
  }

  /** The peer has sent everything, including trailers. */
  #received(): void {
    const status = this.#status;
    if (this.#isEnded || status === null) return; // without a status, `closed` reports why
    if (status.code !== Status.OK) {
      const { code, message, details } = status;
      this.#end(new RpcError(code, message, details === null ? {} : { details }));
    } else if (!this.#reader.isBetweenMessages) this.#end(new RpcError(Status.INTERNAL, "response cut short"));
    else this.#end(null);
    // A response that completes before its request is final.
    const stream = this.#stream;
    if (stream !== null && !stream.destroyed && !stream.writableEnded) stream.close(constants.NGHTTP2_NO_ERROR);
  }

  #closed(code: number): void {
    if (this.#isEnded) return;
    if (this.#status !== null) {
      this.#received();
      return;
    }
    // A stream that its peer refused was never processed, whatever else happened to the connection.
    const isRefused = code === constants.NGHTTP2_REFUSED_STREAM;
    if (isRefused && this.#sendAgain()) return;
    const error = isRefused ? null : this.#health.connectionError();
    const reason =
      code === constants.NGHTTP2_NO_ERROR
        ? "the stream ended without a status"
        : `the peer reset the stream (code ${code})`;
    this.#end(error ?? new RpcError(statusOfReset(code), reason));
  }

  /** K3. False if the call is not to be retried. */
  #sendAgain(): boolean {
    const whole = this.#whole;
    if (whole === null || this.#refusals >= refusedMax || this.#health.connectionError() !== null) return false;
    this.#refusals += 1;
    this.#retryTimer = setTimeout(
      () => {
        this.begin(this.#open);
        this.writeWhole(whole);
      },
      backoffMs(refusedBackoff, this.#refusals),
    );
    return true;
  }
}
