/** Spans as OTLP in JSON, with OpenTelemetry's own serializer: the file format that Jaeger and Tempo read. */
import { JsonTraceSerializer } from "@opentelemetry/otlp-transformer";
import type { ReadableSpan } from "@opentelemetry/sdk-trace";

/** An ExportTraceServiceRequest. */
export function otlpJson(spans: readonly ReadableSpan[]): Uint8Array {
  const bytes = JsonTraceSerializer.serializeRequest([...spans]);
  if (bytes === undefined) throw new Error("the spans cannot be serialized");
  return bytes;
}
