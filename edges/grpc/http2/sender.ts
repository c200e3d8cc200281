/**
 * The sending half of a connection: acknowledgments first, then one frame per stream in turn, within the windows. Everything
 * that becomes ready within one turn of the event loop is sent in one write.
 *
 * W1: DATA never exceeds the peer's windows.
 * W2: a stream's headers, messages and trailers are sent in this order, and nothing after its end.
 */
import type { Duplex } from "node:stream";
import { afterPoll } from "../../../runtime/system/turns.ts";
import { writeFrameHeader } from "./frame-writer.ts";
import {
  Flag,
  FrameType,
  defaultWindowBytes,
  frameBytesMax,
  frameHeaderBytes,
  type ConnectionLimits,
} from "./protocol.ts";
import type { Http2Stream } from "./stream.ts";

/** A write collects frames up to this size; the frames of one more stream's turn still fit. */
const writeBytes = 48 * 1024;
/** Shared by all connections, since it is filled and copied within one call. */
const scratch = Buffer.allocUnsafeSlow(writeBytes + 3 * (frameHeaderBytes + frameBytesMax));

/** Connections with data to send. */
let dirty: Sender[] = [];
/** Number of connections flushed at once: their peers start working while the rest of the poll is read. */
const flushConnectionsMax = 16;

/** Connections are flushed together, after the poll that delivered their requests, or when enough of them wait. */
function flushAll(): void {
  const senders = dirty;
  dirty = [];
  for (const sender of senders) sender.flush();
}

export class Sender {
  /** The peer's window for all streams together. */
  window = defaultWindowBytes;
  readonly #socket: Duplex;
  readonly #onSent: (stream: Http2Stream) => void;
  readonly #onFlushed: () => void;
  readonly #limits: Pick<ConnectionLimits, "controlBytesMax" | "socketBytesMax">;
  /** Queued bytes of all streams. */
  queuedBytes = 0;
  #control: Uint8Array[] = [];
  #controlBytes = 0;
  #ready: Http2Stream[] = [];
  /** Streams that wait for the connection's window. */
  #blocked: Http2Stream[] = [];
  #isDirty = false;
  #waitsForDrain = false;

  constructor(
    socket: Duplex,
    limits: Pick<ConnectionLimits, "controlBytesMax" | "socketBytesMax">,
    onSent: (stream: Http2Stream) => void,
    onFlushed: () => void,
  ) {
    this.#socket = socket;
    this.#limits = limits;
    this.#onSent = onSent;
    this.#onFlushed = onFlushed;
  }

  /** False if the peer reads so little that nothing more can be queued for it. */
  control(frame: Uint8Array): boolean {
    this.#control.push(frame);
    this.#controlBytes += frame.length;
    this.#schedule();
    return this.#controlBytes <= this.#limits.controlBytesMax;
  }

  list(stream: Http2Stream): void {
    if (stream.isListed) return;
    stream.isListed = true;
    this.#ready.push(stream);
    this.#schedule();
  }

