/**
 * Calls of another edge of this process to the methods that its gRPC server serves, without encoding their messages. They are
 * admitted, limited by role and counted as if they came over a connection of the same caller.
 *
 * OC1: no handler runs for a caller that `roles.ts` does not admit, or whose role is too low for the request (`users.ts`).
 */
import type { WireMethod } from "../../proto/codec.ts";
import { RpcError, Status, type CallSignal, type Peer, type Sink } from "../../runtime/ports/rpc.ts";
import { authorize, type Access, type Caller, type Membership } from "./roles.ts";
import type { ServedMethod } from "./server-call.ts";

/** The methods by path. */
type OwnMethods = ReadonlyMap<string, ServedMethod & { readonly access: Access }>;

export class OwnCalls {
  readonly #methods: OwnMethods;
  readonly #caller: Caller;
  readonly #membership: Membership;
  readonly #signal: CallSignal;

  /** `signal`: aborts when the caller is gone. */
  constructor(methods: OwnMethods, caller: Caller, membership: Membership, signal: CallSignal) {
    this.#methods = methods;
    this.#caller = caller;
    this.#membership = membership;
    this.#signal = signal;
  }

  /** The answer shares objects with the store: it must not be changed. Rejects with RpcError. */
  async unary<Request, Response>(method: WireMethod<Request, Response>, request: Request): Promise<Response> {
    const { served, peer } = this.#admitted(method.path);
    if (served.handler.kind !== "unary") throw new RpcError(Status.INTERNAL, `${method.path} streams`);
    const startedAt = served.metrics.started();
    let status: Status = Status.OK;
    try {
      return (await served.handler.run(request, this.#context(peer, method.path))) as Response;
    } catch (error) {
      status = error instanceof RpcError ? error.code : Status.INTERNAL;
      throw error;
    } finally {
      served.metrics.ended(status, startedAt);
    }
  }

  /** Throws RpcError when the call is refused at once. `signal`: ends the stream earlier than the caller's own. */
  stream<Request, Response>(
    method: WireMethod<Request, Response>,
    request: Request,
    sink: Sink<Response>,
    signal: CallSignal = this.#signal,
  ): void {
    const { served, peer } = this.#admitted(method.path);
    if (served.handler.kind !== "server-stream") throw new RpcError(Status.INTERNAL, `${method.path} does not stream`);
    served.handler.run(request, sink as Sink<unknown>, { ...this.#context(peer, method.path), signal });
  }

  /** For work of the other edge that no method does. Throws RpcError unless the caller has that role. */
  demand(role: "operator"): void {
    const peer = authorize(role, this.#caller, this.#membership);
    if (typeof peer === "string") throw new RpcError(Status.PERMISSION_DENIED, peer);
  }

  /** OC1 */
  #admitted(path: string): { readonly served: ServedMethod; readonly peer: Peer } {
    const served = this.#methods.get(path);
    if (served === undefined) throw new RpcError(Status.UNIMPLEMENTED, `unknown method ${path}`);
    const peer = authorize(served.access, this.#caller, this.#membership);
    if (typeof peer === "string") throw new RpcError(Status.PERMISSION_DENIED, peer);
    return { served, peer };
  }

  #context(peer: Peer, method: string) {
    return { peer, signal: this.#signal, traceparent: "", method };
  }
}
