/** The server's half of HTTP/2: streams start with a request's headers and end with our trailers. */
import type { Duplex } from "node:stream";
import { Http2Connection, type SharedBudgets } from "./connection.ts";
import { numberFrame } from "./frame-writer.ts";
import { HpackDecoder } from "./hpack-decoder.ts";
import {
  ErrorCode,
  Flag,
  FrameType,
  headerListBytesMax,
  headerListResets,
  headerTableBytesMax,
  knownLimits,
  require,
  type ConnectionLimits,
} from "./protocol.ts";
import { RequestHeaders } from "./request-headers.ts";
import { Http2Stream } from "./stream.ts";

export interface ConnectionHandler {
  /** A request's headers have arrived; they are valid only during the call. */
  onRequest(stream: Http2Stream, headers: RequestHeaders): void;
  /** The connection has ended, with the reason if it failed. Called once. */
  onClose(error: Error | null): void;
}

/** Shared by all connections, since decoding completes within one call. */
const requestHeaders = new RequestHeaders();

export class ServerConnection extends Http2Connection {
  readonly #handler: ConnectionHandler;
  readonly #decoder = new HpackDecoder(headerTableBytesMax);
  #lastStreamId = 0;

  constructor(
    socket: Duplex,
    handler: ConnectionHandler,
    limits: ConnectionLimits = knownLimits,
    budgets: SharedBudgets | null = null,
  ) {
    super(socket, limits, budgets);
    this.#handler = handler;
  }

  /** Whether another answer may be queued. */
  get canQueue(): boolean {
    return this.queuedBytes <= this.limits.queuedBytesMax;
  }

  protected override hasBegun(streamId: number): boolean {
    return streamId !== 0 && streamId <= this.#lastStreamId;
  }

  protected override lastStreamId(): number {
    return this.#lastStreamId;
  }

  protected override onHeaderBlock(streamId: number, flags: number, bytes: Buffer, at: number, end: number): void {
    const headers = requestHeaders;
    headers.reset();
    this.#decoder.decode(bytes, at, end, headers);
    const isEnd = (flags & Flag.END_STREAM) !== 0;
    const known = this.streams.get(streamId);
    if (known !== undefined) {
      this.#onTrailers(known, isEnd, headers);
      return;
    }
    require(streamId > this.#lastStreamId, ErrorCode.STREAM_CLOSED, "HEADERS on a closed stream");
    this.#lastStreamId = streamId;
    const stream = new Http2Stream(streamId, this, this.initialWindow, this.limits.streamWindowBytes);
    this.streams.set(streamId, stream);
    if (this.limits.streamCostBytes > 0) this.account();
    if (stream.isClosed) return;
    if (!this.isOpen || this.streams.size > this.limits.concurrentStreamsMax) {
      this.resetByFault(stream, ErrorCode.REFUSED_STREAM);
      return;
    }
    if (headers.bytes > headerListBytesMax) {
      this.resetByFault(stream, ErrorCode.ENHANCE_YOUR_CALM, headerListResets);
      return;
    }
    if (!headers.isRequest || (isEnd && (headers.contentLength ?? 0) !== 0)) {
      this.resetByFault(stream, ErrorCode.PROTOCOL_ERROR);
      return;
    }
    stream.promised = headers.contentLength;
    stream.isRemoteEnded = isEnd;
    this.#handler.onRequest(stream, headers);
    if (isEnd && !stream.isClosed) stream.takeEnd();
  }

  #onTrailers(stream: Http2Stream, isEnd: boolean, headers: RequestHeaders): void {
    if (stream.isRemoteEnded) this.onStray(stream.id, stream);
    else if (!isEnd || !headers.isTrailers || (stream.promised ?? 0) !== 0)
      this.resetByFault(stream, ErrorCode.PROTOCOL_ERROR);
    else stream.takeEnd();
  }

  /** If the peer is still sending, asks it to stop (RFC 9113 §8.1). */
  protected override onSent(stream: Http2Stream): void {
    if (stream.isRemoteEnded) this.remove(stream);
    else this.reset(stream, ErrorCode.NO_ERROR);
  }

  /** Frames for a stream that we ended early are not an error; the reset in answer counts against the peer's rate. */
  protected override onStray(streamId: number, stream: Http2Stream | undefined): void {
    this.chargeReset();
    if (stream !== undefined) this.reset(stream, ErrorCode.STREAM_CLOSED);
    else this.control(numberFrame(FrameType.RST_STREAM, streamId, ErrorCode.STREAM_CLOSED));
  }

  protected override onGone(error: Error | null): void {
    this.#handler.onClose(error);
  }
}
