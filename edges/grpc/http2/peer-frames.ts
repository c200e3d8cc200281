/**
 * The frames of a connection's peer: each is validated, counted against the peer's rates, and passed on. Header blocks are
 * assembled here.
 *
 * N4: a frame that is malformed, out of place or above its rate throws ConnectionError; nothing of it is passed on.
 */
import type { FrameSink } from "./frame-parser.ts";
import { controlFrame, settingsAck } from "./frame-writer.ts";
import {
  ConnectionError,
  ErrorCode,
  Flag,
  FrameType,
  Setting,
  frameBytesMax,
  headerBlockBytesMax,
  headerBlockFramesMax,
  require,
  windowBytesMax,
  type ConnectionLimits,
} from "./protocol.ts";
import { TokenBucket } from "./token-bucket.ts";

export abstract class PeerFrames implements FrameSink {
  readonly #resets: TokenBucket;
  readonly #pings: TokenBucket;
  readonly #settings: TokenBucket;
  readonly #emptyData: TokenBucket;
  readonly #others: TokenBucket;
  #hasSettings = false;
  /** An incomplete header block: its stream, flags, and parts so far. */
  #block: { readonly streamId: number; readonly flags: number; readonly parts: Buffer[]; bytes: number } | null = null;

  constructor(rates: ConnectionLimits["rates"]) {
    const now = performance.now();
    this.#resets = new TokenBucket(rates.resets, now);
    this.#pings = new TokenBucket(rates.pings, now);
    this.#settings = new TokenBucket(rates.settings, now);
    this.#emptyData = new TokenBucket(rates.emptyData, now);
    this.#others = new TokenBucket(rates.others, now);
  }

  /** False once reading has stopped. */
  protected abstract get isReading(): boolean;
  /** Sends an acknowledgment. */
  protected abstract control(frame: Uint8Array): void;
  /** False for a stream that neither side has started. */
  protected abstract hasBegun(streamId: number): boolean;
  /** HEADERS arrived, on any stream: the block is bytes[at..end). Throws ConnectionError. */
  protected abstract onHeaderBlock(streamId: number, flags: number, bytes: Buffer, at: number, end: number): void;
  /** DATA arrived on a stream that has started: `size` bytes of flow control, of which bytes[at..end) is the content. */
  protected abstract onData(
    streamId: number,
    isEnd: boolean,
    size: number,
    bytes: Buffer,
    at: number,
    end: number,
  ): void;
  protected abstract onReset(streamId: number): void;
  /** A SETTINGS frame begins. */
  protected abstract onSettings(): void;
  protected abstract onInitialWindow(bytes: number): void;
  /** On a started stream, or for stream 0 on the connection, where the increment is positive. */
  protected abstract onWindowUpdate(streamId: number, increment: number): void;

  onFrame(type: number, flags: number, streamId: number, bytes: Buffer, at: number, end: number): void {
    if (!this.isReading) return;
    if (this.#block !== null) {
      require(type === FrameType.CONTINUATION &&
        streamId === this.#block.streamId, ErrorCode.PROTOCOL_ERROR, "a header block is not continued");
      this.#addToBlock(flags, bytes, at, end);
      return;
    }
    require(this.#hasSettings ||
      type === FrameType.SETTINGS, ErrorCode.PROTOCOL_ERROR, "expected SETTINGS as the first frame");
    switch (type) {
      case FrameType.DATA:
        this.#checkData(flags, streamId, bytes, at, end);
        return;
      case FrameType.HEADERS:
        this.#checkHeaders(flags, streamId, bytes, at, end);
        return;
      case FrameType.PRIORITY:
        require(streamId !== 0, ErrorCode.PROTOCOL_ERROR, "PRIORITY on stream 0");
        require(end - at === 5, ErrorCode.FRAME_SIZE_ERROR, "invalid PRIORITY size");
        this.#chargeOther();
        this.#checkDependency(streamId, bytes, at);
        return;
      case FrameType.RST_STREAM:
        require(this.hasBegun(streamId), ErrorCode.PROTOCOL_ERROR, "RST_STREAM on an idle stream");
        require(end - at === 4, ErrorCode.FRAME_SIZE_ERROR, "invalid RST_STREAM size");
        this.chargeReset();
        this.onReset(streamId);
        return;
      case FrameType.SETTINGS:
        this.#checkSettings(flags, streamId, bytes, at, end);
        return;
      case FrameType.PING:
        require(streamId === 0, ErrorCode.PROTOCOL_ERROR, "PING on a stream");
        require(end - at === 8, ErrorCode.FRAME_SIZE_ERROR, "invalid PING size");
        if ((flags & Flag.ACK) !== 0) return;
        require(this.#pings.take(), ErrorCode.ENHANCE_YOUR_CALM, "too many PINGs");
        this.control(controlFrame(FrameType.PING, Flag.ACK, 0, bytes.subarray(at, end)));
        return;
      case FrameType.GOAWAY:
        require(streamId === 0, ErrorCode.PROTOCOL_ERROR, "GOAWAY on a stream");
        require(end - at >= 8, ErrorCode.FRAME_SIZE_ERROR, "invalid GOAWAY size");
        // The client closes the connection itself when its calls have ended.
        this.#chargeOther();
        return;
      case FrameType.WINDOW_UPDATE:
        this.#chargeOther();
        this.#checkWindowUpdate(streamId, bytes, at, end);
        return;
      case FrameType.PUSH_PROMISE:
      case FrameType.CONTINUATION:
        throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, "unexpected frame");
      default:
        // Frames of unknown type are ignored (RFC 9113 §4.1).
        this.#chargeOther();
    }
  }

  /** The end of a padded frame's content. The pad length is at `at`. */
  #contentEnd(bytes: Buffer, at: number, end: number): number {
    require(end > at, ErrorCode.FRAME_SIZE_ERROR, "missing pad length");
    const contentEnd = end - (bytes[at] as number);
    require(contentEnd > at, ErrorCode.PROTOCOL_ERROR, "padding exceeds the frame");
    return contentEnd;
  }

