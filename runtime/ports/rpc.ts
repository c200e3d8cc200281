/**
 * The parts of a service, independent of its transport: `edges/grpc/` serves them over HTTP/2, the simulator over its
 * network.
 */
import type { MethodDescriptor, WireMethod } from "../../proto/codec.ts";
import type { Role } from "../user-roles.ts";

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

/** The failure of a call: thrown by a handler, received by a client. The peer sees its text. */
export class RpcError extends Error {
  override readonly name = "RpcError";
  readonly code: Status;
  /** The encoded `google.rpc.Status` that accompanies the status; null if there is none. */
  readonly details: Uint8Array | null;
  constructor(code: Status, message: string, options?: ErrorOptions & { readonly details?: Uint8Array }) {
    super(message, options);
    this.code = code;
    this.details = options?.details ?? null;
  }
}

/** The caller. */
export interface Peer {
  /** From a client certificate signed by this cluster's CA; null for a caller without one, and on the control socket. */
  readonly identity: {
    readonly nodeId: string;
    readonly role: "swarm-worker" | "swarm-manager";
    readonly organization: string;
  } | null;
  /** True on the local Unix socket: whoever may open it has a manager's permissions. */
  readonly local: boolean;
  /** IP address of the caller, without port; empty on a Unix socket. */
  readonly address: string;
  /** The site behind whose leaf node of NATS the caller is; absent for a caller elsewhere. */
  readonly site?: string;
  /** Start of the validity of the caller's certificate, in milliseconds since the epoch; absent if unknown. */
  readonly certifiedFromMs?: number | undefined;
  /** On the local Unix socket: the process that the caller claims to be; absent if it claims none. */
  readonly process?: CallingProcess | undefined;
  /** Tag of the user of the JSON API, or of a user's certificate, such as `user-ada`. */
  readonly user?: string;
  /** Role of a certificate's user at the start of the call; absent for other callers. */
  readonly role?: Role;
}

/** Identity that a local caller claims. Informational only: it proves nothing. */
export interface CallingProcess {
  readonly uid: number;
  readonly pid: number;
  /** Login name; empty if unknown. */
  readonly user: string;
}

/**
 * Signals that the caller is gone: the part of AbortSignal that handlers need. Any AbortSignal qualifies; the gRPC server has
 * a smaller implementation, since each idle node holds three.
 */
export interface CallSignal {
  readonly aborted: boolean;
  addEventListener(type: "abort", listener: () => void, options?: { readonly once: boolean }): void;
  removeEventListener(type: "abort", listener: () => void): void;
}

export interface CallContext {
  readonly peer: Peer;
  /** Aborted when the caller cancels, its deadline passes or its connection closes. */
  readonly signal: CallSignal;
  /** The call's deadline, on this process's `Clock.monotonic` in milliseconds; undefined if the caller sets none. */
  readonly deadline?: number | undefined;
  /** The caller's W3C trace context; empty if there is none. */
  readonly traceparent: string;
  /** HTTP/2 path of the called method. */
  readonly method?: string | undefined;
}

/** The sending half of a server stream. Writes after the end are ignored. */
export interface Sink<Message> {
  write(message: Message): void;
  /**
   * Ends the stream, with status OK unless an error is given. `drop` discards queued messages: the peer gets the status after
   * at most one more message.
   */
  end(error?: RpcError, queued?: "send" | "drop"): void;
  /** Bytes written but not yet accepted by the peer's flow control. */
  bufferedBytes(): number;
}

export type UnaryHandler<Request, Response> = (request: Request, call: CallContext) => Promise<Response> | Response;
/** Returns immediately; the stream lasts until the sink is ended or `call.signal` aborts. May throw RpcError to refuse. */
type ServerStreamHandler<Request, Response> = (request: Request, sink: Sink<Response>, call: CallContext) => void;
type ClientStreamHandler<Request, Response> = (
  requests: AsyncIterable<Request>,
  call: CallContext,
) => Promise<Response>;

/** Streams both ways; the promise's outcome ends the call, unless the sink was ended before. */
type DuplexHandler<Request, Response> = (
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

/** A server stream in progress. */
export interface ReceivingCall {
  cancel(): void;
  /** Stops the peer from sending, by flow control; messages in flight still arrive. */
  pause(): void;
  resume(): void;
}

/** A client stream in progress. */
export interface SendingCall<Request, Response> {
  write(message: Request): void;
  finish(): Promise<Response>;
  cancel(): void;
  /** Bytes written but not yet accepted by the peer's flow control. */
  bufferedBytes(): number;
}

/**
 * The client's half: a connection to one manager. `edges/grpc/client.ts` implements it over HTTP/2, the simulator over its
 * network.
 */
export interface RpcChannel {
  /**
   * Rejects with RpcError: DEADLINE_EXCEEDED after the timeout, UNAVAILABLE on a broken connection. Without a timeout, waits as
   * long as the connection lasts.
   */
  unary<Request, Response>(
    method: MethodDescriptor<Request, Response>,
    request: Request,
    options?: { timeoutMs?: number; traceparent?: string },
  ): Promise<Response>;
  /** `onEnd` is called exactly once, with null for status OK, and never after `cancel`. */
  serverStream<Request, Response>(
    method: WireMethod<Request, Response>,
    request: Request,
    receiver: { onMessage(message: Response): void; onEnd(error: RpcError | null): void },
    options?: { readonly traceparent?: string },
  ): ReceivingCall;
  /** `onEnd` is called once, when the peer has answered or refused or the connection is lost, and never after `cancel`. */
  clientStream<Request, Response>(
    method: MethodDescriptor<Request, Response>,
    onEnd?: () => void,
  ): SendingCall<Request, Response>;
  /** Closes the connection; calls in progress fail with CANCELLED. */
  close(): void;
  /** Called once when the connection is closed for any reason other than `close`. */
  onClosed(listener: () => void): void;
}

/** A bidirectional streaming call. */
export interface DuplexCall<Request> extends ReceivingCall {
  write(message: Request): void;
  /** Half-closes the call: no more writes follow. */
  finish(): void;
  /** Bytes written but not yet accepted by the peer's flow control. */
  bufferedBytes(): number;
}

/** A channel whose peer also has bidirectional methods, as plugins do. */
export interface DuplexChannel extends RpcChannel {
  /** `onEnd` is called exactly once, with null for status OK, and never after `cancel`. */
  duplexStream<Request, Response>(
    method: MethodDescriptor<Request, Response>,
    receiver: { onMessage(message: Response): void; onEnd(error: RpcError | null): void },
  ): DuplexCall<Request>;
}
