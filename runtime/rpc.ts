/**
 * What a service is made of, independent of the wire that carries it: `edges/grpc/` serves these over HTTP/2, the
 * simulator over its network.
 */
import type { MethodDescriptor, WireMethod } from "../proto/codec.ts";
import type { Role } from "./user-roles.ts";

/** gRPC's status codes. */
export const Status = {
  OK: 0,
  CANCELLED: 1,
  UNKNOWN: 2,
  INVALID_ARGUMENT: 3,
  DEADLINE_EXCEEDED: 4,
  NOT_FOUND: 5,
  ALREADY_EXISTS: 6,
  PERMISSION_DENIED: 7,
  RESOURCE_EXHAUSTED: 8,
  FAILED_PRECONDITION: 9,
  ABORTED: 10,
  OUT_OF_RANGE: 11,
  UNIMPLEMENTED: 12,
  INTERNAL: 13,
  UNAVAILABLE: 14,
  DATA_LOSS: 15,
  UNAUTHENTICATED: 16,
} as const;
export type Status = (typeof Status)[keyof typeof Status];

/** The failure of a call: what a handler throws or rejects with, and what a client gets. Its text reaches the peer. */
export class RpcError extends Error {
  override readonly name = "RpcError";
  readonly code: Status;
  /** The encoded `google.rpc.Status` that came with, or goes out with, the status; null where there is none. */
  readonly details: Uint8Array | null;
  constructor(code: Status, message: string, options?: ErrorOptions & { readonly details?: Uint8Array }) {
    super(message, options);
    this.code = code;
    this.details = options?.details ?? null;
  }
}

/** Who calls. */
export interface Peer {
  /** From the client certificate that this cluster's CA signed; null for a caller without one, and on the control socket. */
  readonly identity: {
    readonly nodeId: string;
    readonly role: "swarm-worker" | "swarm-manager";
    readonly organization: string;
  } | null;
  /** True on the local Unix socket: whoever may open the socket may do what a manager may. */
  readonly local: boolean;
  /** IP address of the caller, without port; empty on a Unix socket. */
  readonly address: string;
  /** From when on the caller's certificate is valid, in milliseconds since the epoch; absent where that is not known. */
  readonly certifiedFromMs?: number | undefined;
  /** On the local Unix socket: which process says it is calling; absent when it says nothing. */
  readonly process?: CallingProcess | undefined;
  /** The tag of who logged in to the JSON API, or showed a user's certificate: such as `user-ada`. */
  readonly user?: string;
  /** What the user of a certificate may do, as it was when the call began; absent for everybody else. */
  readonly role?: Role;
}

/** What a local caller says of itself. For people to read: it proves nothing. */
export interface CallingProcess {
  readonly uid: number;
  readonly pid: number;
  /** Login name; empty when there is none. */
  readonly user: string;
}

/**
 * That a caller is gone, as much of an AbortSignal as handlers need. Any AbortSignal is one; the gRPC server has a smaller
 * one, since each idle node holds three.
 */
export interface CallSignal {
  readonly aborted: boolean;
  addEventListener(type: "abort", listener: () => void, options?: { readonly once: boolean }): void;
  removeEventListener(type: "abort", listener: () => void): void;
}

export interface CallContext {
  readonly peer: Peer;
  /** Aborted when the caller cancels, its deadline passes or its connection ends. */
  readonly signal: CallSignal;
  /** When the caller stops waiting, in milliseconds as this process's `Clock.monotonic` counts; undefined when it sets no deadline. */
  readonly deadline?: number | undefined;
  /** W3C trace context of the caller; empty when there is none. */
  readonly traceparent: string;
  /** HTTP/2 path of the method that was called. */
  readonly method?: string | undefined;
}

/** The sending half of a server stream. Writing after the end does nothing. */
export interface Sink<Message> {
  write(message: Message): void;
  /**
   * Ends the stream; without an error with status OK. `drop`: what the peer has not taken is not kept for it; it gets the
   * status after at most one more message.
   */
  end(error?: RpcError, queued?: "send" | "drop"): void;
  /** Bytes written but not yet taken by the peer's flow control. */
  bufferedBytes(): number;
}

