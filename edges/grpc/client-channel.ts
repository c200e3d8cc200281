/**
 * The client's half: one connection to one manager, as used by agents, the CLI and other managers. Independent of TLS, which
 * the CLI does not need and would otherwise load.
 *
 * Stages: connecting (the promise of `openChannel`) → open → ended, by `close`, by the peer or by a failure.
 *
 * K1: every call ends exactly once, also when the connection ends first.
 */
import { connect as connectHttp2, type ClientHttp2Session } from "node:http2";
import { connect, type Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { MethodDescriptor, WireCodec, WireMethod } from "../../proto/codec.ts";
import { outsideCalls } from "../../runtime/observation/cause.ts";
import {
  RpcError,
  Status,
  type CallingProcess,
  type DuplexCall,
  type DuplexChannel,
  type ReceivingCall,
  type RpcChannel,
  type SendingCall,
} from "../../runtime/ports/rpc.ts";
import { callerHeader, callerText } from "./calling-process.ts";
import { ClientCall, messageBytesMaxDefault, type ClientReceiver } from "./client-call.ts";
import { prefaceTimeoutMs } from "./http2/protocol.ts";
import { formatTimeout } from "./status.ts";

const unixTimeoutMs = 5_000;
/** Receive window per stream, in bytes: a whole assignment or status report arrives without waiting for window updates. */
const streamWindowBytes = 1024 * 1024;
/** Receive window for all streams together, in bytes. */
const connectionWindowBytes = 4 * 1024 * 1024;

const sessionOptions = {
  // In megabytes. Beyond its default of 10, Node refuses new streams, heartbeats among them, while large messages are queued.
  // Callers bound what they queue.
  maxSessionMemory: 1024,
  // Frames for streams that were just canceled are not an attack.
  maxSessionInvalidFrames: 100_000,
  maxSessionRejectedStreams: 100_000,
  settings: { enablePush: false, initialWindowSize: streamWindowBytes },
};

/** Connects to a control socket, identifying itself as `process` if given. Rejects with RpcError UNAVAILABLE. */
export function connectUnix(path: string, process?: CallingProcess): Promise<RpcChannel> {
  const requests = {
    scheme: "http",
    authority: "localhost",
    caller: process === undefined ? "" : callerText(process),
  };
  return openChannel(
    outsideCalls(() => connect({ path })),
    "connect",
    path,
    requests,
    unixTimeoutMs,
  );
}

/** A channel over a connection that is open already, such as one within the process. */
export function channelOver(socket: Duplex, target: string): RpcChannel {
  const requests = { scheme: "http", authority: "localhost", caller: "" };
  return new Http2Channel(socket, requests, target, messageBytesMaxDefault);
}

interface Requests {
  readonly scheme: string;
  readonly authority: string;
  /** How we identify ourselves to a local manager, or empty. */
  readonly caller: string;
}

/** Resolves once `socket` emits `readyEvent`, unless `refusal` objects. Rejects with RpcError UNAVAILABLE. */
export function openChannel(
  socket: Socket,
  readyEvent: string,
  target: string,
  requests: Requests,
  timeoutMs: number,
  refusal: () => string | null = () => null,
  messageBytesMax: number = messageBytesMaxDefault,
): Promise<DuplexChannel> {
  return new Promise((resolve, reject) => {
    const stopTimer = (): void => {
      clearTimeout(timer);
      clearImmediate(expiry);
    };
    const fail = (reason: string, cause?: Error): void => {
      stopTimer();
      socket.destroy();
      reject(new RpcError(Status.UNAVAILABLE, `cannot connect to ${target}: ${reason}`, { cause }));
    };
    let expiry: NodeJS.Immediate | undefined;
    const timer = setTimeout(() => {
      // After the socket has been read: a pause of this process does not count.
      expiry = setImmediate(() => fail(`no answer within ${timeoutMs} ms`));
    }, timeoutMs);
    const onError = (error: Error): void => fail(error.message, error);
    const onClose = (): void => fail("connection closed");
    socket.once("error", onError);
    socket.once("close", onClose);
    socket.once(readyEvent, () => {
      const reason = refusal();
      if (reason !== null) {
        fail(reason);
        return;
      }
      stopTimer();
      socket.off("error", onError);
      socket.off("close", onClose);
      socket.setNoDelay(true);
      resolve(new Http2Channel(socket, requests, target, messageBytesMax));
    });
  });
}

class Http2Channel implements DuplexChannel {
  readonly #session: ClientHttp2Session;
  readonly #requests: Requests;
  readonly #target: string;
  readonly #messageBytesMax: number;
  readonly #listeners: (() => void)[] = [];
  #state: "open" | "closed by us" | "ended" = "open";
  #failure: Error | null = null;

  constructor(socket: Duplex, requests: Requests, target: string, messageBytesMax: number) {
    this.#requests = requests;
    this.#target = target;
    this.#messageBytesMax = messageBytesMax;
    const session = connectHttp2(`${requests.scheme}://${requests.authority}`, {
      ...sessionOptions,
      createConnection: () => socket,
    });
    this.#session = session;
    const silence = setTimeout(() => session.destroy(new Error("no HTTP/2 settings arrived")), prefaceTimeoutMs);
    session.once("remoteSettings", () => clearTimeout(silence));
    session.once("connect", () => session.destroyed || session.setLocalWindowSize(connectionWindowBytes));
    session.on("error", (error: Error) => (this.#failure ??= error));
    session.on("close", () => {
      clearTimeout(silence);
      if (this.#state !== "open") return;
      this.#state = "ended";
      for (const listener of this.#listeners.splice(0)) listener();
    });
  }

  unary<Request, Response>(
    method: MethodDescriptor<Request, Response>,
    request: Request,
    options?: { timeoutMs?: number; traceparent?: string },
  ): Promise<Response> {
    return new Promise((resolve, reject) => {
      const call = this.#start(method, new SingleResponse(method.response, resolve, reject), options);
      call.writeWhole(method.request.encode(request));
    });
  }

  serverStream<Request, Response>(
    method: WireMethod<Request, Response>,
    request: Request,
    receiver: { onMessage(message: Response): void; onEnd(error: RpcError | null): void },
    options?: { readonly traceparent?: string },
  ): ReceivingCall {
    const call = this.#start(method, new ResponseStream(method.response, receiver), options);
    call.writeWhole(method.request.encode(request));
    return { cancel: () => call.cancel(), pause: () => call.pause(), resume: () => call.resume() };
  }

  clientStream<Request, Response>(
    method: MethodDescriptor<Request, Response>,
    onEnd: () => void = () => {},
  ): SendingCall<Request, Response> {
    const { promise, resolve, reject } = Promise.withResolvers<Response>();
    const call = this.#start(method, new SingleResponse(method.response, resolve, reject));
    let isCancelled = false;
    const end = (): void => {
      if (!isCancelled) onEnd();
    };
    // `finish` reports the failure; before that, nobody awaits this promise.
    promise.then(end, end);
    return {
      write: (message) => call.write(method.request.encode(message)),
      finish: () => {
        call.finishWriting();
        return promise;
      },
      cancel: () => {
        isCancelled = true;
        call.fail(new RpcError(Status.CANCELLED, "cancelled"));
      },
      bufferedBytes: () => call.bufferedBytes(),
    };
  }

  duplexStream<Request, Response>(
    method: MethodDescriptor<Request, Response>,
    receiver: { onMessage(message: Response): void; onEnd(error: RpcError | null): void },
  ): DuplexCall<Request> {
    const call = this.#start(method, new ResponseStream(method.response, receiver));
    return {
      write: (message) => call.write(method.request.encode(message)),
      finish: () => call.finishWriting(),
      cancel: () => call.cancel(),
      pause: () => call.pause(),
      resume: () => call.resume(),
      bufferedBytes: () => call.bufferedBytes(),
    };
  }

  close(): void {
    if (this.#state !== "open") return;
    this.#state = "closed by us";
    this.#session.destroy();
  }

  onClosed(listener: () => void): void {
    if (this.#state === "open") this.#listeners.push(listener);
    // Never from within this call: the caller may not be ready for it.
    else if (this.#state === "ended") queueMicrotask(listener);
  }

  /** The error of a call that lost its stream without a status because of the connection; null if the connection is fine. */
  connectionError(): RpcError | null {
    if (this.#state === "closed by us") return new RpcError(Status.CANCELLED, "the connection was closed");
    const failure = this.#failure;
    if (!this.#session.destroyed && failure === null) return null;
    const reason = failure === null ? "" : `: ${failure.message}`;
    return new RpcError(Status.UNAVAILABLE, `connection to ${this.#target} ended${reason}`, {
      cause: failure ?? undefined,
    });
  }

  #start(
    method: { readonly path: string },
    receiver: ClientReceiver,
    options?: { timeoutMs?: number; traceparent?: string },
  ): ClientCall {
    const call = new ClientCall(receiver, options?.timeoutMs ?? null, this, this.#messageBytesMax);
    const { timeoutMs = null, traceparent = "" } = options ?? {};
    const { scheme, authority, caller } = this.#requests;
    const startedAt = performance.now();
    call.begin(() => {
      if (this.#session.closed || this.#session.destroyed) return null;
      return this.#session.request({
        ":method": "POST",
        ":scheme": scheme,
        ":path": method.path,
        ":authority": authority,
        "content-type": "application/grpc",
        te: "trailers",
        ...(caller === "" ? {} : { [callerHeader]: caller }),
        ...(timeoutMs === null ? {} : { "grpc-timeout": formatTimeout(timeoutMs - (performance.now() - startedAt)) }),
        ...(traceparent === "" ? {} : { traceparent }),
      });
    });
    return call;
  }
}

function decodeResponse<Response>(codec: WireCodec<Response>, message: Uint8Array): Response {
  try {
    return codec.decode(message);
  } catch (error) {
    throw new RpcError(Status.INTERNAL, `malformed ${codec.typeName}`, { cause: error });
  }
}

/** The receiver of a call with one response. */
class SingleResponse<Response> implements ClientReceiver {
  readonly #codec: WireCodec<Response>;
  readonly #resolve: (response: Response) => void;
  readonly #reject: (error: RpcError) => void;
  #responses: Response[] = [];

  constructor(codec: WireCodec<Response>, resolve: (response: Response) => void, reject: (error: RpcError) => void) {
    this.#codec = codec;
    this.#resolve = resolve;
    this.#reject = reject;
  }

  onFrame(message: Uint8Array): void {
    this.#responses.push(decodeResponse(this.#codec, message));
  }

  onEnd(error: RpcError | null): void {
    const [response, ...more] = this.#responses;
    if (error !== null) this.#reject(error);
    else if (response === undefined || more.length > 0) {
      this.#reject(new RpcError(Status.INTERNAL, `expected one response, received ${this.#responses.length}`));
    } else this.#resolve(response);
  }
}

/** The receiver of a server stream. */
class ResponseStream<Response> implements ClientReceiver {
  readonly #codec: WireCodec<Response>;
  readonly #receiver: { onMessage(message: Response): void; onEnd(error: RpcError | null): void };

  constructor(
    codec: WireCodec<Response>,
    receiver: { onMessage(message: Response): void; onEnd(error: RpcError | null): void },
  ) {
    this.#codec = codec;
    this.#receiver = receiver;
  }

  onFrame(message: Uint8Array): void {
    this.#receiver.onMessage(decodeResponse(this.#codec, message));
  }

  onEnd(error: RpcError | null): void {
    this.#receiver.onEnd(error);
  }
}
