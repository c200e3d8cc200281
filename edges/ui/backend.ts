/** The other end of the page's calls: a manager, or a recording. */
import type { UiHello } from "../../proto/gen/messages.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";

/** Where the messages of a call's answer go. */
export interface UiSink {
  /**
   * Null: more can be written at once. Otherwise the page has much to read yet, and the promise resolves when it has read enough,
   * or is gone. A backend that does not wait is cut off at a limit (`limits.ts`).
   */
  write(message: Uint8Array): Promise<void> | null;
}

export interface UiCallContext {
  /** Aborted when the page cancels the call or goes away. */
  readonly signal: AbortSignal;
  /** W3C trace context of the call. */
  readonly traceparent: string;
}

/**
 * Performs a call. `method` is a gRPC path, such as `/docker.swarmkit.v1.Control/ListNodes`; `request` is the encoded message.
 * Resolves for status OK, after one message for a unary call. Rejects with RpcError for every other status.
 */
export type CallMethod = (method: string, request: Uint8Array, sink: UiSink, context: UiCallContext) => Promise<void>;

export interface UiBackend {
  readonly call: CallMethod;
  /** Calls back at most once, with a sentence, when no further call can succeed. The page then connects again. */
  onEnded?(listener: (reason: string) => void): void;
  /** The page has gone away. */
  close?(): void;
}

/** One connection of a page, from its WebSocket's opening to its end. */
export interface UiSession {
  readonly hello: UiHello;
  readonly backend: UiBackend;
}

/** Methods by gRPC path that the server of the page answers itself. */
export type LocalServices = ReadonlyMap<string, CallMethod>;

/** A backend whose calls are answered by `local` where it has the method, otherwise by `backend`. */
export function withLocal(backend: UiBackend, local: LocalServices): UiBackend {
  return {
    call: (method, ...rest) => (local.get(method) ?? backend.call)(method, ...rest),
    onEnded: (listener) => backend.onEnded?.(listener),
    close: () => backend.close?.(),
  };
}

/** A backend with only these methods, such as that of a recording. */
export function onlyLocal(local: LocalServices): UiBackend {
  return withLocal(
    {
      call: (method) => Promise.reject(new RpcError(Status.UNIMPLEMENTED, `unknown method ${method}`)),
    },
    local,
  );
}
