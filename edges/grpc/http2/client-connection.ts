/**
 * The client's half of HTTP/2: streams begin with our request and end with the peer's trailers.
 *
 * L1: a request's headers enter the connection in the order in which they were encoded, or the peer's table would not be ours.
 * L2: no more streams at once than the peer takes; the others wait, in order.
 * L3: after a GOAWAY nothing begins, and what the peer will not answer ends as refused.
 */
import type { Duplex } from "node:stream";
import { Http2Connection } from "./connection.ts";
import { clientGreeting, headersFrame } from "./frame-writer.ts";
import { HpackDecoder } from "./hpack-decoder.ts";
import {
  ErrorCode,
  Flag,
  Setting,
  connectionWindowBytes,
  headerListBytesMax,
  headerTableBytesMax,
  knownLimits,
  streamWindowBytes,
  require,
  type ConnectionLimits,
} from "./protocol.ts";
import { RequestEncoder } from "./request-encoder.ts";
import { ResponseFields } from "./response-fields.ts";
import { Http2Stream, type StreamReceiver } from "./stream.ts";

export interface RequestHead {
  readonly path: string;
  /** `grpc-timeout`; empty for none. */
  readonly timeout: string;
  readonly traceparent: string;
  /** Who we say we are, to a local manager; empty for nothing. */
  readonly caller: string;
}

export interface ResponseReceiver extends StreamReceiver {
  /** The first headers, or the trailers; valid only during the call. */
  takeHeaders(fields: ResponseFields): void;
}

const limits: ConnectionLimits = { ...knownLimits, streamWindowBytes, connectionWindowBytes };
const streamIdMax = 0x7fffffff;
/** Decoded within one call: shared by all connections. */
const responseFields = new ResponseFields();

interface Waiting {
  readonly stream: Http2Stream<ResponseReceiver>;
  readonly head: RequestHead;
}

export class ClientConnection extends Http2Connection {
  declare readonly streams: Map<number, Http2Stream<ResponseReceiver>>;
  readonly #onGone: () => void;
  readonly #decoder = new HpackDecoder(headerTableBytesMax);
  readonly #encoder: RequestEncoder;
  #waiting: Waiting[] = [];
  #nextStreamId = 1;
  #streamsMax = Number.POSITIVE_INFINITY;

  /** `scheme` and `authority` of every request. `onGone` is called once. */
  constructor(socket: Duplex, target: { readonly scheme: string; readonly authority: string }, onGone: () => void) {
    super(socket, { greeting: clientGreeting, isServer: false, limits, budgets: null });
    this.#onGone = onGone;
    this.#encoder = new RequestEncoder(target.scheme, target.authority);
  }

  /** Null when the connection takes no more calls. */
  request(head: RequestHead, receiver: ResponseReceiver): Http2Stream<ResponseReceiver> | null {
    if (!this.isOpen || this.#nextStreamId > streamIdMax) return null;
    const stream = new Http2Stream<ResponseReceiver>(0, this, this.initialWindow, streamWindowBytes);
    stream.receiver = receiver;
    if (this.streams.size >= this.#streamsMax) this.#waiting.push({ stream, head });
    else this.#begin(stream, head);
    return stream;
  }

  #begin(stream: Http2Stream, head: RequestHead): void {
    stream.id = this.#nextStreamId;
    stream.sendWindow = this.initialWindow;
    this.#nextStreamId += 2;
    this.streams.set(stream.id, stream as Http2Stream<ResponseReceiver>);
    // Among the control frames, which leave in order and are never dropped (L1).
    this.sender.control(headersFrame(stream.id, this.#encoder.encode(head)));
    if (stream.queuedBytes > 0 || stream.hasEnded) this.sender.list(stream);
  }

  override wantsToSend(stream: Http2Stream): void {
    if (stream.id !== 0) super.wantsToSend(stream);
  }

  override reset(stream: Http2Stream, code: ErrorCode): void {
    if (stream.id !== 0) {
      super.reset(stream, code);
      return;
    }
    this.#waiting = this.#waiting.filter((one) => one.stream !== stream);
    if (!stream.isClosed) stream.close();
  }

  protected override onRemoved(): void {
    while (this.#waiting.length > 0 && this.isOpen && this.streams.size < this.#streamsMax) {
      const { stream, head } = this.#waiting.shift() as Waiting;
      this.#begin(stream, head);
    }
  }

  protected override hasBegun(streamId: number): boolean {
    return (streamId & 1) === 1 && streamId < this.#nextStreamId;
  }

  /** The peer begins none. */
  protected override lastStreamId(): number {
    return 0;
  }

  protected override onHeaderBlock(streamId: number, flags: number, bytes: Buffer, at: number, end: number): void {
    require(this.hasBegun(streamId), ErrorCode.PROTOCOL_ERROR, "HEADERS on no stream of ours");
    const fields = responseFields;
    fields.reset();
    this.#decoder.decode(bytes, at, end, fields);
    const stream = this.streams.get(streamId);
    if (stream === undefined || stream.isRemoteEnded) return;
    if (fields.bytes > headerListBytesMax) {
      stream.resetCode = ErrorCode.ENHANCE_YOUR_CALM;
      this.reset(stream, ErrorCode.ENHANCE_YOUR_CALM);
      return;
    }
    // An interim answer says nothing.
    if (fields.isInformational) return;
    const isEnd = (flags & Flag.END_STREAM) !== 0;
    if (isEnd) stream.isRemoteEnded = true;
    stream.receiver?.takeHeaders(fields);
    if (isEnd && !stream.isClosed) this.onRemoteEnd(stream);
  }

  /** An answer that is complete before its request is has decided it. */
  protected override onRemoteEnd(stream: Http2Stream): void {
    stream.takeEnd();
    // What a paused stream holds is not read yet: it ends when its call reads on.
    if (!stream.isPaused) this.endTaken(stream);
  }

  override endTaken(stream: Http2Stream): void {
    if (stream.isClosed) return;
    if (stream.isSent) this.remove(stream);
    else this.reset(stream, ErrorCode.NO_ERROR);
  }

  protected override onSent(stream: Http2Stream): void {
    if (stream.isRemoteEnded) this.remove(stream);
  }

  /** What was on its way when we cancelled. */
  protected override onStray(): void {}

  protected override onPeerSetting(id: number, value: number): void {
    if (id === Setting.HEADER_TABLE_SIZE) this.#encoder.limitTable(value);
    if (id !== Setting.MAX_CONCURRENT_STREAMS) return;
    this.#streamsMax = value;
    this.onRemoved();
  }

  /** L3 */
  protected override onGoAway(lastStreamId: number): void {
    this.drain();
    for (const stream of this.streams.values()) {
      if (stream.id <= lastStreamId) continue;
      stream.resetCode = ErrorCode.REFUSED_STREAM;
      this.remove(stream);
    }
    this.#refuseWaiting();
    // Looks whether anything is left to wait for.
    this.sender.control(nothing);
  }

  #refuseWaiting(): void {
    for (const { stream } of this.#waiting.splice(0)) {
      stream.resetCode = ErrorCode.REFUSED_STREAM;
      stream.close();
    }
  }

  protected override onGone(): void {
    this.#refuseWaiting();
    this.#onGone();
  }

  /** What a receiver itself got wrong is not the peer's fault, and not to be hidden. */
  protected override onBug(error: unknown): void {
    throw error;
  }
}

const nothing = new Uint8Array(0);
