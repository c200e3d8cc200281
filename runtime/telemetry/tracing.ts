/**
 * The tracer: OpenTelemetry's API everywhere. The SDK and its OTLP exporter are loaded only when an endpoint is configured
 * (`OTEL_EXPORTER_OTLP_ENDPOINT`), so a process that nobody traces pays nothing.
 */
import {
  isSpanContextValid,
  ROOT_CONTEXT,
  trace,
  TraceFlags,
  type Context,
  type Span,
  type Tracer,
} from "@opentelemetry/api";
import type * as Resources from "@opentelemetry/resources";
import type { ReadableSpan, SpanProcessor } from "@opentelemetry/sdk-trace";
import { version } from "../../lib/version.ts";

export interface Tracing {
  readonly tracer: Tracer;
  /** Exports the pending spans; resolves within the exporter's own timeout. */
  shutdown(): Promise<void>;
}

interface TracingOptions {
  /** Limit of one export (OTLP's default is 10 s). */
  readonly exportTimeoutMs?: number;
  /** Gets each finished span. */
  readonly onEnd?: (span: ReadableSpan) => void;
}

/**
 * `endpoint` as in the OTLP specification: the collector's base URL, such as `http://127.0.0.1:4318`; undefined or empty
 * turns tracing off.
 */
export async function createTracing(
  service: string,
  endpoint: string | undefined,
  { exportTimeoutMs = 10_000, onEnd }: TracingOptions = {},
): Promise<Tracing> {
  if (endpoint === undefined || endpoint === "") return { tracer: trace.getTracer("muster"), shutdown: async () => {} };
  const [{ BatchSpanProcessor, TracerProvider }, { OTLPTraceExporter }, resources] = await Promise.all([
    import("@opentelemetry/sdk-trace"),
    import("@opentelemetry/exporter-trace-otlp-http"),
    import("@opentelemetry/resources"),
  ]);
  const exporter = new OTLPTraceExporter({
    url: `${endpoint.replace(/\/+$/, "")}/v1/traces`,
    timeoutMillis: exportTimeoutMs,
  });
  const provider = new TracerProvider({
    spanProcessors: [
      new BatchSpanProcessor({ exporter, scheduledDelayMillis }),
      ...(onEnd === undefined ? [] : [observing(onEnd)]),
    ],
    resource: resourceOf(service, resources),
  });
  return { tracer: provider.getTracer("muster"), shutdown: () => provider.shutdown() };
}

function observing(onEnd: (span: ReadableSpan) => void): SpanProcessor {
  const nothing = async (): Promise<void> => {};
  return { onStart: () => undefined, onEnd, forceFlush: nothing, shutdown: nothing };
}

/**
 * The resource of a process's spans: service name, Muster's version, an id for each run of the process, and host.
 * OTEL_RESOURCE_ATTRIBUTES are added.
 */
function resourceOf(service: string, resources: typeof Resources): Resources.Resource {
  const { detectResources, envDetector, hostDetector, resourceFromAttributes, serviceInstanceIdDetector } = resources;
  return resourceFromAttributes({ "service.name": service, "service.version": version })
    .merge(detectResources({ detectors: [hostDetector, serviceInstanceIdDetector] }))
    .merge(detectResources({ detectors: [envDetector] }));
}

/** Task label with the W3C trace context of the request that created it; a Docker Engine sets it on the container. */
export const traceparentLabel = "muster.traceparent";

/** Milliseconds between two exports, so that traces appear soon after their request (OTLP's default is 5 s). */
const scheduledDelayMillis = 1_000;

const pattern = /^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/;

/** The context of a W3C `traceparent`; the root context if it is empty or malformed. */
export function contextOf(traceparent: string): Context {
  const [, traceId, spanId, flags] = pattern.exec(traceparent) ?? [];
  if (traceId === undefined || spanId === undefined || flags === undefined) return ROOT_CONTEXT;
  const spanContext = { traceId, spanId, traceFlags: Number.parseInt(flags, 16) & TraceFlags.SAMPLED, isRemote: true };
  return isSpanContextValid(spanContext) ? trace.setSpanContext(ROOT_CONTEXT, spanContext) : ROOT_CONTEXT;
}

/** The W3C `traceparent` of a span; empty if the span is not recorded. */
export function traceparentOf(span: Span): string {
  const { traceId, spanId, traceFlags } = span.spanContext();
  if (!isSpanContextValid(span.spanContext())) return "";
  return `00-${traceId}-${spanId}-${traceFlags.toString(16).padStart(2, "0")}`;
}
