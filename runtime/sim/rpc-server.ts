/**
 * The server's half of calls over the simulated network (rpc.ts). Its C2: nothing reaches a handler after the connection has
 * ended on this side.
 */
import type { Codec } from "../../proto/codec.ts";
import { inCall, type OpenCall } from "../observation/cause.ts";
import { RpcError, Status, type CallContext, type Peer, type Sink } from "../ports/rpc.ts";
import type { ConnectionEnd, Endpoint } from "./network.ts";

/** Admits callers, and limits how long: what `edges/grpc/` checks for each call, and while calls are open. */
export interface SimGate {
  /** The peer for the handler, or the reason for which the call is refused. */
  admit(peer: Peer, path: string): Peer | string;
  /** Until `closed`, `end` may end the connection, and each of its calls with the reason that `admit` then gives. */
  opened(peer: Peer, end: () => void): { closed(): void };
  /** Called when a message of that method is sent to the peer. */
  sends(peer: Peer, path: string): void;
}

export interface Listener {
  readonly endpoint: Endpoint;
  readonly methods: ReadonlyMap<string, Served>;
  readonly peerOf: (identity: Peer["identity"], client: string) => Peer;
  /** Null admits everyone. */
  readonly gate: SimGate | null;
}

export interface Served {
  readonly method: AnyMethod;
  readonly handler: unknown;
}

export interface AnyMethod {
  readonly path: string;
  readonly request: Codec<unknown>;
  readonly response: Codec<unknown>;
  readonly requestStream: boolean;
  readonly responseStream: boolean;
}

/** The server's half of one connection. */
export class ServedConnection {
  readonly end: ConnectionEnd;
  readonly #listener: Listener;
  readonly #peer: Peer;
  readonly #calls = new Map<number, ServedCall>();

  constructor(end: ConnectionEnd, listener: Listener, peer: Peer) {
    this.end = end;
    this.#listener = listener;
    this.#peer = peer;
    const gated = listener.gate?.opened(peer, () => this.#revoke());
    end.onBroken = () => {
      gated?.closed();
      for (const call of this.#calls.values()) call.abort();
      this.#calls.clear();
    };
  }

  /** The caller's identity or role has changed. */
  #revoke(): void {
    for (const call of this.#calls.values()) {
      const admitted = this.#listener.gate?.admit(this.#peer, call.path);
      call.revoke(
        typeof admitted === "string"
          ? new RpcError(Status.PERMISSION_DENIED, admitted)
          : new RpcError(Status.UNAVAILABLE, "the caller's role has changed: connect again"),
      );
    }
    this.#calls.clear();
    this.end.close();
  }

  open(id: number, path: string, traceparent: string, timeoutMs: number | undefined, client: CallClient): void {
    const served = this.#listener.methods.get(path);
    const { clock } = this.#listener.endpoint;
    const { gate } = this.#listener;
    const call = new ServedCall(this.end, client, {
      path,
      onOver: () => this.#calls.delete(id),
      onSend: () => gate?.sends(this.#peer, path),
    });
    this.#calls.set(id, call);
    if (served === undefined) {
      call.end(new RpcError(Status.UNIMPLEMENTED, `unknown method ${path}`));
      return;
    }
    const admitted = gate === null ? this.#peer : gate.admit(this.#peer, path);
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

/** Messages from the server's half to the client's. */
export interface CallClient {
  message(bytes: Uint8Array): void;
  end(error: RpcError | null): void;
}

interface CallOptions {
  readonly path: string;
  readonly onOver: () => void;
  /** Called for each message before it is sent. */
  readonly onSend: () => void;
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
  readonly #end: ConnectionEnd;
  readonly #client: CallClient;
  readonly #options: CallOptions;
  #abort: AbortController | null = null;
  #isAborted = false;
  /** Called once, when the call has ended here, in whatever way. */
  onOver: (() => void) | null = null;
  #served: Served | null = null;
  #context: CallContext | null = null;
  #requests: RequestQueue | null = null;
  #isOver = false;
  #buffered = 0;

  constructor(end: ConnectionEnd, client: CallClient, options: CallOptions) {
    this.#end = end;
    this.#client = client;
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
    this.#requests = new RequestQueue();
    const handler = served.handler as (requests: AsyncIterable<unknown>, call: CallContext) => Promise<unknown>;
    void this.#answer(() => inCall(this.path, this, () => handler(this.#requests as RequestQueue, context)));
  }

  receive(bytes: Uint8Array): void {
    const { method, handler } = this.#served as Served;
    const context = this.#context as CallContext;
    let request: unknown;
    try {
      request = method.request.decode(bytes);
    } catch {
      this.end(new RpcError(Status.INTERNAL, "malformed request"));
      return;
    }
    if (this.#requests !== null) {
      this.#requests.push(request);
    } else if (method.responseStream) {
      const sink: Sink<unknown> = {
        write: (message) => this.#write(method.response.encode(message)),
        end: (error) => this.end(error ?? null),
        bufferedBytes: () => this.#buffered,
      };
      try {
        inCall(this.path, this, () =>
          (handler as (request: unknown, sink: Sink<unknown>, call: CallContext) => void)(request, sink, context),
        );
      } catch (error) {
        this.end(asRpcError(error));
      }
    } else {
      void this.#answer(() =>
        inCall(this.path, this, () => (handler as (request: unknown, call: CallContext) => unknown)(request, context)),
      );
    }
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
    this.#end.send(() => this.#client.end(error));
    this.abort();
  }

  end(error: RpcError | null): void {
    if (this.#isOver) return;
    this.#over();
    this.#end.send(() => this.#client.end(error));
  }

  /** The answer and the end of the call arrive together, as in one packet. */
  async #answer(handle: () => unknown): Promise<void> {
    const { method } = this.#served as Served;
    try {
      const bytes = method.response.encode(await handle());
      if (this.#isOver) return;
      this.#options.onSend();
      this.#over();
      this.#end.send(() => {
        this.#client.message(bytes);
        this.#client.end(null);
      });
    } catch (error) {
      this.end(asRpcError(error));
    }
  }

  #write(bytes: Uint8Array): void {
    if (this.#isOver) return;
    this.#options.onSend();
    this.#buffered += bytes.length;
    this.#end.send(() => {
      this.#buffered -= bytes.length;
      this.#client.message(bytes);
    });
  }
}

/** Converts a handler's failure to what the caller sees. */
function asRpcError(error: unknown): RpcError {
  if (error instanceof RpcError) return new RpcError(error.code, error.message);
  return new RpcError(Status.INTERNAL, error instanceof Error ? error.message : String(error));
}

/** Queues a client stream's messages for its handler. */
class RequestQueue implements AsyncIterable<unknown> {
  readonly #waiting: unknown[] = [];
  #isDone = false;
  #wake: (() => void) | null = null;

  push(request: unknown): void {
    this.#waiting.push(request);
    this.#wake?.();
  }

  finish(): void {
    this.#isDone = true;
    this.#wake?.();
  }

  async *[Symbol.asyncIterator](): AsyncIterator<unknown> {
    for (;;) {
      while (this.#waiting.length > 0) yield this.#waiting.shift();
      if (this.#isDone) return;
      await new Promise<void>((resolve) => (this.#wake = resolve));
    }
  }
}