export type UnaryHandler<Request, Response> = (request: Request, call: CallContext) => Promise<Response> | Response;
/** Returns at once; the stream lives until the sink is ended or `call.signal` aborts. May throw RpcError to refuse. */
export type ServerStreamHandler<Request, Response> = (
  request: Request,
  sink: Sink<Response>,
  call: CallContext,
) => void;
export type ClientStreamHandler<Request, Response> = (
  requests: AsyncIterable<Request>,
  call: CallContext,
) => Promise<Response>;

/** Streams both ways; the call ends with what the promise says, unless the sink was ended before. */
export type DuplexHandler<Request, Response> = (
  requests: AsyncIterable<Request>,
  sink: Sink<Response>,
  call: CallContext,
) => Promise<void>;

type HandlerOf<Method> =
  Method extends WireMethod<infer Request, infer Response>
    ? Method extends { readonly requestStream: true; readonly responseStream: true }
      ? DuplexHandler<Request, Response>
      : Method extends { readonly requestStream: true }
        ? ClientStreamHandler<Request, Response>
        : Method extends { readonly responseStream: true }
          ? ServerStreamHandler<Request, Response>
          : UnaryHandler<Request, Response>
    : never;

/** The handlers of a generated service table, such as `ServiceHandlers<typeof DispatcherService>`. */
export type ServiceHandlers<Service extends { readonly methods: object }> = {
  readonly [Name in keyof Service["methods"]]: HandlerOf<Service["methods"][Name]>;
};

/** A server stream under way. */
export interface ReceivingCall {
  cancel(): void;
  /** Asks the peer, by flow control, to stop sending; what is under way still comes. */
  pause(): void;
  resume(): void;
}

/** A client stream under way. */
export interface SendingCall<Request, Response> {
  write(message: Request): void;
  finish(): Promise<Response>;
  cancel(): void;
  /** Bytes written but not yet taken by the peer's flow control. */
  bufferedBytes(): number;
}

/** The client's half: one connection to one manager. `edges/grpc/client.ts` speaks it over HTTP/2, the simulator over its network. */
export interface RpcChannel {
  /** Rejects with RpcError; a passed deadline is DEADLINE_EXCEEDED, a broken connection UNAVAILABLE. No timeout: waits as long as the connection lives. */
  unary<Request, Response>(
    method: MethodDescriptor<Request, Response>,
    request: Request,
    options?: { timeoutMs?: number; traceparent?: string },
  ): Promise<Response>;
  /** `onEnd` is called exactly once, with null for status OK, and never after `cancel`. */
  serverStream<Request, Response>(
    method: MethodDescriptor<Request, Response>,
    request: Request,
    receiver: { onMessage(message: Response): void; onEnd(error: RpcError | null): void },
  ): ReceivingCall;
  clientStream<Request, Response>(method: MethodDescriptor<Request, Response>): SendingCall<Request, Response>;
  /** Ends the connection; calls under way fail with CANCELLED. */
  close(): void;
  /** Called once when the connection ended for any reason but `close`. */
  onClosed(listener: () => void): void;
}

/** A call that streams both ways. */
export interface DuplexCall<Request> extends ReceivingCall {
  write(message: Request): void;
  /** Nothing more will be written. */
  finish(): void;
  /** Bytes written but not yet taken by the peer's flow control. */
  bufferedBytes(): number;
}

/** A channel whose peer also has methods that stream both ways, as plugins do. */
export interface DuplexChannel extends RpcChannel {
  /** `onEnd` is called exactly once, with null for status OK, and never after `cancel`. */
  duplexStream<Request, Response>(
    method: MethodDescriptor<Request, Response>,
    receiver: { onMessage(message: Response): void; onEnd(error: RpcError | null): void },
  ): DuplexCall<Request>;
}
