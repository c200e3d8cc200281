/**
 * One HTTP/2 stream: what waits to be sent, what may be sent, and what was received but not yet wanted.
 *
 * Stages: open → half closed, by the peer's end or by our own → closed (both, or a reset). The connection keeps it until
 * it is closed.
 *
 * S1: what arrives while the call does not read is bounded by the stream's receive window.
 * S2: the window reopens for what the receiver has used up, never for what it keeps of an unfinished message.
 */
import { framed, headerBytes } from "../framing.ts";
import type { ErrorCode } from "./protocol.ts";

/** What a stream tells its call. */
export interface StreamReceiver {
  /** Returns how many bytes of all that it was given it still keeps, such as those of an unfinished message. */
  receive(chunk: Uint8Array): number;
  received(): void;
  /** The stream is gone: after its end, or because the peer or the connection is. Called once. */
  closed(): void;
}

/** What a stream asks of its connection. */
export interface StreamOwner {
  /** The stream has something to send. */
  wantsToSend(stream: Http2Stream): void;
  reset(stream: Http2Stream, code: ErrorCode): void;
  /** `bytes` of flow-controlled data were used up; 0 when what came is kept. */
  consumed(stream: Http2Stream, bytes: number): void;
  /** The peer's end came while the stream was paused, and has now been taken. */
  endTaken(stream: Http2Stream): void;
  /** So many bytes more, or fewer, wait to be sent. */
  queued(bytes: number): void;
}

const heldBytesMin = 4_096;

export class Http2Stream<Receiver extends StreamReceiver = StreamReceiver> {
  /** 0 while it waits to begin. */
  id: number;
  readonly #owner: StreamOwner;
  receiver: Receiver | null = null;
  /** Header block that waits to be sent, then the messages, then the trailers: all of it in this order. */
  headers: Buffer | null = null;
  readonly queue: Uint8Array[] = [];
  /** Of the first of the queue, how many bytes are sent. */
  queueAt = 0;
  queuedBytes = 0;
  trailers: Buffer | null = null;
  /** How much the peer takes. */
  sendWindow: number;
  /** How much the peer may still send. */
  receiveWindow: number;
  /** Used up, and not yet given back to the peer. */
  unacknowledged = 0;
  /** In the connection's list of streams with something to send. */
  isListed = false;
  hasResponded = false;
  /** Our trailers are decided. */
  hasEnded = false;
  /** All of our half has left. */
  isSent = false;
  /** The peer has sent everything. */
  isRemoteEnded = false;
  isClosed = false;
  /** Why the peer, or we in its place, reset it; null when nobody did. */
  resetCode: number | null = null;
  /** Bytes that `content-length` still promises; null where it was not said. */
  promised: number | null = null;
  #isPaused = false;
  #held: Buffer | null = null;
  #heldBytes = 0;
  #heldPadding = 0;
  /** What the receiver keeps (S2). */
  #kept = 0;

  constructor(id: number, owner: StreamOwner, sendWindow: number, receiveWindow: number) {
    this.id = id;
    this.receiveWindow = receiveWindow;
    this.#owner = owner;
    this.sendWindow = sendWindow;
  }

  respond(headers: Buffer): void {
    this.hasResponded = true;
    this.headers = headers;
    this.#owner.wantsToSend(this);
  }

  /** Queues one gRPC message. */
  send(message: Uint8Array): void {
    this.sendFramed(framed(message));
  }

  /** Queues what `framed` made of a message; other streams may be sent the same pieces. */
  sendFramed(pieces: readonly Uint8Array[]): void {
    for (const piece of pieces) {
      this.queue.push(piece);
      this.addQueued(piece.length);
    }
    this.#owner.wantsToSend(this);
  }

  /** Forgets what is queued, but for the message that may have begun to leave. */
  dropQueued(): void {
    const { queue } = this;
    // A piece of five bytes is the header of the piece behind it, or a whole empty message: that costs one message more.
    const kept = queue[0]?.length === headerBytes ? 2 : 1;
    queue.length = Math.min(queue.length, kept);
    const left = queue.length === 0 ? 0 : queue.reduce((sum, piece) => sum + piece.length, -this.queueAt);
    this.addQueued(left - this.queuedBytes);
  }

  /** Counts bytes that were queued, or with a minus have left the queue. */
  addQueued(bytes: number): void {
    this.queuedBytes += bytes;
    this.#owner.queued(bytes);
  }

  /** Ends our half with what is queued; a client's requests have no trailers. */
  finish(): void {
    this.hasEnded = true;
    this.#owner.wantsToSend(this);
  }

  /** Ends our half with trailers; what is queued goes out before. */
  end(trailers: Buffer): void {
    this.hasEnded = true;
    this.trailers = trailers;
    this.#owner.wantsToSend(this);
  }

  reset(code: ErrorCode): void {
    this.#owner.reset(this, code);
  }

  pause(): void {
    this.#isPaused = true;
  }

  resume(): void {
    this.#isPaused = false;
    const held = this.#held;
    const bytes = this.#heldBytes + this.#heldPadding;
    const payload = held?.subarray(0, this.#heldBytes);
    this.#held = null;
    this.#heldBytes = this.#heldPadding = 0;
    if (bytes > 0 && !this.isClosed) this.#give(payload ?? null, bytes);
    // It may have filled up again; then its end waits.
    if (this.isRemoteEnded && !this.#isPaused && !this.isClosed) {
      this.receiver?.received();
      this.#owner.endTaken(this);
    }
  }

  get isPaused(): boolean {
    return this.#isPaused;
  }

  /** Takes a DATA frame; `bytes` is its payload with padding. */
  take(chunk: Buffer, bytes: number): void {
    if (!this.#isPaused) {
      this.#give(chunk, bytes);
      return;
    }
    this.#heldPadding += bytes - chunk.length;
    const needed = this.#heldBytes + chunk.length;
    if (this.#held === null || needed > this.#held.length) {
      const grown = Buffer.allocUnsafeSlow(Math.max(needed, heldBytesMin, (this.#held?.length ?? 0) * 2));
      this.#held?.copy(grown, 0, 0, this.#heldBytes);
      this.#held = grown;
    }
    chunk.copy(this.#held, this.#heldBytes);
    this.#heldBytes = needed;
  }

  #give(chunk: Buffer | null, bytes: number): void {
    this.#kept += bytes;
    const kept = chunk === null ? this.#kept - bytes : (this.receiver?.receive(chunk) ?? 0);
    this.keeps(kept);
  }

  /** The receiver keeps so many bytes by now. */
  keeps(bytes: number): void {
    // What a closed stream kept was given back by its close.
    if (this.isClosed) return;
    const used = this.#kept - bytes;
    this.#kept = bytes;
    this.#owner.consumed(this, used);
  }

  /** Bytes that the receiver keeps. */
  get keptBytes(): number {
    return this.#kept;
  }

  takeEnd(): void {
    this.isRemoteEnded = true;
    if (!this.#isPaused) this.receiver?.received();
  }

  /** Called by the connection. Returns the bytes that were held or kept and are given back to the connection's window. */
  close(): number {
    this.isClosed = true;
    this.queue.length = 0;
    this.addQueued(-this.queuedBytes);
    this.headers = this.trailers = null;
    const bytes = this.#heldBytes + this.#heldPadding + this.#kept;
    this.#kept = 0;
    this.#held = null;
    this.#heldBytes = this.#heldPadding = 0;
    this.receiver?.closed();
    this.receiver = null;
    return bytes;
  }
}
