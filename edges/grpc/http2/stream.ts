/**
 * One HTTP/2 stream: its queued data, its windows, and the data received while its call does not read.
 *
 * Stages: open → half closed, at the peer's end or our own → closed (both ends, or a reset). The connection keeps it until
 * it is closed.
 *
 * S1: data received while the call does not read is bounded by the stream's receive window.
 * S2: the window reopens for bytes that the receiver has consumed, never for those it holds of an unfinished message.
 */
import { framed, headerBytes } from "../framing.ts";
import type { ErrorCode } from "./protocol.ts";

/** A stream's notifications to its call. */
export interface StreamReceiver {
  /** Returns how many of all bytes received so far it still holds, such as those of an unfinished message. */
  receive(chunk: Uint8Array): number;
  received(): void;
  /** The stream has ended, or its peer or connection has. Called once. */
  closed(): void;
}

/** A stream's requests to its connection. */
export interface StreamOwner {
  /** The stream has data to send. */
  wantsToSend(stream: Http2Stream): void;
  reset(stream: Http2Stream, code: ErrorCode): void;
  /** `bytes` of flow-controlled data were consumed; 0 if the data is held. */
  consumed(stream: Http2Stream, bytes: number): void;
  /** The number of queued bytes changed by `bytes`. */
  queued(bytes: number): void;
}

const heldBytesMin = 4_096;

export class Http2Stream {
  readonly id: number;
  readonly #owner: StreamOwner;
  receiver: StreamReceiver | null = null;
  /** The queued header block; messages and trailers follow it, in this order. */
  headers: Buffer | null = null;
  readonly queue: Uint8Array[] = [];
  /** Bytes already sent of the first queued piece. */
  queueAt = 0;
  queuedBytes = 0;
  trailers: Buffer | null = null;
  /** Bytes that the peer accepts. */
  sendWindow: number;
  /** Bytes that the peer may still send. */
  receiveWindow: number;
  /** Bytes consumed but not yet returned to the peer's window. */
  unacknowledged = 0;
  /** In the connection's list of streams with data to send. */
  isListed = false;
  hasResponded = false;
  /** Our trailers have been queued. */
  hasEnded = false;
  /** Our half has been sent completely. */
  isSent = false;
  /** The peer has sent everything. */
  isRemoteEnded = false;
  isClosed = false;
  /** Bytes that remain of `content-length`; null if it was absent. */
  promised: number | null = null;
  #isPaused = false;
  #held: Buffer | null = null;
  #heldBytes = 0;
  #heldPadding = 0;
  /** Bytes that the receiver holds (S2). */
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

  /** Queues the pieces of a message from `framed`; other streams may queue the same pieces. */
  sendFramed(pieces: readonly Uint8Array[]): void {
    for (const piece of pieces) {
      this.queue.push(piece);
      this.addQueued(piece.length);
    }
    this.#owner.wantsToSend(this);
  }

  /** Drops queued messages, except one that may have been sent in part. */
  dropQueued(): void {
    const { queue } = this;
    // A piece of five bytes is the header of the next piece, or a whole empty message; then one message more is kept.
    const kept = queue[0]?.length === headerBytes ? 2 : 1;
    queue.length = Math.min(queue.length, kept);
    const left = queue.length === 0 ? 0 : queue.reduce((sum, piece) => sum + piece.length, -this.queueAt);
    this.addQueued(left - this.queuedBytes);
  }

  /** Adds to the queued bytes; negative when they leave the queue. */
  addQueued(bytes: number): void {
    this.queuedBytes += bytes;
    this.#owner.queued(bytes);
  }

  /** Ends our half after the queued data, without trailers. */
  finish(): void {
    this.hasEnded = true;
    this.#owner.wantsToSend(this);
  }

  /** Ends our half with trailers, after the queued data. */
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
    // It may have been paused again; then its end waits.
    if (this.isRemoteEnded && !this.#isPaused && !this.isClosed) this.receiver?.received();
  }

  get isPaused(): boolean {
    return this.#isPaused;
  }

  /** Receives a DATA frame; `bytes` is the size of its payload including padding. */
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

  /** The receiver now holds `bytes` bytes. */
  keeps(bytes: number): void {
    // A closed stream's bytes were returned by its close.
    if (this.isClosed) return;
    const used = this.#kept - bytes;
    this.#kept = bytes;
    this.#owner.consumed(this, used);
  }

  /** Bytes that the receiver holds. */
  get keptBytes(): number {
    return this.#kept;
  }

  takeEnd(): void {
    this.isRemoteEnded = true;
    if (!this.#isPaused) this.receiver?.received();
  }

  /** Called by the connection. Returns the number of held bytes, which go back to the connection's window. */
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
