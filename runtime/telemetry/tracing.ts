/**
 * The tracer: OpenTelemetry's API everywhere; the SDK and its OTLP exporter are loaded only where somebody collects
 * (`OTEL_EXPORTER_OTLP_ENDPOINT`), so that a process which nobody traces pays nothing for it.
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
import packageJson from "../../package.json" with { type: "json" };

const version = packageJson.version;

export interface Tracing {
  readonly tracer: Tracer;
  /** Sends what is still waiting; resolves within the exporter's own timeout. */
  shutdown(): Promise<void>;
}

/**
 * `endpoint` as in the OTLP specification: the collector's base URL, such as `http://127.0.0.1:4318`; undefined or empty
 * where nobody collects. `exportTimeoutMs`: how long one export may try (OTLP's own default is 10 s).
 */
export async function createTracing(
  service: string,
  endpoint: string | undefined,
  exportTimeoutMs = 10_000,
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
    spanProcessors: [new BatchSpanProcessor({ exporter, scheduledDelayMillis })],
    resource: resourceOf(service, resources),
  });
  return { tracer: provider.getTracer("muster"), shutdown: () => provider.shutdown() };
}

/**
 * Who a process's spans are of: its service, with Muster's version, an id for each life of a process, and its host. What
 * OTEL_RESOURCE_ATTRIBUTES says comes on top.
 */
function resourceOf(service: string, resources: typeof Resources): Resources.Resource {
  const { detectResources, envDetector, hostDetector, resourceFromAttributes, serviceInstanceIdDetector } = resources;
  return resourceFromAttributes({ "service.name": service, "service.version": version })
    .merge(detectResources({ detectors: [hostDetector, serviceInstanceIdDetector] }))
    .merge(detectResources({ detectors: [envDetector] }));
}

/** Label of a task with the W3C trace context of the request that made it; a Docker Engine shows it on the container. */
export const traceparentLabel = "muster.traceparent";

/** Between two exports, in milliseconds: whoever looks for a trace has it a moment after the request (OTLP's default is 5 s). */
const scheduledDelayMillis = 1_000;

const pattern = /^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/;

/** The context that a W3C `traceparent` names; the root context where it is empty or malformed. */
export function contextOf(traceparent: string): Context {
  const [, traceId, spanId, flags] = pattern.exec(traceparent) ?? [];
  if (traceId === undefined || spanId === undefined || flags === undefined) return ROOT_CONTEXT;
  const spanContext = { traceId, spanId, traceFlags: Number.parseInt(flags, 16) & TraceFlags.SAMPLED, isRemote: true };
  return isSpanContextValid(spanContext) ? trace.setSpanContext(ROOT_CONTEXT, spanContext) : ROOT_CONTEXT;
}

/** The W3C `traceparent` of a span; empty when nobody records it. */
export function traceparentOf(span: Span): string {
  const { traceId, spanId, traceFlags } = span.spanContext();
  if (!isSpanContextValid(span.spanContext())) return "";
  return `00-${traceId}-${spanId}-${traceFlags.toString(16).padStart(2, "0")}`;
}
