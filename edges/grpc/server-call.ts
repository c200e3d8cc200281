/**
 * One call on the server: reads its request, runs its handler, writes its answer. It is also the handler's CallContext and,
 * for a server stream, its Sink: one object beside the HTTP/2 stream, which delivers what arrives.
 *
 * Stages: receiving (request incomplete) → handling → finished (status decided) → closed (HTTP/2 stream closed).
 *
 * C1: exactly one status is sent, and nothing after it.
 * C2: the signal aborts if and only if the handler did not decide the status: the caller or its connection went away, the
 *     deadline passed, or the server stops.
 */
import { handlerFailure, malformedRequest, overloaded } from "../../runtime/calls/failures.ts";
import type { Logger } from "../../runtime/ports/index.ts";
import { inCall, type OpenCall } from "../../runtime/observation/cause.ts";
import { RpcError, Status, type CallContext, type CallSignal, type Peer, type Sink } from "../../runtime/ports/rpc.ts";
import { CallerSignal } from "./caller-signal.ts";
import { FrameReader, type FrameReceiver } from "./framing.ts";
import { ErrorCode } from "./http2/protocol.ts";
import { okHeaders, trailers, trailersOnly } from "./http2/response-headers.ts";
import type { Http2Stream, StreamReceiver } from "./http2/stream.ts";
import type { MethodMetrics } from "./method-metrics.ts";
import { RequestStream, type FlowControl } from "./request-stream.ts";

/** A method as the server stores it: types are erased; the match of codec and handler was checked when it was added. */
export interface ServedMethod {
  readonly path: string;
  readonly messageBytesMax: number;
  readonly decode: (bytes: Uint8Array) => unknown;
  /** Encodes a message into the pieces that a stream sends; once if many streams get it in a row. */
  readonly frame: (message: unknown) => readonly Uint8Array[];
  readonly metrics: Pick<MethodMetrics, "started" | "ended">;
  readonly log: Logger;
  /** Whether a request changes its caller's permissions; null or absent if the method cannot. */
  readonly changesCaller?: ((request: unknown, peer: Peer) => boolean) | null;
  readonly handler:
    | { readonly kind: "unary"; readonly run: (request: unknown, call: CallContext) => unknown }
    | {
        readonly kind: "server-stream";
        readonly run: (request: unknown, sink: Sink<unknown>, call: CallContext) => void;
      }
    | {
        readonly kind: "client-stream";
        readonly run: (requests: AsyncIterable<unknown>, call: CallContext) => Promise<unknown>;
      }
    | {
        readonly kind: "duplex-stream";
        readonly run: (requests: AsyncIterable<unknown>, sink: Sink<unknown>, call: CallContext) => Promise<void>;
      };
}

/** Bytes that one sink queues for a peer that does not read; beyond, the stream ends with RESOURCE_EXHAUSTED. One message
 *  may be larger, such as the first assignments of a full node. */
const sinkBytesMax = 64 * 1024 * 1024;

const okTrailers = trailers(Status.OK, "");

/** Answers a call with only a status; if the peer is still sending, asks it to stop. */
export function refuse(stream: Http2Stream, code: Status, message: string, details: Uint8Array | null = null): void {
  if (stream.isClosed || stream.hasResponded) return;
  stream.hasEnded = true;
  stream.respond(trailersOnly(code, message, details));
}

/** The error that a client stream's handler gets; shared, since creating an error captures a stack each time. */
const gone = new RpcError(Status.CANCELLED, "the caller went away");

const always = (): boolean => true;
const ignore = (): void => undefined;
const nothing = new Uint8Array(0);

/** Options that the server adds to a call. */
interface CallOptions {
  /** Whether the connection can queue another answer. */
  readonly canQueue?: () => boolean;
  /** Overrides the method's limit for callers with a lower one. */
  readonly messageBytesMax?: number;
  /** Called when the request is complete, before its handler. */
  readonly onServed?: () => void;
  /** Starts the handler of a complete request now or later; false: never, since the server is overloaded. */
  readonly inTurn?: (start: () => void) => boolean;
}

export class ServerCall implements CallContext, Sink<unknown>, FrameReceiver, StreamReceiver, FlowControl, OpenCall {
  readonly peer: Peer;
  readonly traceparent: string;
  readonly #stream: Http2Stream;
  readonly #method: ServedMethod;
  readonly #startedAt: number;
  readonly #siblings: Set<ServerCall>;
  readonly #canQueue: () => boolean;
  readonly #onServed: () => void;
  readonly #inTurn: ((start: () => void) => boolean) | null;
  readonly #messageBytesMax: number;
  /** Messages at the last check of `isStalled`; -1 before the first. */
  #checkedCount = -1;
  /** Null once the request is complete. */
  #reader: FrameReader | null;
  /** A unary request, not decoded until it is complete: a few bytes can expand into many objects. */
  #request: Uint8Array | null = null;
  #requestCount = 0;
  #requests: RequestStream<unknown> | null = null;
  #signal: CallerSignal | null = null;
  #deadline: NodeJS.Timeout | null = null;
  /** In the time of `Clock.monotonic`. */
  deadline: number | undefined = undefined;
  /** Null until the status is decided (C1). */
  #status: Status | null = null;
  #isAborted = false;
  #changesCaller = false;

