/**
 * The client's half of HTTP/2: streams start with our request and end with the peer's trailers.
 *
 * L1: headers are sent in the order in which they were encoded; otherwise the peer's table would differ from ours.
 * L2: at most as many concurrent streams as the peer allows; the others wait, in order.
 * L3: after a GOAWAY no stream starts, and streams that the peer will not answer end as refused.
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
import { RequestEncoder, type RequestHead } from "./request-encoder.ts";
import { ResponseFields } from "./response-fields.ts";
import { Http2Stream, type StreamReceiver } from "./stream.ts";

export interface ResponseReceiver extends StreamReceiver {
  /** The first headers, or the trailers; valid only during the call. */
  takeHeaders(fields: ResponseFields): void;
}

const limits: ConnectionLimits = { ...knownLimits, streamWindowBytes, connectionWindowBytes };
const streamIdMax = 0x7fffffff;
/** Shared by all connections, since decoding completes within one call. */
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

  /** `scheme` and `authority` go into every request. `onGone` is called once. */
  constructor(socket: Duplex, target: { readonly scheme: string; readonly authority: string }, onGone: () => void) {
    super(socket, { greeting: clientGreeting, isServer: false, limits, budgets: null });
    this.#onGone = onGone;
    this.#encoder = new RequestEncoder(target.scheme, target.authority);
  }

  /** Null if the connection accepts no more calls. */
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
    // Sent as a control frame: those keep their order and are never dropped (L1).
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

  /** A server starts no streams. */
  protected override lastStreamId(): number {
    return 0;
  }

  protected override onHeaderBlock(streamId: number, flags: number, bytes: Buffer, at: number, end: number): void {
    require(this.hasBegun(streamId), ErrorCode.PROTOCOL_ERROR, "HEADERS on an unknown stream");
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
    // Interim responses are ignored.
    if (fields.isInformational) return;
    const isEnd = (flags & Flag.END_STREAM) !== 0;
    if (isEnd) stream.isRemoteEnded = true;
    stream.receiver?.takeHeaders(fields);
    if (isEnd && !stream.isClosed) this.onRemoteEnd(stream);
  }

  /** A response that completes before its request is final. */
  protected override onRemoteEnd(stream: Http2Stream): void {
    stream.takeEnd();
    // A paused stream has unread data: it ends when its call has read it.
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

  /** Frames that were in flight when we canceled. */
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
    // Makes the sender check whether anything is left to wait for.
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

  /** Not the peer's fault, and not to be hidden: a bug in a receiver. */
  protected override onBug(error: unknown): void {
    throw error;
  }
}

const nothing = new Uint8Array(0);
