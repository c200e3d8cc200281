/**
 * One trace from a request to the processes that it starts: spans named `<noun> <event>`, with ids as attributes.
 *
 * The context travels beside the payload as a W3C `traceparent`: in a call's metadata, in a proposal and its transaction, in a
 * label of each task (`traceparentLabel`). Machines never see it.
 *
 * X1: tracing changes nothing but telemetry and that label: no await, no random draw, no timer, no decision.
 * X2: without a collector, a span costs one call and builds no attributes; the context is still passed on.
 */
import { SpanKind, SpanStatusCode, trace, type Link, type Span } from "@opentelemetry/api";
import type { Clock, Telemetry } from "../runtime/ports/index.ts";
import { RpcError, Status, type CallContext, type UnaryHandler } from "../runtime/ports/rpc.ts";
import { inTrace } from "../runtime/observation/cause.ts";
import type { AttributeName, AttributesOf, SpanDeclaration } from "../runtime/telemetry/spans.ts";
import { contextOf, traceparentOf } from "../runtime/telemetry/tracing.ts";
import { sentence } from "./sentence.ts";

export interface TracePorts {
  readonly clock: Clock;
  readonly telemetry: Telemetry;
}

const kinds = { client: SpanKind.CLIENT, server: SpanKind.SERVER, internal: SpanKind.INTERNAL } as const;

/** A child of the span in `traceparent`; a new trace if it is empty. Not recording without a collector (X2). */
export function startSpan(
  { clock, telemetry }: TracePorts,
  { kind, name }: SpanDeclaration,
  traceparent: string,
): Span {
  return telemetry.tracer.startSpan(name, { kind: kinds[kind], startTime: clock.now() }, contextOf(traceparent));
}

/**
 * A child span if there is a trace to continue and somebody records it, else null: for work that is not a request by itself.
 */
export function continueSpan(ports: TracePorts, declared: SpanDeclaration, traceparent: string): Span | null {
  if (traceparent === "") return null;
  const span = startSpan(ports, declared, traceparent);
  return span.isRecording() ? span : null;
}

/** Sets attributes that the span's declaration has. */
export function describeSpan<Attribute extends AttributeName>(
  span: Span,
  _declared: SpanDeclaration<Attribute>,
  attributes: AttributesOf<NoInfer<Attribute>>,
): void {
  span.setAttributes(attributes);
}

/** Ends the span now; with status error when `error` is not null. */
export function endSpan({ clock }: TracePorts, span: Span, error: unknown = null): void {
  if (error !== null) {
    span.setStatus({ code: SpanStatusCode.ERROR, message: typeof error === "string" ? error : sentence(error) });
    if (error instanceof RpcError) span.setAttribute("rpc.grpc.status_code", error.code);
  }
  span.end(clock.now());
}

/** Links to the spans in `traceparents`; invalid ones are skipped. */
export function linksTo(traceparents: Iterable<string>): Link[] {
  const links: Link[] = [];
  for (const traceparent of traceparents) {
    const context = trace.getSpanContext(contextOf(traceparent));
    if (context !== undefined) links.push({ context });
  }
  return links;
}

/** Statuses that are the server's fault. For the others the span's status stays unset, as OpenTelemetry defines it for gRPC. */
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
 * Runs the handler in its own span, whose context replaces the caller's. `attributes` is called only while somebody records:
 * first without, then, on success, with the response.
 */
export function traced<Request, Response, Attribute extends AttributeName>(
  ports: TracePorts,
  declared: SpanDeclaration<Attribute>,
  attributes: (request: Request, response: Response | null) => AttributesOf<NoInfer<Attribute>>,
  handler: UnaryHandler<Request, Response>,
): UnaryHandler<Request, Response> {
  return (request, call) => {
    const span = startSpan(ports, declared, call.traceparent);
    if (!span.isRecording()) return inTrace(call.traceparent, () => handler(request, call));
    describeSpan(span, declared, attributes(request, null));
    const { deadline, method, peer, signal } = call;
    const inner: CallContext = { deadline, method, peer, signal, traceparent: traceparentOf(span) };
    const succeed = (response: Response): void => {
      describeSpan(span, declared, attributes(request, response));
      endSpan(ports, span);
    };
    try {
      const answer = inTrace(inner.traceparent, () => handler(request, inner));
      // The answer itself is passed to the caller unchanged (X1).
      if (answer instanceof Promise) answer.then(succeed, (error: unknown) => endCall(ports, span, error));
      else succeed(answer);
      return answer;
    } catch (error) {
      endCall(ports, span, error);
      throw error;
    }
  };
}