  /** Is in `siblings`, the calls of its connection, until its stream closes. */
  constructor(
    stream: Http2Stream,
    method: ServedMethod,
    peer: Peer,
    traceparent: string,
    siblings: Set<ServerCall>,
    { canQueue = always, inTurn, messageBytesMax = method.messageBytesMax, onServed = ignore }: CallOptions = {},
  ) {
    this.#inTurn = inTurn ?? null;
    this.#onServed = onServed;
    this.#canQueue = canQueue;
    this.#messageBytesMax = messageBytesMax;
    this.peer = peer;
    this.traceparent = traceparent;
    this.#stream = stream;
    this.#method = method;
    this.#startedAt = method.metrics.started();
    this.#reader = new FrameReader(messageBytesMax, this);
    this.#siblings = siblings;
    siblings.add(this);
    stream.receiver = this;
  }

  get method(): string {
    return this.#method.path;
  }

  /** Until its status is decided. */
  get isOpen(): boolean {
    return this.#status === null;
  }

  /** Created on first use: most calls end before anybody asks. */
  get signal(): CallSignal {
    if (this.#signal === null) {
      this.#signal = new CallerSignal();
      if (this.#isAborted) this.#signal.abort();
    }
    return this.#signal;
  }

  /** Starts the caller's deadline, in milliseconds from now. */
  startDeadline(ms: number): void {
    // Longer than a timer can wait: no deadline needed.
    if (ms > 0x7fffffff) return;
    this.deadline = performance.now() + ms;
    this.#deadline = setTimeout(() => {
      this.#finishWithError(Status.DEADLINE_EXCEEDED, "context deadline exceeded");
      this.#abort();
    }, ms);
  }

  /** A client stream's handler runs from the start, while messages arrive. */
  startClientStream(): void {
    const { handler } = this.#method;
    if (handler.kind === "client-stream") {
      this.#requests = new RequestStream<unknown>(this);
      const requests = this.#requests;
      this.#settle(inCall(this.method, this, () => handler.run(requests, this)));
    } else if (handler.kind === "duplex-stream") {
      const requests = (this.#requests = new RequestStream<unknown>(this));
      inCall(this.method, this, () => handler.run(requests, this, this)).then(
        () => this.end(),
        (error: unknown) => this.#fail(error),
      );
      this.#sendHeaders();
    }
  }

  /** True once its request is complete and its status is not decided: we owe the answer. */
  get isServed(): boolean {
    return this.#reader === null && this.#status === null;
  }

  /** True for a complete but unanswered request that changes its own caller. */
  get isChangingCaller(): boolean {
    return this.#changesCaller && this.#status === null;
  }

  /** Whether an incomplete request has completed no message since the previous call of this method. */
  isStalled(): boolean {
    const reader = this.#reader;
    const isUnfinished =
      reader !== null && this.#status === null && (this.#requests === null || !reader.isBetweenMessages);
    const isStalled = isUnfinished && this.#checkedCount === this.#requestCount;
    this.#checkedCount = isUnfinished ? this.#requestCount : -1;
    return isStalled;
  }

  /** Ends a call whose request is not completed. */
  expire(): void {
    this.#finishWithError(Status.DEADLINE_EXCEEDED, "the request was not completed in time");
    this.#abort();
  }

  pause(): void {
    this.#stream.pause();
  }

  resume(): void {
    this.#stream.resume();
  }

  taken(): void {
    this.#stream.keeps(this.#keptBytes());
  }

  #keptBytes(): number {
    return (this.#reader?.keptBytes ?? 0) + (this.#request?.length ?? 0) + (this.#requests?.waitingBytes ?? 0);
  }

  receive(chunk: Uint8Array): number {
    if (this.#reader === null || this.#status !== null) return 0;
    let problem;
    try {
      problem = this.#reader.push(chunk);
    } catch (error) {
      this.#fail(malformedRequest(error)); // only decoding throws
      return 0;
    }
    if (problem === "compressed") {
      this.#finishWithError(Status.UNIMPLEMENTED, "compressed messages are not supported");
    } else if (problem === "too-large") {
      this.#finishWithError(
        Status.RESOURCE_EXHAUSTED,
        `message larger than max (limit ${this.#messageBytesMax} bytes)`,
      );
    }
    return this.#keptBytes();
  }

  onFrame(message: Uint8Array): void {
    this.#requestCount += 1;
    if (this.#requests !== null) this.#requests.push(this.#method.decode(message), message.length);
    else if (this.#requestCount === 1) this.#request = message;
    else this.#refuseCount();
  }

  received(): void {
    const reader = this.#reader;
    if (reader === null || this.#status !== null) return;
    this.#reader = null;
    if (!reader.isBetweenMessages) {
      this.#finishWithError(Status.INVALID_ARGUMENT, "request cut short");
    } else if (this.#requests !== null) {
      this.#requests.end(null);
    } else if (this.#requestCount !== 1) {
      this.#refuseCount();
    } else {
      this.#onServed();
      if (this.#inTurn === null) this.#handle();
      else if (!this.#inTurn(() => this.#handle())) this.#fail(overloaded());
    }
  }

  /** gRPC's list of status codes defines this code for a wrong number of requests. */
  #refuseCount(): void {
    this.#finishWithError(Status.UNIMPLEMENTED, `expected one request, received ${this.#requestCount}`);
  }

  #handle(): void {
    // The caller may be gone after a wait.
    if (this.#status !== null) return;
    const { handler } = this.#method;
    let request;
    try {
      request = this.#method.decode(this.#request ?? nothing);
    } catch (error) {
      this.#fail(malformedRequest(error));
      return;
    }
    this.#request = null;
    this.#changesCaller = this.#method.changesCaller?.(request, this.peer) ?? false;
    try {
      if (handler.kind === "unary") {
        const response = inCall(this.method, this, () => handler.run(request, this));
        if (response instanceof Promise) this.#settle(response);
        else this.#finishWithResponse(response);
      } else if (handler.kind === "server-stream") {
        inCall(this.method, this, () => handler.run(request, this, this));
        this.#sendHeaders();
      }
    } catch (error) {
      this.#fail(error);
    }
  }

  #settle(response: Promise<unknown>): void {
    response.then(
      (message) => {
        try {
          this.#finishWithResponse(message);
        } catch (error) {
          this.#fail(error); // encoding failed
        }
      },
      (error: unknown) => this.#fail(error),
    );
  }

  #sendHeaders(): boolean {
    const stream = this.#stream;
    if (stream.isClosed) return false;
    if (stream.hasResponded) return true;
    if (this.#status !== null) return false;
    stream.respond(okHeaders);
    return true;
  }

  #decide(code: Status): boolean {
    if (this.#status !== null) return false;
    this.#status = code;
    this.#reader = null;
    this.#request = null;
    if (this.#deadline !== null) clearTimeout(this.#deadline);
    this.#method.metrics.ended(code, this.#startedAt);
    return true;
  }

  #finishWithResponse(message: unknown): void {
    if (this.#status !== null) return;
    const pieces = this.#method.frame(message);
    if (!this.#sendHeaders()) return;
    this.#decide(Status.OK);
    this.#stream.sendFramed(pieces);
    this.#stream.end(okTrailers);
  }

  /** Turns a handler's error into a status. */
  #fail(error: unknown): void {
    const { log, path: method } = this.#method;
    const isOpen = this.#status === null;
    const { code, message, details } = handlerFailure(error, { method, isOpen, log, soon: queueMicrotask });
    this.#finishWithError(code, message, details);
  }

  #finishWithError(code: Status, message: string, details: Uint8Array | null = null): void {
    if (!this.#decide(code)) return;
    this.#requests?.end(new RpcError(code, message));
    const stream = this.#stream;
    if (stream.isClosed) return;
    if (stream.hasResponded) stream.end(trailers(code, message, details));
    else refuse(stream, code, message, details);
  }

  /** The HTTP/2 stream has closed: after its answer, or because the peer or the connection went away. */
  closed(): void {
    this.#siblings.delete(this);
    if (!this.#decide(Status.CANCELLED)) return;
    this.#requests?.end(gone);
    this.#abort();
  }

  #abort(): void {
    this.#isAborted = true;
    this.#signal?.abort();
  }

  write(message: unknown): void {
    if (this.#status !== null || !this.#sendHeaders()) return;
    if (this.#stream.queuedBytes > sinkBytesMax || (this.#stream.queuedBytes > 0 && !this.#canQueue())) {
      this.end(new RpcError(Status.RESOURCE_EXHAUSTED, "the receiver of this stream is too slow"));
      // Its end is queued behind data that the peer does not read.
      this.#stream.reset(ErrorCode.ENHANCE_YOUR_CALM);
      return;
    }
    this.#stream.sendFramed(this.#method.frame(message));
  }

  end(error?: RpcError, queued: "send" | "drop" = "send"): void {
    if (this.#status !== null) return;
    if (queued === "drop") this.#stream.dropQueued();
    if (error !== undefined) {
      this.#finishWithError(error.code, error.message, error.details);
      return;
    }
    if (!this.#sendHeaders()) return;
    this.#decide(Status.OK);
    this.#stream.end(okTrailers);
  }

  bufferedBytes(): number {
    return this.#stream.queuedBytes;
  }

  /** Ends a call whose caller may no longer be served. Queued data is dropped. */
  revoke(code: Status, message: string): void {
    if (this.#status !== null) return;
    this.#stream.dropQueued();
    this.#finishWithError(code, message);
    this.#abort();
  }

  /** Ends a call because the server stops: streams at once, unanswered unary calls after the grace period. */
  shutDown(onlyStreams: boolean): void {
    if (this.#status !== null || (onlyStreams && this.#method.handler.kind === "unary")) return;
    this.#finishWithError(Status.UNAVAILABLE, "the server is shutting down");
    this.#abort();
  }
}
