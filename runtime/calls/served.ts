/**
 * The server's half of calls over any connection: runs the handlers, and answers through a `Caller`. C2 of the transports:
 * nothing reaches a handler after the connection has ended on this side.
 */
import type { Codec } from "../../proto/codec.ts";
import { handlerFailure, malformedRequest, overloaded } from "./failures.ts";
import { inCall, type OpenCall } from "../observation/cause.ts";
import type { Clock, Logger } from "../ports/index.ts";
import { RpcError, Status, type CallContext, type Peer, type Sink } from "../ports/rpc.ts";

/** Admits callers, and limits how long: what `edges/grpc/` checks for each call, and while calls are open. */
export interface CallGate {
  /** The peer for the handler, or the reason for which the call is refused. */
  admit(peer: Peer, path: string): Peer | string;
  /** Until `closed`, `end` may end the connection, and each of its calls with the reason that `admit` then gives. */
  opened(peer: Peer, end: () => void): { closed(): void };
  /** Called when a message of that method is sent to the peer. */
  sends(peer: Peer, path: string): void;
  /** Starts the handler of a request now or later; false: never, since the manager is overloaded. Absent: now. */
  inTurn?(peer: Peer, path: string, start: () => void): boolean;
}

/** A service's table and its handlers, which the compiler has checked against each other. */
export interface Service {
  readonly service: { readonly name: string; readonly methods: object };
  readonly handlers: object;
}

/** The served methods by path; those without a handler are missing. */
export function methodsOf(services: readonly Service[]): ReadonlyMap<string, Served> {
  const methods = new Map<string, Served>();
  for (const { service, handlers } of services) {
    for (const [name, method] of Object.entries(service.methods)) {
      const handler = (handlers as Record<string, unknown>)[name];
      if (handler !== undefined) methods.set((method as AnyMethod).path, { method: method as AnyMethod, handler });
    }
  }
  return methods;
}

export interface Served {
  readonly method: AnyMethod;
  readonly handler: unknown;
}

interface AnyMethod {
  readonly path: string;
  readonly request: Codec<unknown>;
  readonly response: Codec<unknown>;
  readonly requestStream: boolean;
  readonly responseStream: boolean;
}

interface ServedConnectionOptions {
  readonly clock: Clock;
  readonly log: Logger;
  readonly methods: ReadonlyMap<string, Served>;
  readonly peer: Peer;
  /** Null admits everyone. */
  readonly gate: CallGate | null;
  /** Closes the connection from this side. */
  readonly close: () => void;
}

/** The server's half of one connection. */
export class ServedConnection {
  readonly #options: ServedConnectionOptions;
  readonly #gated: { closed(): void } | undefined;
  readonly #calls = new Map<number, ServedCall>();

  constructor(options: ServedConnectionOptions) {
    this.#options = options;
    this.#gated = options.gate?.opened(options.peer, () => this.#revoke());
  }

  /** To be called once when the connection has ended for any reason other than `close`. */
  broken(): void {
    this.#gated?.closed();
    for (const call of this.#calls.values()) call.abort();
    this.#calls.clear();
  }

  /** The caller's identity or role has changed. */
  #revoke(): void {
    for (const call of this.#calls.values()) {
      const { gate, peer } = this.#options;
      const admitted = gate?.admit(peer, call.path);
      call.revoke(
        typeof admitted === "string"
          ? new RpcError(Status.PERMISSION_DENIED, admitted)
          : new RpcError(Status.UNAVAILABLE, "the caller's role has changed: connect again"),
      );
    }
    this.#calls.clear();
    this.#options.close();
  }

