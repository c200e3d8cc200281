/**
 * Calls over the simulated network, like those of `edges/grpc/` over HTTP/2: messages are really encoded and decoded, the
 * caller sets the deadline, and a broken connection ends its calls on both sides, at different times.
 *
 * C1: a call ends once at the caller: with its answer, with an error, or by cancellation.
 * C2: after the connection has ended on a side, nothing reaches that side's sink or caller.
 */
import type { MethodDescriptor } from "../../proto/codec.ts";
import { RpcError, Status, type Peer, type ReceivingCall, type RpcChannel, type SendingCall } from "../ports/rpc.ts";
import type { Logger } from "../ports/index.ts";
import type { ConnectionEnd, Endpoint, Keepalive, SimNetwork } from "./network.ts";
import { methodsOf, ServedConnection, type CallGate, type Caller, type Served, type Service } from "../calls/served.ts";

const keepalive: Keepalive = { leastMs: 3_000, mostMs: 12_000 };
/** How long a refused or unanswered connection takes to fail, in milliseconds. */
const connectMsMax = 5_000;

/** The contents of a certificate; null for a caller without one. `notAfterMs`: its expiry; absent: it never expires. */
export type SimIdentity = (NonNullable<Peer["identity"]> & { readonly notAfterMs?: number }) | null;

interface Listener {
  readonly endpoint: Endpoint;
  readonly log: Logger;
  readonly methods: ReadonlyMap<string, Served>;
  readonly peerOf: (identity: Peer["identity"], client: string) => Peer;
  readonly gate: CallGate | null;
}

/** The addresses of one simulation and their listeners. */
export class SimRpcNetwork {
  readonly network: SimNetwork;
  readonly #listeners = new Map<string, Listener>();

  constructor(network: SimNetwork) {
    this.network = network;
  }

  listen(address: string, listener: Listener): () => void {
    this.#listeners.set(address, listener);
    return () => {
      if (this.#listeners.get(address) === listener) this.#listeners.delete(address);
    };
  }

  /** The listener at an address; null also if its process is dead. */
  at(address: string): Listener | null {
    const listener = this.#listeners.get(address);
    return listener?.endpoint.clock.alive === true ? listener : null;
  }
}

/** One process's servers and clients. */
export class SimRpc {
  readonly #rpc: SimRpcNetwork;
  readonly #endpoint: Endpoint;
  readonly #log: Logger;

  constructor(rpc: SimRpcNetwork, endpoint: Endpoint, log: Logger) {
    this.#rpc = rpc;
    this.#endpoint = endpoint;
    this.#log = log;
  }

