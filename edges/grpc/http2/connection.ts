/**
 * One HTTP/2 connection of a server, on a socket whose handshake is complete: everything but its streams' beginnings.
 *
 * Stages: preface → open → draining (accepts no new streams; current ones continue) → ending → ended.
 *
 * N1: a peer that violates the protocol or a limit of `protocol.ts` gets a GOAWAY with the reason, and is not read any further.
 * N2: every stream is notified of its end exactly once, also when the connection ends first.
 * N3: the bytes that streams hold of their peer are bounded by the connection's receive window, and charged to a budget that
 *     many connections share.
 */
import type { Duplex } from "node:stream";
import { InvariantError } from "../../../lib/assert.ts";
import type { ByteBudget, ByteHolder } from "../admission/byte-budget.ts";
import type { TimeShare } from "../admission/time-share.ts";
import { http1Refusal, isHttp1Request } from "../http1.ts";
import { FrameParser } from "./frame-parser.ts";
import { goAwayFrame, numberFrame, serverGreeting } from "./frame-writer.ts";
import { PeerFrames } from "./peer-frames.ts";
import {
  BudgetError,
  ConnectionError,
  ErrorCode,
  FrameType,
  defaultWindowBytes,
  frameBytesMax,
  lingerMs,
  prefaceTimeoutMs,
  require,
  windowBytesMax,
  type ConnectionLimits,
} from "./protocol.ts";
import { Sender } from "./sender.ts";
import type { Http2Stream, StreamOwner } from "./stream.ts";

/** Budgets that a connection shares with others. */
export interface SharedBudgets {
  readonly bytes: ByteBudget;
  /** Null for peers whose time is not limited. */
  readonly time: TimeShare | null;
}

export abstract class Http2Connection extends PeerFrames implements StreamOwner, ByteHolder {
  readonly streams = new Map<number, Http2Stream>();
  protected readonly sender: Sender;
  /** The peer's SETTINGS_INITIAL_WINDOW_SIZE. */
  protected initialWindow = defaultWindowBytes;
  readonly #socket: Duplex;
  readonly #parser: FrameParser;
  readonly #budgets: SharedBudgets | null;
  protected readonly limits: ConnectionLimits;
  #timer: NodeJS.Timeout | null;
  #receiveWindow: number;
  #unacknowledged = 0;
  /** As reported to the budget (N3). */
  #heldBytes = 0;
  #stage: "open" | "draining" | "ending" | "ended" = "open";
  #failure: Error | null = null;
  /** Our first frames, until they are sent: after the peer's first bytes, which may be HTTP/1. */
  #greeting: Buffer | null;

  constructor(socket: Duplex, limits: ConnectionLimits, budgets: SharedBudgets | null) {
    super(limits.rates);
    this.limits = limits;
    this.#budgets = budgets;
    this.#receiveWindow = limits.connectionWindowBytes;
    this.#socket = socket;
    this.#parser = new FrameParser(this);
    this.sender = new Sender(
      socket,
      limits,
      (stream) => this.onSent(stream),
      () => this.#flushed(),
    );
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
    this.#greeting = serverGreeting(limits);
  }

  /** The highest stream that the peer has started. */
  protected abstract lastStreamId(): number;
  /** Our half of a stream has ended. */
  protected abstract onSent(stream: Http2Stream): void;
  /** DATA or HEADERS arrived for a stream that is closed or half closed (remote). */
  protected abstract onStray(streamId: number, stream: Http2Stream | undefined): void;
  /** The connection has ended, with the reason if it failed. Called once, after the end of every stream. */
  protected abstract onGone(error: Error | null): void;

  protected override get isReading(): boolean {
    return this.#stage !== "ending" && this.#stage !== "ended";
  }

  get isOpen(): boolean {
    return this.#stage === "open";
  }