  open(id: number, path: string, traceparent: string, timeoutMs: number | undefined, caller: Caller): void {
    const { clock, gate, log, methods, peer } = this.#options;
    const served = methods.get(path);
    const call = new ServedCall(caller, {
      path,
      clock,
      log,
      onOver: () => this.#calls.delete(id),
      onSend: () => gate?.sends(peer, path),
      inTurn: (start) => {
        if (gate?.inTurn !== undefined) return gate.inTurn(peer, path, start);
        start();
        return true;
      },
    });
    this.#calls.set(id, call);
    if (served === undefined) {
      call.end(new RpcError(Status.UNIMPLEMENTED, `unknown method ${path}`));
      return;
    }
    const admitted = gate === null ? peer : gate.admit(peer, path);
    if (typeof admitted === "string") {
      call.end(new RpcError(Status.PERMISSION_DENIED, admitted));
      return;
    }
    if (timeoutMs !== undefined) {
      const timer = clock.setTimeout(() => call.abort(), timeoutMs);
      call.onOver = () => clock.clearTimeout(timer);
    }
    const deadline = timeoutMs === undefined ? undefined : clock.monotonic() + timeoutMs;
    call.begin(served, new ServedContext(call, { peer: admitted, deadline, traceparent, method: path }));
  }

  message(id: number, bytes: Uint8Array): void {
    this.#calls.get(id)?.receive(bytes);
  }

  halfClose(id: number): void {
    this.#calls.get(id)?.finish();
  }

  cancel(id: number): void {
    this.#calls.get(id)?.abort();
    this.#calls.delete(id);
  }
}

/** The way from one call to its caller. */
export interface Caller {
  message(bytes: Uint8Array): void;
  /** The only message, and with it the end of the call. */
  answer(bytes: Uint8Array): void;
  /** Null: status OK. `drop` discards queued messages. */
  end(error: RpcError | null, queued: "send" | "drop"): void;
  /** Bytes of messages that the caller's flow control has not accepted yet. */
  bufferedBytes(): number;
  /** Stops the caller from sending, by flow control; messages in flight still arrive. */
  pause(): void;
  resume(): void;
}

interface CallOptions {
  readonly path: string;
  readonly clock: Clock;
  readonly log: Logger;
  readonly onOver: () => void;
  /** Called for each message before it is sent. */
  readonly onSend: () => void;
  readonly inTurn: (start: () => void) => boolean;
}

/** `signal` is made when a handler first reads it: most answer at once, and an AbortController takes longer than the rest of a call. */
class ServedContext implements CallContext {
  readonly peer: Peer;
  readonly deadline: number | undefined;
  readonly traceparent: string;
  readonly method: string | undefined;
  readonly #call: ServedCall;

  constructor(call: ServedCall, { deadline, method, peer, traceparent }: Required<Omit<CallContext, "signal">>) {
    this.#call = call;
    this.peer = peer;
    this.deadline = deadline;
    this.traceparent = traceparent;
    this.method = method;
  }

  get signal(): AbortSignal {
    return this.#call.signal;
  }
}

class ServedCall implements OpenCall {
  readonly #caller: Caller;
  readonly #options: CallOptions;
  #abort: AbortController | null = null;
  #isAborted = false;
  /** Called once, when the call has ended here, in whatever way. */
  onOver: (() => void) | null = null;
  #served: Served | null = null;
  #context: CallContext | null = null;
  #requests: RequestQueue | null = null;
  #hasRequest = false;
  #isOver = false;

  constructor(caller: Caller, options: CallOptions) {
    this.#caller = caller;
    this.#options = options;
  }

  get path(): string {
    return this.#options.path;
  }

