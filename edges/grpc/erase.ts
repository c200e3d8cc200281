/** Removes the types of handlers, for the table that calls them. */
import type { MethodDescriptor } from "../../proto/codec.ts";
import { assert } from "../../lib/assert.ts";
import type { CallContext, Sink } from "../../runtime/ports/rpc.ts";
import type { ServedMethod } from "./server-call.ts";

/** Removes a handler's types, which the service's table has checked. */
export function erase(method: MethodDescriptor<unknown, unknown>, handler: unknown): ServedMethod["handler"] {
  assert(typeof handler === "function", `G1: ${method.path} has a handler`);
  if (method.requestStream && method.responseStream)
    return {
      kind: "duplex-stream",
      run: handler as (requests: AsyncIterable<unknown>, sink: Sink<unknown>, call: CallContext) => Promise<void>,
    };
  if (method.requestStream)
    return {
      kind: "client-stream",
      run: handler as (requests: AsyncIterable<unknown>, call: CallContext) => Promise<unknown>,
    };
  if (method.responseStream)
    return {
      kind: "server-stream",
      run: handler as (request: unknown, sink: Sink<unknown>, call: CallContext) => void,
    };
  return { kind: "unary", run: handler as (request: unknown, call: CallContext) => unknown };
}
