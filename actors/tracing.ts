/**
 * One trace from a request to the processes that it causes: spans named `<noun> <event>`, with ids as attributes.
 *
 * The context travels beside what happens, as a W3C `traceparent`: in a call's metadata, in a proposal and its transaction,
 * in a label of each task (`traceparentLabel`). Machines never see it.
 *
 * X1: tracing changes nothing but telemetry and that label: no await, no draw, no timer, no decision.
 * X2: where nobody records, a span costs one call, and no attribute is made; the context is still passed on.
 */
import { SpanKind, SpanStatusCode, trace, type Attributes, type Link, type Span } from "@opentelemetry/api";
import type { Clock, Telemetry } from "../runtime/ports.ts";
import { RpcError, Status, type CallContext, type UnaryHandler } from "../runtime/rpc.ts";
import { contextOf, traceparentOf } from "../runtime/telemetry/tracing.ts";
import { sentence } from "./sentence.ts";

export interface TracePorts {
  readonly clock: Clock;
  readonly telemetry: Telemetry;
}

/** A child of what `traceparent` names; a trace of its own where that is empty. Not recording when nobody collects (X2). */
export function startSpan(
  { clock, telemetry }: TracePorts,
  name: string,
  traceparent: string,
  kind = SpanKind.INTERNAL,
): Span {
  return telemetry.tracer.startSpan(name, { kind, startTime: clock.now() }, contextOf(traceparent));
}

/** The same where there is a trace to continue and somebody records it, else null: for what is no request by itself. */
export function continueSpan(ports: TracePorts, name: string, traceparent: string): Span | null {
  if (traceparent === "") return null;
  const span = startSpan(ports, name, traceparent);
  return span.isRecording() ? span : null;
}

/** Ends it now; with a failure when `error` is one. */
export function endSpan({ clock }: TracePorts, span: Span, error: unknown = null): void {
  if (error !== null) {
    span.setStatus({ code: SpanStatusCode.ERROR, message: typeof error === "string" ? error : sentence(error) });
    if (error instanceof RpcError) span.setAttribute("rpc.grpc.status_code", error.code);
  }
  span.end(clock.now());
}

/** Links to the spans that `traceparents` name; those that name none are left out. */
export function linksTo(traceparents: Iterable<string>): Link[] {
  const links: Link[] = [];
  for (const traceparent of traceparents) {
    const context = trace.getSpanContext(contextOf(traceparent));
    if (context !== undefined) links.push({ context });
  }
  return links;
}

/** What a caller did wrong or lost is no fault of the server: its span stays unset, as OpenTelemetry has it for gRPC. */
const faults: ReadonlySet<Status> = new Set([
  Status.UNKNOWN,
  Status.DEADLINE_EXCEEDED,
  Status.UNIMPLEMENTED,
  Status.INTERNAL,
  Status.UNAVAILABLE,
  Status.DATA_LOSS,
]);

function endCall(ports: TracePorts, span: Span, error: unknown): void {
  if (error instanceof RpcError && !faults.has(error.code)) {
    span.setAttribute("rpc.grpc.status_code", error.code);
    endSpan(ports, span);
  } else endSpan(ports, span, error);
}

/**
 * The handler in a span of its own, whose context takes the place of the caller's. `attributes` is asked only while
 * somebody records: first without, then, when all went well, with the response.
 */
export function traced<Request, Response>(
  ports: TracePorts,
  name: string,
  attributes: (request: Request, response: Response | null) => Attributes,
  handler: UnaryHandler<Request, Response>,
): UnaryHandler<Request, Response> {
  return (request, call) => {
    const span = startSpan(ports, name, call.traceparent, SpanKind.SERVER);
    if (!span.isRecording()) return handler(request, call);
    span.setAttributes(attributes(request, null));
    const { deadline, method, peer, signal } = call;
    const inner: CallContext = { deadline, method, peer, signal, traceparent: traceparentOf(span) };
    const succeed = (response: Response): void => {
      span.setAttributes(attributes(request, response));
      endSpan(ports, span);
    };
    try {
      const answer = handler(request, inner);
      // Beside the answer, which goes to the caller as it is (X1).
      if (answer instanceof Promise) answer.then(succeed, (error: unknown) => endCall(ports, span, error));
      else succeed(answer);
      return answer;
    } catch (error) {
      endCall(ports, span, error);
      throw error;
    }
  };
}