  get signal(): AbortSignal {
    this.#abort ??= new AbortController();
    if (this.#isAborted) this.#abort.abort();
    return this.#abort.signal;
  }

  get isOpen(): boolean {
    return !this.#isOver;
  }

  begin(served: Served, context: CallContext): void {
    this.#served = served;
    this.#context = context;
    if (!served.method.requestStream) return;
    const requests = (this.#requests = new RequestQueue(this.#caller));
    if (served.method.responseStream) {
      const handler = served.handler as (
        requests: AsyncIterable<unknown>,
        sink: Sink<unknown>,
        call: CallContext,
      ) => Promise<void>;
      inCall(this.path, this, () => handler(requests, this.#sinkOf(served.method), context)).then(
        () => this.end(null),
        (error: unknown) => this.#fail(error),
      );
      return;
    }
    const handler = served.handler as (requests: AsyncIterable<unknown>, call: CallContext) => Promise<unknown>;
    void this.#answer(() => inCall(this.path, this, () => handler(requests, context)));
  }

  receive(bytes: Uint8Array): void {
    const { method } = this.#served as Served;
    let request: unknown;
    try {
      request = method.request.decode(bytes);
    } catch (error) {
      this.end(malformedRequest(error));
      return;
    }
    if (this.#requests !== null) {
      this.#requests.push(request);
      return;
    }
    if (this.#hasRequest) {
      this.end(new RpcError(Status.UNIMPLEMENTED, "expected one request, received another"));
      return;
    }
    this.#hasRequest = true;
    const isTaken = this.#options.inTurn(() => {
      // The caller may be gone after a wait.
      if (this.isOpen) this.#handle(request);
    });
    if (!isTaken) this.end(overloaded());
  }

  #handle(request: unknown): void {
    const { method, handler } = this.#served as Served;
    const context = this.#context as CallContext;
    if (method.responseStream) {
      const sink = this.#sinkOf(method);
      try {
        inCall(this.path, this, () =>
          (handler as (request: unknown, sink: Sink<unknown>, call: CallContext) => void)(request, sink, context),
        );
      } catch (error) {
        this.#fail(error);
      }
    } else {
      void this.#answer(() =>
        inCall(this.path, this, () => (handler as (request: unknown, call: CallContext) => unknown)(request, context)),
      );
    }
  }

  #sinkOf({ response }: AnyMethod): Sink<unknown> {
    return {
      write: (message) => this.#write(response.encode(message)),
      end: (error, queued) => this.end(error ?? null, queued),
      bufferedBytes: () => this.#caller.bufferedBytes(),
    };
  }

  finish(): void {
    this.#requests?.finish();
  }

  abort(): void {
    if (this.#isOver) return;
    this.#isAborted = true;
    this.#over();
    this.#requests?.finish();
    this.#abort?.abort();
  }

  #over(): void {
    this.#isOver = true;
    this.#options.onOver();
    this.onOver?.();
  }

  /** Ends the call with the error at the caller, and here as if the caller had disconnected. */
  revoke(error: RpcError): void {
    if (this.#isOver) return;
    this.#caller.end(error, "drop");
    this.abort();
  }

  end(error: RpcError | null, queued: "send" | "drop" = "send"): void {
    if (this.#isOver) return;
    this.#over();
    this.#caller.end(error, queued);
  }

  #fail(error: unknown): void {
    const { clock, log, path: method } = this.#options;
    this.end(handlerFailure(error, { method, isOpen: this.isOpen, log, soon: (callback) => clock.soon(callback) }));
  }

  async #answer(handle: () => unknown): Promise<void> {
    const { method } = this.#served as Served;
    try {
      const bytes = method.response.encode(await handle());
      if (this.#isOver) return;
      this.#options.onSend();
      this.#over();
      this.#caller.answer(bytes);
    } catch (error) {
      this.#fail(error);
    }
  }

  #write(bytes: Uint8Array): void {
    if (this.#isOver) return;
    this.#options.onSend();
    this.#caller.message(bytes);
  }
}

/** Queues a client stream's messages for its handler; while any waits, the caller is asked to send no more. */
class RequestQueue implements AsyncIterable<unknown> {
  readonly #caller: Pick<Caller, "pause" | "resume">;
  readonly #waiting: unknown[] = [];
  #isDone = false;
  #wake: (() => void) | null = null;

  constructor(caller: Pick<Caller, "pause" | "resume">) {
    this.#caller = caller;
  }

  push(request: unknown): void {
    this.#waiting.push(request);
    if (this.#waiting.length === 1) this.#caller.pause();
    this.#wake?.();
  }

  finish(): void {
    this.#isDone = true;
    this.#wake?.();
  }

  async *[Symbol.asyncIterator](): AsyncIterator<unknown> {
    for (;;) {
      while (this.#waiting.length > 0) {
        const request = this.#waiting.shift();
        if (this.#waiting.length === 0) this.#caller.resume();
        yield request;
      }
      if (this.#isDone) return;
      await new Promise<void>((resolve) => (this.#wake = resolve));
    }
  }
}