  /** Accepts no more calls; the connection ends when the current ones have ended. */
  close(): void {
    if (this.#stage !== "open") return;
    this.#stage = "draining";
    this.#greet();
    this.sender.control(goAwayFrame(this.lastStreamId(), ErrorCode.NO_ERROR));
  }

  /** Sends what is queued for sending, and closes the connection. */
  destroy(): void {
    if (this.#stage === "ended") return;
    this.sender.flush();
    this.#socket.destroy();
  }

  #greet(): void {
    if (this.#greeting === null) return;
    this.sender.control(this.#greeting);
    this.#greeting = null;
  }

  #receive(chunk: Buffer): void {
    if (!this.isReading) return;
    if (this.#greeting !== null && isHttp1Request(chunk)) {
      this.#greeting = null;
      this.#failure ??= new ConnectionError(ErrorCode.HTTP_1_1_REQUIRED, "an HTTP/1 request");
      this.#socket.write(http1Refusal(chunk));
      this.#finish();
      return;
    }
    this.#greet();
    try {
      this.#parser.push(chunk);
    } catch (error) {
      if (error instanceof ConnectionError) this.fail(error);
      else if (error instanceof InvariantError) throw error;
      // A bug in handling a peer's bytes ends this connection, not the process.
      else this.fail(new ConnectionError(ErrorCode.INTERNAL_ERROR, error instanceof Error ? error.message : "unknown"));
    }
  }

  /** N1. The socket lingers, so that the peer can read the reason. */
  protected fail(error: ConnectionError): void {
    if (!this.isReading) return;
    this.#failure ??= error;
    this.sender.control(goAwayFrame(this.lastStreamId(), error.code));
    this.sender.flush();
    this.#finish();
    this.#closeStreams();
  }

  #finish(): void {
    if (!this.isReading) return;
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

  protected override control(frame: Uint8Array): void {
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

  queued(bytes: number): void {
    this.sender.queuedBytes += bytes;
  }

  /** Bytes of answers on all streams that wait for the peer. */
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
    if (held === this.#heldBytes || !this.isReading) return;
    this.#heldBytes = held;
    this.#budgets?.bytes.set(this, held);
  }

  relieve(): void {
    this.fail(new BudgetError(ErrorCode.ENHANCE_YOUR_CALM, "unfinished requests hold too many bytes"));
  }

  /** The peer cannot send while everything it sent is held: reset the unfinished message that holds the most. */
  #unblock(): void {
    if (this.#receiveWindow >= frameBytesMax || !this.isReading) return;
    let largest: Http2Stream | null = null;
    for (const stream of this.streams.values()) {
      // A paused stream continues when its handler does.
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
  }

  protected override onData(
    streamId: number,
    isEnd: boolean,
    size: number,
    bytes: Buffer,
    at: number,
    end: number,
  ): void {
    this.#receiveWindow -= size;
    require(this.#receiveWindow >= 0, ErrorCode.FLOW_CONTROL_ERROR, "DATA exceeds the connection's window");
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
      stream.promised -= end - at;
      if (stream.promised < 0 || (isEnd && stream.promised !== 0)) {
        this.giveBack(size);
        this.resetByFault(stream, ErrorCode.PROTOCOL_ERROR);
        return;
      }
    }
    // Before the last bytes are consumed, so that no window is reopened for a complete stream.
    if (isEnd) stream.isRemoteEnded = true;
    if (size > 0) stream.take(bytes.subarray(at, end), size);
    if (isEnd && !stream.isClosed) stream.takeEnd();
    this.account();
    this.#unblock();
  }

  protected resetByFault(stream: Http2Stream, code: ErrorCode, resets = 1): void {
    this.chargeReset(resets);
    this.reset(stream, code);
  }

  protected override onReset(streamId: number): void {
    const stream = this.streams.get(streamId);
    if (stream !== undefined) this.remove(stream);
  }

  protected override onSettings(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
  }

  protected override onInitialWindow(bytes: number): void {
    const change = bytes - this.initialWindow;
    this.initialWindow = bytes;
    for (const stream of this.streams.values()) {
      stream.sendWindow += change;
      require(stream.sendWindow <= windowBytesMax, ErrorCode.FLOW_CONTROL_ERROR, "a stream's window is too large");
      if (stream.sendWindow > 0 && stream.queuedBytes > 0) this.sender.list(stream);
    }
  }

  protected override onWindowUpdate(streamId: number, increment: number): void {
    if (streamId === 0) {
      this.sender.window += increment;
      require(this.sender.window <=
        windowBytesMax, ErrorCode.FLOW_CONTROL_ERROR, "the connection's window is too large");
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

/** Whether to reopen a window: half of it has been consumed, or as much as remains of it beside the bytes held. */
function isWorthUpdate(
  { receiveWindow, unacknowledged }: { readonly receiveWindow: number; readonly unacknowledged: number },
  windowBytes: number,
): boolean {
  return unacknowledged > 0 && unacknowledged >= Math.min(windowBytes / 2, receiveWindow);
}