  /** The connection's window grew. */
  unblock(): void {
    if (this.#blocked.length === 0) return;
    this.#ready.push(...this.#blocked.splice(0));
    this.#schedule();
  }

  drained(): void {
    this.#waitsForDrain = false;
    this.#schedule();
  }

  #schedule(): void {
    if (this.#isDirty || this.#waitsForDrain) return;
    this.#isDirty = true;
    const waiting = dirty.push(this);
    if (waiting === 1) afterPoll(flushAll);
    // Not within the call that queued data: it may queue more.
    else if (waiting === flushConnectionsMax) queueMicrotask(flushAll);
  }

  /** Sends what can be sent now. */
  flush(): void {
    this.#isDirty = false;
    const socket = this.#socket;
    if (socket.destroyed || socket.writableEnded) return;
    while (this.#control.length > 0 || this.#ready.length > 0) {
      if (socket.writableLength > this.#limits.socketBytesMax) {
        this.#waitsForDrain = true;
        return;
      }
      const length = this.#fill();
      if (length > 0) socket.write(Buffer.from(scratch.subarray(0, length)));
    }
    this.#onFlushed();
  }

  #fill(): number {
    let at = 0;
    let taken = 0;
    for (; taken < this.#control.length && at < writeBytes; taken += 1) {
      const frame = this.#control[taken] as Uint8Array;
      scratch.set(frame, at);
      at += frame.length;
      this.#controlBytes -= frame.length;
    }
    if (taken === this.#control.length) this.#control = [];
    else this.#control.splice(0, taken);
    while (at < writeBytes && this.#ready.length > 0) {
      const round = this.#ready;
      this.#ready = [];
      let index = 0;
      for (; index < round.length && at < writeBytes; index += 1) at = this.#turn(round[index] as Http2Stream, at);
      if (index < round.length) this.#ready = [...round.slice(index), ...this.#ready];
    }
    return at;
  }

  /** One stream's turn: its headers, one DATA frame, and its end if nothing else is queued. */
  #turn(stream: Http2Stream, from: number): number {
    let at = from;
    stream.isListed = false;
    if (stream.isClosed || stream.isSent) return at;
    if (stream.headers !== null) {
      const isLast = stream.hasEnded && stream.trailers === null && stream.queuedBytes === 0;
      at = writeBlock(at, stream.id, stream.headers, isLast);
      stream.headers = null;
      if (isLast) {
        this.#end(stream);
        return at;
      }
    }
    const hasTrailers = stream.trailers !== null;
    if (stream.queuedBytes > 0) {
      const length = Math.min(stream.queuedBytes, stream.sendWindow, this.window, frameBytesMax);
      if (length <= 0) {
        // A stream whose own window is closed is listed again when it opens.
        if (stream.sendWindow > 0) {
          stream.isListed = true;
          this.#blocked.push(stream);
        }
        return at;
      }
      const isLast = stream.hasEnded && !hasTrailers && length === stream.queuedBytes;
      at = writeFrameHeader(scratch, at, length, FrameType.DATA, isLast ? Flag.END_STREAM : 0, stream.id);
      takeQueued(stream, at, length);
      at += length;
      stream.sendWindow -= length;
      this.window -= length;
      if (stream.queuedBytes > 0) {
        this.list(stream);
        return at;
      }
      if (isLast) {
        this.#end(stream);
        return at;
      }
    }
    if (!stream.hasEnded) return at;
    if (stream.trailers === null) at = writeFrameHeader(scratch, at, 0, FrameType.DATA, Flag.END_STREAM, stream.id);
    else {
      at = writeBlock(at, stream.id, stream.trailers, true);
      stream.trailers = null;
    }
    this.#end(stream);
    return at;
  }

  #end(stream: Http2Stream): void {
    stream.isSent = true;
    this.#onSent(stream);
  }
}

function writeBlock(at: number, streamId: number, block: Buffer, isLast: boolean): number {
  const flags = Flag.END_HEADERS | (isLast ? Flag.END_STREAM : 0);
  const payloadAt = writeFrameHeader(scratch, at, block.length, FrameType.HEADERS, flags, streamId);
  scratch.set(block, payloadAt);
  return payloadAt + block.length;
}

/** Moves `length` queued bytes into the write. */
function takeQueued(stream: Http2Stream, from: number, length: number): void {
  const { queue } = stream;
  let at = from;
  let left = length;
  let done = 0;
  while (left > 0) {
    const bytes = queue[done] as Uint8Array;
    const taken = Math.min(left, bytes.length - stream.queueAt);
    scratch.set(taken === bytes.length ? bytes : bytes.subarray(stream.queueAt, stream.queueAt + taken), at);
    at += taken;
    left -= taken;
    stream.queueAt += taken;
    if (stream.queueAt === bytes.length) {
      done += 1;
      stream.queueAt = 0;
    }
  }
  if (done === queue.length) queue.length = 0;
  else if (done > 0) queue.splice(0, done);
  stream.addQueued(-length);
}
