/**
 * A process's telemetry in a simulation: spans and log lines become lines of the trace. Metrics are kept as numbers.
 *
 * Spans are those of OpenTelemetry's SDK, as in a real process. Each starts and ends at a time of the process's clock, and its ids
 * come from a separate random stream, so that recording them does not affect what happens.
 */
import { ProxyTracerProvider, SpanStatusCode, type Tracer } from "@opentelemetry/api";
import { resourceFromAttributes } from "@opentelemetry/resources";
import { AlwaysOnSampler, TracerProvider, type ReadableSpan } from "@opentelemetry/sdk-trace";
import { version } from "../../lib/version.ts";
import type { Headers, Logger, Metrics, Telemetry } from "../ports/index.ts";
import { recordingLogger, recordSpan } from "../recording/recorded-log.ts";
import type { RecordingRing } from "../recording/ring.ts";
import type { SimRandom } from "./random.ts";
import type { SimTrace } from "./trace.ts";

export interface SimTelemetry extends Telemetry {
  /** The metric's value: the sum of a counter, the last value of a gauge, the number of a histogram's observations. */
  reading(name: string, labels?: Headers): number;
}

interface SimTelemetryOptions {
  /** Name of the process in the trace, and of its host in spans. */
  readonly who: string;
  readonly random: SimRandom;
  readonly trace: SimTrace;
  /** `service.name` of its spans. */
  readonly service?: string;
  /** Number of this run of the process. */
  readonly life?: number;
  /** Gets each finished span. */
  readonly onSpan?: ((span: ReadableSpan) => void) | null;
  /** Keeps log lines and spans, as in a real process. */
  readonly recorder?: { readonly ring: RecordingRing; readonly now: () => number } | null;
}

/** OpenTelemetry's tracer without effect. */
const noSpans = new ProxyTracerProvider().getTracer("muster");

/** Spans are not recorded if nobody reads them: the trace is dropped, and neither `onSpan` nor `recorder` is set. */
export function createSimTelemetry(options: SimTelemetryOptions): SimTelemetry {
  const { recorder = null, trace: lines, who } = options;
  const readings = new Map<string, number>();
  const log = (level: string) => (fields: object, message: string) => {
    // Messages are constant and variable parts are in the fields, so messages identify branches.
    if (level !== "debug") lines.mark(`${level}: ${message}`);
    if (lines.isKept) lines.write(who, `log.${level} ${message} ${describe(fields)}`);
  };
  const logger: Logger = { debug: log("debug"), info: log("info"), warn: log("warn"), error: log("error") };
  return {
    tracer: areSpansRead(options) ? createTracer(options) : noSpans,
    metrics: createMetrics(readings),
    log: recorder === null ? logger : recordingLogger(logger, recorder.ring, recorder.now),
    reading: (name, labels) => readings.get(key(name, labels)) ?? 0,
  };
}

function areSpansRead({ onSpan = null, recorder = null, trace }: SimTelemetryOptions): boolean {
  return !trace.isDropped || onSpan !== null || recorder !== null;
}

function createTracer({
  life = 1,
  onSpan = null,
  random,
  recorder = null,
  service = "muster",
  trace,
  who,
}: SimTelemetryOptions): Tracer {
  const provider = new TracerProvider({
    resource: resourceFromAttributes({
      "service.name": service,
      "service.version": version,
      "service.instance.id": `${who}.${life}`,
      "host.name": who,
    }),
    sampler: new AlwaysOnSampler(),
    idGenerator: {
      generateTraceId: () => hex(random.bytes(16)),
      generateSpanId: () => hex(random.bytes(8)),
    },
    spanProcessors: [
      {
        onStart: () => {},
        onEnd: (span) => {
          trace.write(who, `span ${lineOf(span)}`);
          onSpan?.(span);
          if (recorder !== null) recordSpan(span, recorder.ring);
        },
        forceFlush: async () => {},
        shutdown: async () => {},
      },
    ],
  });
  return provider.getTracer("muster");
}

function lineOf(span: ReadableSpan): string {
  const { attributes, duration, links, name, parentSpanContext, status } = span;
  const { spanId, traceId } = span.spanContext();
  const [seconds, nanos] = duration;
  const ms = seconds * 1_000 + nanos / 1e6;
  const failure = status.code === SpanStatusCode.ERROR ? ` failed: ${status.message ?? ""}` : "";
  const linked = links.map(({ context }) => ` link=${context.traceId}/${context.spanId}`).join("");
  return `${name} ${JSON.stringify(attributes)} ${traceId}/${spanId}<${parentSpanContext?.spanId ?? ""} ${ms}ms${failure}${linked}`;
}

function createMetrics(readings: Map<string, number>): Metrics {
  const add = (name: string, value: number, labels: Headers | undefined) => {
    const of = key(name, labels);
    readings.set(of, (readings.get(of) ?? 0) + value);
  };
  return {
    counter: (name) => ({ add: (value = 1, labels) => add(name, value, labels) }),
    gauge: (name) => ({ set: (value, labels) => readings.set(key(name, labels), value) }),
    histogram: (name) => ({ observe: (_value, labels) => add(name, 1, labels) }),
  };
}

function key(name: string, labels: Headers | undefined): string {
  return labels === undefined ? name : `${name}${JSON.stringify(labels)}`;
}

/** Fields as one line of JSON; errors by name and message, since their stacks contain file paths. */
function describe(fields: object): string {
  return JSON.stringify(fields, (_key, value: unknown) => {
    if (value instanceof Error) return `${value.name}: ${value.message}`;
    if (value instanceof Uint8Array) return `${value.length} bytes`;
    if (typeof value === "bigint") return String(value);
    return value;
  });
}

function hex(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString("hex");
}
