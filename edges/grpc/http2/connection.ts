/**
 * One HTTP/2 connection, on a socket whose handshake is done: what server and client have in common.
 *
 * Stages: preface → open → draining (takes no new streams; those under way go on) → ending → ended.
 *
 * N1: a peer that breaks the protocol or a limit of `protocol.ts` gets a GOAWAY that says so, and no more is read.
 * N2: every stream is told its end exactly once, also when the connection ends under it.
 * N3: what the streams hold of their peer's bytes is bounded by the connection's receive window, and reported to a budget that
 *     many connections share.
 */
import type { Duplex } from "node:stream";
import { InvariantError } from "../../../runtime/assert.ts";
import type { ByteBudget, ByteHolder } from "../admission/byte-budget.ts";
import type { TimeShare } from "../admission/time-share.ts";
import { FrameParser, type FrameSink } from "./frame-parser.ts";
import { controlFrame, goAwayFrame, numberFrame, settingsAck } from "./frame-writer.ts";
import {
  BudgetError,
  ConnectionError,
  ErrorCode,
  Flag,
  FrameType,
  Setting,
  defaultWindowBytes,
  frameBytesMax,
  headerBlockBytesMax,
  headerBlockFramesMax,
  lingerMs,
  prefaceTimeoutMs,
  windowBytesMax,
  type ConnectionLimits,
} from "./protocol.ts";
import { Sender } from "./sender.ts";
import type { Http2Stream, StreamOwner } from "./stream.ts";
import { TokenBucket } from "./token-bucket.ts";

export function require(condition: boolean, code: ErrorCode, message: string): asserts condition {
  if (!condition) throw new ConnectionError(code, message);
}

/** What a connection uses together with others. */
export interface SharedBudgets {
  readonly bytes: ByteBudget;
  /** Null for peers whose time is not counted. */
  readonly time: TimeShare | null;
}

export abstract class Http2Connection implements FrameSink, StreamOwner, ByteHolder {
  readonly streams = new Map<number, Http2Stream>();
  protected readonly sender: Sender;
  /** The peer's SETTINGS_INITIAL_WINDOW_SIZE. */
  protected initialWindow = defaultWindowBytes;
  readonly #socket: Duplex;
  readonly #parser: FrameParser;
  readonly #resets: TokenBucket;
  readonly #pings: TokenBucket;
  readonly #settings: TokenBucket;
  readonly #emptyData: TokenBucket;
  readonly #others: TokenBucket;
  readonly #budgets: SharedBudgets | null;
  protected readonly limits: ConnectionLimits;
  #timer: NodeJS.Timeout | null;
  #hasSettings = false;
  #receiveWindow: number;
  #unacknowledged = 0;
  /** As the budget knows it (N3). */
  #heldBytes = 0;
  /** A header block under way: its stream, flags, and parts so far. */
  #block: { readonly streamId: number; readonly flags: number; readonly parts: Buffer[]; bytes: number } | null = null;
  #stage: "open" | "draining" | "ending" | "ended" = "open";
  #failure: Error | null = null;