  /**
   * Serves until the returned function is called or the process ends. `peerOf` identifies a client to the handlers; `gate`
   * admits calls.
   */
  serve(
    address: string,
    services: readonly Service[],
    peerOf: (identity: SimIdentity, client: string) => Peer = defaultPeer,
    gate: CallGate | null = null,
  ): () => void {
    return this.#rpc.listen(address, {
      endpoint: this.#endpoint,
      log: this.#log,
      methods: methodsOf(services),
      peerOf,
      gate,
    });
  }

  /** Returns immediately; calls wait for the connection, or fail with UNAVAILABLE if there is none. */
  dial(address: string, identity: SimIdentity): RpcChannel {
    return new SimChannel(this.#rpc, this.#endpoint, address, identity);
  }

  /** Like `dial`, but resolves once the peer has answered; rejects with UNAVAILABLE if it does not within a few seconds. */
  async connect(address: string, identity: SimIdentity): Promise<RpcChannel> {
    const channel = new SimChannel(this.#rpc, this.#endpoint, address, identity);
    await channel.answered;
    return channel;
  }
}

function defaultPeer(identity: SimIdentity, client: string): Peer {
  return { identity, local: false, address: client };
}

interface OpenCall {
  readonly onMessage: (bytes: Uint8Array) => void;
  readonly onEnd: (error: RpcError | null) => void;
}

/** The client's half of one connection. */
class SimChannel implements RpcChannel {
  /** Resolves at the peer's first answer; rejects if it can never come. */
  readonly answered: Promise<void>;
  readonly #fail: (error: RpcError) => void;
  readonly #endpoint: Endpoint;
  readonly #calls = new Map<number, OpenCall>();
  readonly #closedListeners = new Set<() => void>();
  #end: ConnectionEnd | null = null;
  #served: ServedConnection | null = null;
  #serverEnd: ConnectionEnd | null = null;
  #isOver = false;
  #nextCall = 1;
  /** Arrivals at the server before the handshake; null once that is over. */
  #unshaken: (() => void)[] | null = [];

  constructor(rpc: SimRpcNetwork, endpoint: Endpoint, address: string, identity: SimIdentity) {
    this.#endpoint = endpoint;
    const { network } = rpc;
    const answered = Promise.withResolvers<void>();
    answered.promise.catch(() => {});
    this.answered = answered.promise;
    this.#fail = answered.reject;
    const listener = rpc.at(address);
    if (listener === null) {
      // Refused, after one round trip.
      endpoint.clock.after(2 * network.latencyMs(), () => this.#break());
      return;
    }
    const ends = network.connect(endpoint, listener.endpoint, { client: keepalive, server: keepalive });
    this.#end = ends.client;
    ends.client.onBroken = () => this.#break();
    const { gate, log, methods } = listener;
    const served = new ServedConnection({
      clock: listener.endpoint.clock,
      log,
      methods,
      gate,
      peer: listener.peerOf(identity, endpoint.name),
      close: () => ends.server.close(),
    });
    ends.server.onBroken = () => served.broken();
    this.#served = served;
    this.#serverEnd = ends.server;
    // Data may be sent immediately, but an unanswered handshake fails sooner than a keepalive.
    let isAnswered = false;
    const shake = (): void => {
      ends.server.send(() => {
        isAnswered = true;
        answered.resolve();
      });
      const arrived = this.#unshaken ?? [];
      this.#unshaken = null;
      for (const act of arrived) act();
    };
    ends.client.send(() => {
      const { handshakes } = listener.endpoint;
      if (handshakes === null) shake();
      else handshakes.offer(() => ends.server.isOpen, shake);
    });
    endpoint.clock.after(connectMsMax, () => {
      if (isAnswered || !ends.client.isOpen) return;
      ends.client.close();
      this.#break();
    });
  }

  unary<Request, Response>(
    method: MethodDescriptor<Request, Response>,
    request: Request,
    options: { timeoutMs?: number; traceparent?: string } = {},
  ): Promise<Response> {
    return new Promise((resolve, reject) => {
      let response: Response | null = null;
      const call: OpenCall = {
        onMessage: (bytes) => (response = method.response.decode(bytes)),
        onEnd: (error) => {
          if (timer !== null) this.#endpoint.clock.clearTimeout(timer);
          if (error !== null) reject(error);
          else if (response === null) reject(new RpcError(Status.INTERNAL, "no response"));
          else resolve(response);
        },
      };
      const id = this.#open(method, options, call, method.request.encode(request));
      const { timeoutMs } = options;
      const timer =
        timeoutMs === undefined || id === null
          ? null
          : this.#endpoint.clock.setTimeout(() => {
              this.#cancel(id, new RpcError(Status.DEADLINE_EXCEEDED, "deadline exceeded"));
            }, timeoutMs);
    });
  }

  serverStream<Request, Response>(
    method: MethodDescriptor<Request, Response>,
    request: Request,
    receiver: { onMessage(message: Response): void; onEnd(error: RpcError | null): void },
    options: { traceparent?: string } = {},
  ): ReceivingCall {
    // Messages for a receiver that does not read wait here; the simulated network has no flow-control windows.
    let held: (() => void)[] | null = null;
    let isCancelled = false;
    const deliver = (act: () => void): void => {
      if (isCancelled) return;
      if (held === null) act();
      else held.push(act);
    };
    const call: OpenCall = {
      onMessage: (bytes) => deliver(() => receiver.onMessage(method.response.decode(bytes))),
      onEnd: (error) => deliver(() => receiver.onEnd(error)),
    };
    const id = this.#open(method, options, call, method.request.encode(request));
    return {
      cancel: () => {
        isCancelled = true;
        this.#cancel(id, null);
      },
      pause: () => void (held ??= []),
      resume: () => {
        const acts = held ?? [];
        held = null;
        for (const act of acts) deliver(act);
      },
    };
  }

  clientStream<Request, Response>(
    method: MethodDescriptor<Request, Response>,
    onEnd: () => void = () => {},
  ): SendingCall<Request, Response> {
    const { promise, resolve, reject } = Promise.withResolvers<Response>();
    let isCancelled = false;
    const end = (): void => {
      if (!isCancelled) onEnd();
    };
    promise.then(end, end);
    const id = this.#open(
      method,
      {},
      {
        onMessage: (bytes) => resolve(method.response.decode(bytes)),
        onEnd: (error) => reject(error ?? new RpcError(Status.INTERNAL, "no response")),
      },
      null,
    );
    let buffered = 0;
    return {
      bufferedBytes: () => buffered,
      write: (message) => {
        const bytes = method.request.encode(message);
        const served = this.#served;
        if (id === null || this.#end === null) return;
        buffered += bytes.length;
        this.#send(() => {
          buffered -= bytes.length;
          served?.message(id, bytes);
        });
      },
      finish: () => {
        const served = this.#served;
        if (id !== null) this.#send(() => served?.halfClose(id));
        return promise;
      },
      cancel: () => {
        isCancelled = true;
        this.#cancel(id, new RpcError(Status.CANCELLED, "cancelled"));
      },
    };
  }

  close(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#end?.close();
    this.#fail(new RpcError(Status.CANCELLED, "the channel was closed"));
    this.#endAll(new RpcError(Status.CANCELLED, "the channel was closed"));
  }

  onClosed(listener: () => void): void {
    this.#closedListeners.add(listener);
  }

  /**
   * The call's number; null if it has already ended for lack of a connection. `request`: the only message, which arrives with the call, as
   * in one packet; null: messages follow.
   */
  #open(
    method: { readonly path: string },
    options: { timeoutMs?: number; traceparent?: string },
    call: OpenCall,
    request: Uint8Array | null,
  ): number | null {
    if (this.#isOver) {
      // Only after the caller has returned.
      this.#endpoint.clock.soon(() => call.onEnd(new RpcError(Status.UNAVAILABLE, "the connection is closed")));
      return null;
    }
    const id = this.#nextCall++;
    this.#calls.set(id, call);
    const served = this.#served;
    const caller = this.#callerOf(id);
    this.#send(() => {
      served?.open(id, method.path, options.traceparent ?? "", options.timeoutMs, caller);
      if (request !== null) served?.message(id, request);
    });
    return id;
  }

  /** `act` runs at the server, after the handshake. */
  #send(act: () => void): void {
    this.#end?.send(() => {
      if (this.#unshaken === null) act();
      else this.#unshaken.push(act);
    });
  }

  /** Sends what a call's handler answers over the server's half. */
  #callerOf(id: number): Caller {
    const end = this.#serverEnd;
    let buffered = 0;
    return {
      message: (bytes) => {
        buffered += bytes.length;
        end?.send(() => {
          buffered -= bytes.length;
          this.#calls.get(id)?.onMessage(bytes);
        });
      },
      // Together, as in one packet.
      answer: (bytes) =>
        end?.send(() => {
          this.#calls.get(id)?.onMessage(bytes);
          this.#finish(id, null);
        }),
      end: (error) => end?.send(() => this.#finish(id, error)),
      bufferedBytes: () => buffered,
      // The simulated network has no flow-control windows.
      pause: () => {},
      resume: () => {},
    };
  }

  /** Ends a call from this side; an error is reported to its caller. */
  #cancel(id: number | null, error: RpcError | null): void {
    if (id === null || !this.#calls.has(id)) return;
    const served = this.#served;
    this.#send(() => served?.cancel(id));
    if (error === null) this.#calls.delete(id);
    else this.#finish(id, error);
  }

  #finish(id: number, error: RpcError | null): void {
    const call = this.#calls.get(id);
    this.#calls.delete(id);
    call?.onEnd(error);
  }

  #break(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#fail(new RpcError(Status.UNAVAILABLE, "nobody answered"));
    this.#endAll(new RpcError(Status.UNAVAILABLE, "the connection broke"));
    for (const listener of this.#closedListeners) listener();
  }

  #endAll(error: RpcError): void {
    for (const id of Array.from(this.#calls.keys())) this.#finish(id, error);
  }
}