  #checkData(flags: number, streamId: number, bytes: Buffer, at: number, end: number): void {
    require(this.hasBegun(streamId), ErrorCode.PROTOCOL_ERROR, "DATA on an idle stream");
    const size = end - at;
    const contentAt = (flags & Flag.PADDED) === 0 ? at : at + 1;
    const contentEnd = contentAt === at ? end : this.#contentEnd(bytes, at, end);
    const isEnd = (flags & Flag.END_STREAM) !== 0;
    if (contentAt === contentEnd && !isEnd)
      require(this.#emptyData.take(), ErrorCode.ENHANCE_YOUR_CALM, "too many empty DATA frames");
    this.onData(streamId, isEnd, size, bytes, contentAt, contentEnd);
  }

  #chargeOther(): void {
    require(this.#others.take(), ErrorCode.ENHANCE_YOUR_CALM, "too many frames without content");
  }

  /** Counts resets that the peer causes against its rate. */
  protected chargeReset(count = 1): void {
    require(this.#resets.take(count), ErrorCode.ENHANCE_YOUR_CALM, "too many streams reset");
  }

  #checkHeaders(flags: number, streamId: number, bytes: Buffer, at: number, end: number): void {
    require((streamId & 1) === 1, ErrorCode.PROTOCOL_ERROR, "HEADERS on an even stream id");
    let contentAt = at;
    let contentEnd = end;
    if ((flags & Flag.PADDED) !== 0) {
      contentEnd = this.#contentEnd(bytes, at, end);
      contentAt += 1;
    }
    if ((flags & Flag.PRIORITY) !== 0) {
      require(contentEnd - contentAt >= 5, ErrorCode.FRAME_SIZE_ERROR, "HEADERS frame too short for its priority");
      require((bytes.readUInt32BE(contentAt) & 0x7fffffff) !==
        streamId, ErrorCode.PROTOCOL_ERROR, "stream depends on itself");
      contentAt += 5;
    }
    if ((flags & Flag.END_HEADERS) !== 0) {
      this.onHeaderBlock(streamId, flags, bytes, contentAt, contentEnd);
      return;
    }
    this.#block = { streamId, flags, parts: [], bytes: 0 };
    this.#addToBlock(flags, bytes, contentAt, contentEnd);
  }

  #addToBlock(flags: number, bytes: Buffer, at: number, end: number): void {
    const block = this.#block;
    if (block === null) return;
    block.parts.push(Buffer.from(bytes.subarray(at, end)));
    block.bytes += end - at;
    require(block.bytes <= headerBlockBytesMax &&
      block.parts.length <= headerBlockFramesMax, ErrorCode.ENHANCE_YOUR_CALM, "header block too large");
    if ((flags & Flag.END_HEADERS) === 0) return;
    this.#block = null;
    this.onHeaderBlock(block.streamId, block.flags, Buffer.concat(block.parts), 0, block.bytes);
  }

  #checkDependency(streamId: number, bytes: Buffer, at: number): void {
    if ((bytes.readUInt32BE(at) & 0x7fffffff) !== streamId) return;
    throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, "stream depends on itself");
  }

  #checkSettings(flags: number, streamId: number, bytes: Buffer, at: number, end: number): void {
    require(streamId === 0, ErrorCode.PROTOCOL_ERROR, "SETTINGS on a stream");
    const size = end - at;
    if ((flags & Flag.ACK) !== 0) {
      require(size === 0, ErrorCode.FRAME_SIZE_ERROR, "SETTINGS acknowledgment with a payload");
      return;
    }
    require(size % 6 === 0, ErrorCode.FRAME_SIZE_ERROR, "invalid SETTINGS size");
    require(this.#settings.take(), ErrorCode.ENHANCE_YOUR_CALM, "too many SETTINGS");
    this.#hasSettings = true;
    this.onSettings();
    for (let pair = at; pair < end; pair += 6)
      this.#checkSetting(bytes.readUInt16BE(pair), bytes.readUInt32BE(pair + 2));
    this.control(settingsAck);
  }

  #checkSetting(id: number, value: number): void {
    switch (id) {
      case Setting.ENABLE_PUSH:
        require(value <= 1, ErrorCode.PROTOCOL_ERROR, "ENABLE_PUSH");
        return;
      case Setting.MAX_FRAME_SIZE:
        require(value >= frameBytesMax && value <= 0xffffff, ErrorCode.PROTOCOL_ERROR, "MAX_FRAME_SIZE");
        return;
      case Setting.INITIAL_WINDOW_SIZE:
        require(value <= windowBytesMax, ErrorCode.FLOW_CONTROL_ERROR, "INITIAL_WINDOW_SIZE");
        this.onInitialWindow(value);
        return;
      // Our encoder keeps no table, our headers are short, and we start no streams: the other settings do not matter.
    }
  }

  #checkWindowUpdate(streamId: number, bytes: Buffer, at: number, end: number): void {
    require(end - at === 4, ErrorCode.FRAME_SIZE_ERROR, "invalid WINDOW_UPDATE size");
    require(streamId === 0 || this.hasBegun(streamId), ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE on an idle stream");
    const increment = bytes.readUInt32BE(at) & 0x7fffffff;
    require(streamId !== 0 || increment > 0, ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE with increment 0");
    this.onWindowUpdate(streamId, increment);
  }
}