  /** `greeting`: what our side begins with. `isServer`: the peer begins with a preface. */
  constructor(
    socket: Duplex,
    options: {
      readonly greeting: Buffer;
      readonly isServer: boolean;
      readonly limits: ConnectionLimits;
      readonly budgets: SharedBudgets | null;
    },
  ) {
    const { greeting, isServer, limits, budgets } = options;
    const { rates } = limits;
    this.limits = limits;
    this.#budgets = budgets;
    this.#receiveWindow = limits.connectionWindowBytes;
    this.#socket = socket;
    this.#parser = new FrameParser(this, isServer);
    this.sender = new Sender(
      socket,
      limits,
      (stream) => this.onSent(stream),
      () => this.#flushed(),
    );
    const now = performance.now();
    this.#resets = new TokenBucket(rates.resets, now);
    this.#pings = new TokenBucket(rates.pings, now);
    this.#settings = new TokenBucket(rates.settings, now);
    this.#emptyData = new TokenBucket(rates.emptyData, now);
    this.#others = new TokenBucket(rates.others, now);
    this.#timer = setTimeout(() => this.destroy(), prefaceTimeoutMs);
    const time = budgets?.time ?? null;
    socket.on("data", (chunk: Buffer) => {
      if (time === null) this.#receive(chunk);
      else time.run(socket, () => this.#receive(chunk));
    });
    socket.on("drain", () => this.sender.drained());
    socket.on("end", () => this.destroy());
    socket.on("error", (error: Error) => (this.#failure ??= error));
    socket.on("close", () => this.#closed());
    this.sender.control(greeting);
  }

  /** False for a stream that neither side has begun. */
  protected abstract hasBegun(streamId: number): boolean;
  /** The highest stream that the peer has begun. */
  protected abstract lastStreamId(): number;
  /** HEADERS came, for a stream that the peer may send them on or not: the block is bytes[at..end). Throws ConnectionError. */
  protected abstract onHeaderBlock(streamId: number, flags: number, bytes: Buffer, at: number, end: number): void;
  /** The peer's half of a stream is over. */
  protected onRemoteEnd(stream: Http2Stream): void {
    stream.takeEnd();
  }
  /** Our half of a stream is over. */
  protected abstract onSent(stream: Http2Stream): void;
  /** DATA or HEADERS came for a stream that is closed, or whose other half is. */
  protected abstract onStray(streamId: number, stream: Http2Stream | undefined): void;
  protected abstract onPeerSetting(id: number, value: number): void;
  protected abstract onGoAway(lastStreamId: number, code: number): void;
  /** The connection is gone; with the reason if it failed. Called once, after every stream's end. */
  protected abstract onGone(error: Error | null): void;
  /** A stream is closed, and no longer among `streams`. */
  protected onRemoved(): void {}
  /** What to do with an error that is no fault of the peer's bytes. */
  protected abstract onBug(error: unknown): void;

  get isOpen(): boolean {
    return this.#stage === "open";
  }

  get failure(): Error | null {
    return this.#failure;
  }

  /** Takes no more calls; ends when those under way are over. */
  close(): void {
    if (!this.drain()) return;
    this.sender.control(goAwayFrame(this.lastStreamId(), ErrorCode.NO_ERROR));
  }

  /** True when that is news. */
  protected drain(): boolean {
    if (this.#stage !== "open") return false;
    this.#stage = "draining";
    return true;
  }

  /** Sends what is decided, and cuts the connection. */
  destroy(): void {
    if (this.#stage === "ended") return;
    this.sender.flush();
    this.#socket.destroy();
  }

  #receive(chunk: Buffer): void {
    if (this.#stage === "ending" || this.#stage === "ended") return;
    try {
      this.#parser.push(chunk);
    } catch (error) {
      if (error instanceof ConnectionError) this.fail(error);
      else if (error instanceof InvariantError) throw error;
      else this.onBug(error);
    }
  }

  /** N1. The socket lingers, so that the peer can read why. */
  protected fail(error: ConnectionError): void {
    if (this.#stage === "ending" || this.#stage === "ended") return;
    this.#failure ??= error;
    this.sender.control(goAwayFrame(this.lastStreamId(), error.code));
    this.sender.flush();
    this.#finish();
    this.#closeStreams();
  }

  #finish(): void {
    if (this.#stage === "ending" || this.#stage === "ended") return;
    this.#stage = "ending";
    this.#socket.end();
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#socket.destroy(), lingerMs);
  }

  #flushed(): void {
    if (this.#stage === "draining" && this.streams.size === 0) this.#finish();
  }

  #closed(): void {
    if (this.#stage === "ended") return;
    this.#stage = "ended";
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#budgets?.time?.release(this.#socket);
    this.#closeStreams();
    this.onGone(this.#failure);
  }

  #closeStreams(): void {
    const streams = [...this.streams.values()];
    this.streams.clear();
    for (const stream of streams) stream.close();
    if (this.#heldBytes > 0) this.#budgets?.bytes.set(this, (this.#heldBytes = 0));
  }

  protected control(frame: Uint8Array): void {
    if (!this.sender.control(frame)) this.destroy();
  }

  wantsToSend(stream: Http2Stream): void {
    if (!stream.isClosed) this.sender.list(stream);
  }

  reset(stream: Http2Stream, code: ErrorCode): void {
    if (stream.isClosed) return;
    this.control(numberFrame(FrameType.RST_STREAM, stream.id, code));
    this.remove(stream);
  }

  consumed(stream: Http2Stream, bytes: number): void {
    this.giveBack(bytes);
    stream.unacknowledged += bytes;
    if (stream.isRemoteEnded || !isWorthUpdate(stream, this.limits.streamWindowBytes)) return;
    this.control(numberFrame(FrameType.WINDOW_UPDATE, stream.id, stream.unacknowledged));
    stream.receiveWindow += stream.unacknowledged;
    stream.unacknowledged = 0;
  }

  endTaken(_stream: Http2Stream): void {}

  queued(bytes: number): void {
    this.sender.queuedBytes += bytes;
  }

  /** Bytes of answers that wait for the peer, on all streams. */
  get queuedBytes(): number {
    return this.sender.queuedBytes;
  }

  protected giveBack(bytes: number): void {
    this.#unacknowledged += bytes;
    const window = { receiveWindow: this.#receiveWindow, unacknowledged: this.#unacknowledged };
    if (isWorthUpdate(window, this.limits.connectionWindowBytes)) {
      this.control(numberFrame(FrameType.WINDOW_UPDATE, 0, this.#unacknowledged));
      this.#receiveWindow += this.#unacknowledged;
      this.#unacknowledged = 0;
    }
    this.account();
  }

  /** N3 */
  protected account(): void {
    const { connectionWindowBytes, streamCostBytes } = this.limits;
    const data = connectionWindowBytes - this.#receiveWindow - this.#unacknowledged;
    const held = data + this.streams.size * streamCostBytes;
    if (held === this.#heldBytes || this.#stage === "ending" || this.#stage === "ended") return;
    this.#heldBytes = held;
    this.#budgets?.bytes.set(this, held);
  }

  relieve(): void {
    this.fail(new BudgetError(ErrorCode.ENHANCE_YOUR_CALM, "unfinished requests hold too many bytes"));
  }

  /** The peer can send nothing more while all it has sent is kept: the unfinished message that keeps the most goes. */
  #unblock(): void {
    if (this.#receiveWindow >= frameBytesMax || this.#stage === "ending" || this.#stage === "ended") return;
    let largest: Http2Stream | null = null;
    for (const stream of this.streams.values()) {
      // A paused stream goes on with its handler.
      if (stream.isPaused || stream.keptBytes <= (largest?.keptBytes ?? 0)) continue;
      largest = stream;
    }
    if (largest !== null) this.resetByFault(largest, ErrorCode.ENHANCE_YOUR_CALM);
  }

  protected remove(stream: Http2Stream): void {
    if (!this.streams.delete(stream.id)) return;
    const held = stream.close();
    if (held > 0) this.giveBack(held);
    else if (this.limits.streamCostBytes > 0) this.account();
    if (this.#stage === "draining" && this.streams.size === 0) this.sender.control(nothing);
    this.onRemoved();
  }

  onFrame(type: number, flags: number, streamId: number, bytes: Buffer, at: number, end: number): void {
    if (this.#stage === "ending" || this.#stage === "ended") return;
    if (this.#block !== null) {
      require(type === FrameType.CONTINUATION &&
        streamId === this.#block.streamId, ErrorCode.PROTOCOL_ERROR, "a header block is not continued");
      this.#addToBlock(flags, bytes, at, end);
      return;
    }
    require(this.#hasSettings || type === FrameType.SETTINGS, ErrorCode.PROTOCOL_ERROR, "no SETTINGS at the start");
    switch (type) {
      case FrameType.DATA:
        this.#onData(flags, streamId, bytes, at, end);
        return;
      case FrameType.HEADERS:
        this.#onHeaders(flags, streamId, bytes, at, end);
        return;
      case FrameType.PRIORITY:
        require(streamId !== 0, ErrorCode.PROTOCOL_ERROR, "PRIORITY without stream");
        require(end - at === 5, ErrorCode.FRAME_SIZE_ERROR, "PRIORITY size");
        this.#chargeOther();
        this.#checkDependency(streamId, bytes, at);
        return;
      case FrameType.RST_STREAM:
        this.#onReset(streamId, bytes, at, end);
        return;
      case FrameType.SETTINGS:
        this.#onSettings(flags, streamId, bytes, at, end);
        return;
      case FrameType.PING:
        require(streamId === 0, ErrorCode.PROTOCOL_ERROR, "PING on a stream");
        require(end - at === 8, ErrorCode.FRAME_SIZE_ERROR, "PING size");
        if ((flags & Flag.ACK) !== 0) return;
        require(this.#pings.take(), ErrorCode.ENHANCE_YOUR_CALM, "too many PINGs");
        this.control(controlFrame(FrameType.PING, Flag.ACK, 0, bytes.subarray(at, end)));
        return;
      case FrameType.GOAWAY:
        require(streamId === 0, ErrorCode.PROTOCOL_ERROR, "GOAWAY on a stream");
        require(end - at >= 8, ErrorCode.FRAME_SIZE_ERROR, "GOAWAY size");
        this.#chargeOther();
        this.onGoAway(bytes.readUInt32BE(at) & 0x7fffffff, bytes.readUInt32BE(at + 4));
        return;
      case FrameType.WINDOW_UPDATE:
        this.#chargeOther();
        this.#onWindowUpdate(streamId, bytes, at, end);
        return;
      case FrameType.PUSH_PROMISE:
      case FrameType.CONTINUATION:
        throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, "a frame that has no place here");
      default:
        // Frames of unknown type are ignored (RFC 9113 §4.1).
        this.#chargeOther();
    }
  }

  /** Where the content of a padded frame ends. The pad length stands at `at`. */
  #contentEnd(bytes: Buffer, at: number, end: number): number {
    require(end > at, ErrorCode.FRAME_SIZE_ERROR, "no pad length");
    const contentEnd = end - (bytes[at] as number);
    require(contentEnd > at, ErrorCode.PROTOCOL_ERROR, "more padding than frame");
    return contentEnd;
  }

  #onData(flags: number, streamId: number, bytes: Buffer, at: number, end: number): void {
    require(this.hasBegun(streamId), ErrorCode.PROTOCOL_ERROR, "DATA on no stream");
    const size = end - at;
    const contentAt = (flags & Flag.PADDED) === 0 ? at : at + 1;
    const contentEnd = contentAt === at ? end : this.#contentEnd(bytes, at, end);
    this.#receiveWindow -= size;
    require(this.#receiveWindow >= 0, ErrorCode.FLOW_CONTROL_ERROR, "more DATA than the connection's window");
    const isEnd = (flags & Flag.END_STREAM) !== 0;
    const length = contentEnd - contentAt;
    if (length === 0 && !isEnd)
      require(this.#emptyData.take(), ErrorCode.ENHANCE_YOUR_CALM, "too many empty DATA frames");
    const stream = this.streams.get(streamId);
    if (stream === undefined || stream.isRemoteEnded) {
      this.giveBack(size);
      this.onStray(streamId, stream);
      return;
    }
    stream.receiveWindow -= size;
    if (stream.receiveWindow < 0) {
      this.giveBack(size);
      this.resetByFault(stream, ErrorCode.FLOW_CONTROL_ERROR);
      return;
    }
    if (stream.promised !== null) {
      stream.promised -= length;
      if (stream.promised < 0 || (isEnd && stream.promised !== 0)) {
        this.giveBack(size);
        this.resetByFault(stream, ErrorCode.PROTOCOL_ERROR);
        return;
      }
    }
    // Before the last bytes are taken, so that no window is opened for a stream that is complete.
    if (isEnd) stream.isRemoteEnded = true;
    if (size > 0) stream.take(bytes.subarray(contentAt, contentEnd), size);
    if (isEnd && !stream.isClosed) this.onRemoteEnd(stream);
    this.account();
    this.#unblock();
  }

  #chargeOther(): void {
    require(this.#others.take(), ErrorCode.ENHANCE_YOUR_CALM, "too many frames that carry nothing");
  }

  /** Costs the peer some of the resets that it may bring about. */
  protected chargeReset(count = 1): void {
    require(this.#resets.take(count), ErrorCode.ENHANCE_YOUR_CALM, "too many streams reset");
  }

  protected resetByFault(stream: Http2Stream, code: ErrorCode, resets = 1): void {
    this.chargeReset(resets);
    this.reset(stream, code);
  }

  #onHeaders(flags: number, streamId: number, bytes: Buffer, at: number, end: number): void {
    require((streamId & 1) === 1, ErrorCode.PROTOCOL_ERROR, "HEADERS on no client's stream");
    let contentAt = at;
    let contentEnd = end;
    if ((flags & Flag.PADDED) !== 0) {
      contentEnd = this.#contentEnd(bytes, at, end);
      contentAt += 1;
    }
    if ((flags & Flag.PRIORITY) !== 0) {
      require(contentEnd - contentAt >= 5, ErrorCode.FRAME_SIZE_ERROR, "no room for a priority");
      require((bytes.readUInt32BE(contentAt) & 0x7fffffff) !==
        streamId, ErrorCode.PROTOCOL_ERROR, "a stream that depends on itself");
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
      block.parts.length <= headerBlockFramesMax, ErrorCode.ENHANCE_YOUR_CALM, "a header block too large");
    if ((flags & Flag.END_HEADERS) === 0) return;
    this.#block = null;
    this.onHeaderBlock(block.streamId, block.flags, Buffer.concat(block.parts), 0, block.bytes);
  }

  #checkDependency(streamId: number, bytes: Buffer, at: number): void {
    if ((bytes.readUInt32BE(at) & 0x7fffffff) !== streamId) return;
    throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, "a stream that depends on itself");
  }

  #onReset(streamId: number, bytes: Buffer, at: number, end: number): void {
    require(this.hasBegun(streamId), ErrorCode.PROTOCOL_ERROR, "RST_STREAM on no stream");
    require(end - at === 4, ErrorCode.FRAME_SIZE_ERROR, "RST_STREAM size");
    this.chargeReset();
    const stream = this.streams.get(streamId);
    if (stream === undefined) return;
    stream.resetCode = bytes.readUInt32BE(at);
    this.remove(stream);
  }

  #onSettings(flags: number, streamId: number, bytes: Buffer, at: number, end: number): void {
    require(streamId === 0, ErrorCode.PROTOCOL_ERROR, "SETTINGS on a stream");
    const size = end - at;
    if ((flags & Flag.ACK) !== 0) {
      require(size === 0, ErrorCode.FRAME_SIZE_ERROR, "SETTINGS acknowledgement size");
      return;
    }
    require(size % 6 === 0, ErrorCode.FRAME_SIZE_ERROR, "SETTINGS size");
    require(this.#settings.take(), ErrorCode.ENHANCE_YOUR_CALM, "too many SETTINGS");
    this.#hasSettings = true;
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    for (let pair = at; pair < end; pair += 6) this.#onSetting(bytes.readUInt16BE(pair), bytes.readUInt32BE(pair + 2));
    this.control(settingsAck);
  }

  #onSetting(id: number, value: number): void {
    switch (id) {
      case Setting.ENABLE_PUSH:
        require(value <= 1, ErrorCode.PROTOCOL_ERROR, "ENABLE_PUSH");
        return;
      case Setting.MAX_FRAME_SIZE:
        require(value >= frameBytesMax && value <= 0xffffff, ErrorCode.PROTOCOL_ERROR, "MAX_FRAME_SIZE");
        return;
      case Setting.INITIAL_WINDOW_SIZE: {
        require(value <= windowBytesMax, ErrorCode.FLOW_CONTROL_ERROR, "INITIAL_WINDOW_SIZE");
        const change = value - this.initialWindow;
        this.initialWindow = value;
        for (const stream of this.streams.values()) {
          stream.sendWindow += change;
          require(stream.sendWindow <= windowBytesMax, ErrorCode.FLOW_CONTROL_ERROR, "a stream's window");
          if (stream.sendWindow > 0 && stream.queuedBytes > 0) this.sender.list(stream);
        }
        return;
      }
      default:
        this.onPeerSetting(id, value);
    }
  }

  #onWindowUpdate(streamId: number, bytes: Buffer, at: number, end: number): void {
    require(end - at === 4, ErrorCode.FRAME_SIZE_ERROR, "WINDOW_UPDATE size");
    require(streamId === 0 || this.hasBegun(streamId), ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE on no stream");
    const increment = bytes.readUInt32BE(at) & 0x7fffffff;
    if (streamId === 0) {
      require(increment > 0, ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of nothing");
      this.sender.window += increment;
      require(this.sender.window <= windowBytesMax, ErrorCode.FLOW_CONTROL_ERROR, "the connection's window");
      this.sender.unblock();
      return;
    }
    const stream = this.streams.get(streamId);
    if (stream === undefined) return;
    stream.sendWindow += increment;
    if (increment === 0) this.resetByFault(stream, ErrorCode.PROTOCOL_ERROR);
    else if (stream.sendWindow > windowBytesMax) this.resetByFault(stream, ErrorCode.FLOW_CONTROL_ERROR);
    else if (stream.queuedBytes > 0 && stream.sendWindow > 0) this.sender.list(stream);
  }
}

const nothing = new Uint8Array(0);

/** Whether it is time to reopen a window: half of it has been used up, or as much as is left while the rest is kept. */
function isWorthUpdate(
  { receiveWindow, unacknowledged }: { readonly receiveWindow: number; readonly unacknowledged: number },
  windowBytes: number,
): boolean {
  return unacknowledged > 0 && unacknowledged >= Math.min(windowBytes / 2, receiveWindow);
}
